package x402

import (
	"context"
	"errors"

	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// When the facilitator settles a payment, the payment appears on the chain with the payer's
// signature, and anybody can copy it. If the payment has no retry token, the payer's request
// looks the same as a request with the copy. So once such a payment may have been sent to the
// facilitator, a request that repeats it gets no answer. The reply says only whether the
// payment was charged.

// settleOnly resolves the doubt about a payment, and tells the sender only whether the payment
// was charged. The reply does not contain what was bought. The reply also does not say whether
// the payment was made for this request or for another one. The request counts as the sender's
// fault (Meter.Close), because anybody can send that payment.
func (a *attempt) settleOnly(ctx context.Context, c ledger.Claim) *Outcome {
	a.dues.atFault = true
	switch c.Result { //nolint:exhaustive // all others get the unprovenOutcome
	case ledger.InFlight:
		return a.responder().inFlight(c.Record, c.Wait)
	case ledger.Over:
		return a.responder().ended(c.Record)
	case ledger.Held:
	default:
		return unprovenOutcome(c.Record)
	}
	a.dues.worked = true
	a.provesNoRight = true
	h := &holder{a, c.Hold}
	if out := a.adoptTerms(c.Record); out != nil {
		return h.endUnsent(ctx, out)
	}
	p, err := a.gate.Ledger.OpenPurchase(ctx, h.hold)
	switch {
	case errors.Is(err, ledger.ErrConflict):
		return h.endUnsent(ctx, inProgress(nil))
	case err != nil:
		return h.endUnsent(ctx, ledgerFault(err, nil))
	case !p.OwnedBy(h.hold): // another payment owns the purchase, so this payment is not sent again
		return h.endUnsent(ctx, unprovenOutcome(h.record()))
	}
	return h.fulfil(ctx)
}

// answerCharged records that the money of a payment has moved, and says in the answer that the
// payment was charged. The sender does not get what was paid for.
func (h *holder) answerCharged(ctx context.Context, receipt ledger.Receipt) *Outcome {
	err := h.hold.Settled(withoutDeadline(ctx), receipt, false)
	recorded := h.wrote(ctx, "settlement not recorded", err)
	if !recorded && !errors.Is(err, ledger.ErrLost) {
		return faultOutcome(fault.New(fault.SettlementUncertain, err), nil)
	}
	h.noteState(ledger.Settled)
	return refusalOutcome(reasonUsed, nil).setCharged(new(true))
}
