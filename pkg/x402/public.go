package x402

import (
	"context"
	"errors"

	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// A settlement publishes the payer's signature. Therefore, once a payment without a retry
// token may have been sent, the payer's request cannot be distinguished from a copy. Such a
// payment can still be repeated, but its sender learns only whether the payment was charged,
// and gets no answer.

// settleOnly resolves the doubt about a payment, and tells the sender only whether the payment
// was charged. It does not return what was bought, and does not say whether the request is the
// one that was paid for. The request counts as the sender's fault (Meter.Close), because
// anybody can send such a payment.
func (a *attempt) settleOnly(ctx context.Context, c ledger.Claim) *Outcome {
	a.dues.atFault = true
	switch c.Result { //nolint:exhaustive // all others are answered as unproven
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
	case !p.OwnedBy(h.hold): // another payment answers the purchase, and this payment is not sent again
		return h.endUnsent(ctx, unproven(h.record()))
	}
	return h.fulfil(ctx)
}

// charge records that the money of a payment has moved, and says so in the answer. The sender
// does not get what was paid for.
func (h *holder) charge(ctx context.Context, receipt ledger.Receipt) *Outcome {
	err := h.hold.Settled(withoutDeadline(ctx), receipt, false)
	recorded := h.wrote(ctx, "settlement not recorded", err)
	if !recorded && !errors.Is(err, ledger.ErrLost) {
		return failed(fault.New(fault.SettlementUncertain, err), nil)
	}
	h.seen(ledger.Settled)
	return refused(alreadyUsed, nil).charged(new(true))
}
