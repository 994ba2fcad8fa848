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
	r := c.Record
	switch c.Result { //nolint:exhaustive // nothing else is told of the others
	case ledger.InFlight:
		out := inProgress(&r)
		out.Fault = a.repeatable(out.Fault.After(c.Wait), r)
		return out
	case ledger.Over:
		return a.ended(r)
	case ledger.Held:
	default:
		return unproven(r)
	}
	a.dues.worked = true
	a.opensNothing = true
	if out := a.adopt(r); out != nil {
		return a.endUnsent(ctx, c.Hold, out)
	}
	p, err := a.gate.Ledger.OpenPurchase(ctx, c.Hold)
	switch {
	case errors.Is(err, ledger.ErrConflict):
		return a.endUnsent(ctx, c.Hold, inProgress(nil))
	case err != nil:
		return a.endUnsent(ctx, c.Hold, ledgerFault(err, nil))
	case !p.Mine(c.Hold): // another payment answers the purchase, and this one is not sent again
		return a.endUnsent(ctx, c.Hold, unproven(c.Hold.Record()))
	}
	return a.held(ctx, c.Hold)
}

// charge records that the money of a payment has moved whose answer this request does not
// get, and says so.
func (a *attempt) charge(ctx context.Context, h *ledger.Hold, receipt ledger.Receipt) *Outcome {
	err := h.Settled(withoutDeadline(ctx), receipt, false)
	if !a.wrote(ctx, "settlement not recorded", err) && !errors.Is(err, ledger.ErrLost) {
		return failed(fault.New(fault.SettlementUncertain, err), nil)
	}
	a.seen(ledger.Settled)
	return refused(alreadyUsed, nil).charged(new(true))
}

// unsure answers a payment of which it is not known whether it moved money.
func (a *attempt) unsure(r ledger.Payment, cause error) *Outcome {
	f := fault.New(fault.SettlementUncertain, cause)
	if r.Token == "" && r.Purchase != "" && !a.resend {
		f = f.Saying("Settlement is not confirmed yet. Repeat this to learn whether it was charged. " +
			"For the answer sign a new payment for the same request, which charges nothing more: this one came without the extensions of its offer.")
	}
	return failed(f, nil)
}
