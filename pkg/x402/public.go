package x402

import (
	"context"
	"errors"

	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// A settlement publishes the payer's signature. A payment that came without a retry token
// cannot be told from a copy of it once it may have been sent. It can still be repeated, so
// that its payer learns whether it was charged; nothing more is told or done for it.

// settleOnly settles the doubt about a payment, and answers whether it was charged: neither
// its answer nor whether its request is the right one. It counts as its sender's fault,
// because everybody can send it.
func (a *attempt) settleOnly(ctx context.Context, c ledger.Claim) *Outcome {
	a.dues.atFault = true
	switch c.Result { //nolint:exhaustive // nothing else is told of the others
	case ledger.InFlight:
		return a.answers().inFlight(c.Record, c.Wait)
	case ledger.Over:
		return a.answers().ended(c.Record)
	case ledger.Held:
	default:
		return unproven(c.Record)
	}
	a.dues.worked = true
	a.opensNothing = true
	h := &holder{a, c.Hold}
	if out := a.adopt(c.Record); out != nil {
		return h.endUnsent(ctx, out)
	}
	p, err := a.gate.Ledger.OpenPurchase(ctx, h.hold)
	switch {
	case errors.Is(err, ledger.ErrConflict):
		return h.endUnsent(ctx, inProgress(nil))
	case err != nil:
		return h.endUnsent(ctx, ledgerFault(err, nil))
	case !p.OwnedBy(h.hold): // another payment answers the purchase, and this one is not sent again
		return h.endUnsent(ctx, unproven(h.record()))
	}
	return h.fulfil(ctx)
}

// charge records that the money of a payment has moved whose answer this request does not
// get, and says so.
func (h *holder) charge(ctx context.Context, receipt ledger.Receipt) *Outcome {
	err := h.hold.Settled(withoutDeadline(ctx), receipt, false)
	recorded := h.wrote(ctx, "settlement not recorded", err)
	if !recorded && !errors.Is(err, ledger.ErrLost) {
		return failed(fault.New(fault.SettlementUncertain, err), nil)
	}
	h.seen(ledger.Settled)
	return refused(alreadyUsed, nil).charged(new(true))
}
