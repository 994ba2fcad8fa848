package x402

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// faultOutcome returns the outcome for a fault. charged says whether money has moved; nil
// means that this is not known. Serve renders the body.
func faultOutcome(f *fault.Error, charged *bool) *Outcome {
	return &Outcome{
		Status:  f.Info().Status,
		Fault:   f,
		Payment: PaymentStatus{Charged: charged, Retryable: f.Info().Retry},
	}
}

// refusalOutcome returns a 402 with a reason. The reason is logged as well. receipt is the
// PAYMENT-RESPONSE of a failed settlement, or nil.
func refusalOutcome(reason string, receipt *SettleResponse) *Outcome {
	return faultOutcome(fault.New(fault.PaymentRequired, nil).Saying(reason), new(false)).withResponse(receipt)
}

// ledgerFault returns the outcome when a store failed, or when a record breaks the ledger's
// rules. charged says whether money has moved; nil means that this is not known.
func ledgerFault(err error, charged *bool) *Outcome {
	code := fault.LedgerUnavailable
	if errors.Is(err, ledger.ErrCorrupt) || errors.Is(err, ledger.ErrIllegal) {
		code = fault.PaymentUnavailable
	}
	return faultOutcome(fault.New(code, err), charged)
}

// setCharged sets whether money has moved (nil if this is not known), and returns the outcome.
func (o *Outcome) setCharged(moved *bool) *Outcome {
	o.Payment.Charged = moved
	return o
}

// withResponse adds a PAYMENT-RESPONSE to an outcome that has none, and returns the outcome.
func (o *Outcome) withResponse(paid *SettleResponse) *Outcome {
	if o.Receipt == nil {
		o.Receipt = paid
	}
	return o
}

// withRecord adds to an outcome what a record says about its payment: whether the payment was
// charged, and the payment's PAYMENT-RESPONSE. It returns the outcome.
func (o *Outcome) withRecord(r ledger.Payment) *Outcome {
	return o.setCharged(chargedBy(r)).withResponse(successResponse(r.Receipt))
}

// chargedBy returns whether money has moved according to a record; nil means that this is not
// known.
func chargedBy(r ledger.Payment) *bool {
	switch {
	case r.Paid():
		return new(true)
	case r.State == ledger.Refused, r.State == ledger.Superseded:
		return new(false)
	}
	return nil
}

// TermsOf returns the terms with which the payment of a record was compared. Its error is
// ledger.ErrCorrupt.
func TermsOf(r ledger.Payment) (Requirements, error) {
	var terms Requirements
	if err := json.Unmarshal(r.Terms, &terms); err != nil {
		return Requirements{}, fmt.Errorf("%w: terms: %w", ledger.ErrCorrupt, err)
	}
	return terms, nil
}

const (
	// reasonUsed is the reason in a 402. It is the same for every record, so a sender who
	// copied the payment from the chain learns nothing from it. Some clients leave out the
	// extensions of offers; the reason tells their payers what to do.
	reasonUsed = "authorization already used: sign a new one for the same request, with the same Idempotency-Key if it had one; an answer that is owed, or was given a moment ago, comes without another charge"
	// reasonAnswerGone is the reason in a 402 for a payment whose answer is no longer kept.
	reasonAnswerGone = "authorization already used"
)

// unprovenOutcome answers a request for an authorization that is on record, if the sender has
// not proved to be the payer. Anybody can copy the authorization from the chain. Therefore the
// answer has no receipt, and no alarm counts it.
func unprovenOutcome(r ledger.Payment) *Outcome {
	return refusalOutcome(reasonUsed, nil).setCharged(chargedBy(r))
}

// answerFromRecord answers from the record of a claim that did not get the lease.
func (a *attempt) answerFromRecord(ctx context.Context, c ledger.Claim) *Outcome {
	r := c.Record
	switch c.Result {
	case ledger.InFlight: // another attempt holds the lease and may be moving the money, whatever the record says
		return a.responder().inFlight(r, c.Wait)
	case ledger.Answered:
		return a.responder().replay(r)
	case ledger.Waiting:
		return a.responder().notYet(r, c.Wait)
	case ledger.Exhausted:
		return a.responder().notYet(r, 0)
	case ledger.SilenceAnswers:
		return a.answerSilence(ctx, r)
	case ledger.GoesBack:
		return refundOutcome(r)
	case ledger.OtherRequest:
		return refusalOutcome("authorization already used for another request", nil).withRecord(r)
	case ledger.OtherPurchase:
		return faultOutcome(otherNameFault(r), nil).withRecord(r)
	case ledger.OtherAuthorization:
		return a.responder().otherNonce(r, true)
	case ledger.Over:
		return a.responder().ended(r)
	case ledger.Replaced:
		return a.replaced(ctx, r)
	case ledger.UnknownSender:
		return unprovenOutcome(r)
	case ledger.Held:
	}
	return faultOutcome(fault.New(fault.PaymentUnavailable, errors.New("unknown result of a claim")), nil)
}

// responder has methods that answer from the record of a payment alone. They do no I/O.
type responder struct {
	now       time.Time
	payer     Address
	network   string
	hasJoined bool // whether the record is that of another payment, which owns the purchase
}

func (a *attempt) responder() responder {
	return responder{
		now:       a.gate.Now(),
		payer:     a.payment.From,
		network:   a.terms.Network,
		hasJoined: a.hasJoined,
	}
}

// inFlight answers a payment whose lease another attempt holds. wait is the time after which
// the client should come back.
func (a responder) inFlight(r ledger.Payment, wait time.Duration) *Outcome {
	out := inProgress(&r)
	out.Fault = a.warnUnrepeatable(out.Fault.After(wait), r)
	return out
}

// replay answers a redeemed payment with its stored answer.
func (a responder) replay(r ledger.Payment) *Outcome {
	if r.Receipt == nil || r.Answer == nil {
		return ledgerFault(errors.Join(ledger.ErrCorrupt, errors.New("redeemed without receipt or answer")), new(true))
	}
	body, err := r.Answer.Plain()
	if err != nil {
		return ledgerFault(err, new(true))
	}
	return &Outcome{
		Status:   r.Answer.Status,
		Header:   r.Answer.Header,
		Body:     body,
		Payment:  PaymentStatus{Charged: new(true)},
		Receipt:  successResponse(r.Receipt).withReceipt(r.Answer.Receipt),
		Replayed: true,
		Answered: r.AnsweredAt,
		Owed:     ledger.PartsOwed(r, a.now),
	}
}

// notYet answers a payment whose lookup may not run at this time. The reply is the fault of the
// last lookup. But if the last lookup gave an answer that was too large to store, the reply says
// this, and says that the lookup runs again later. wait is the time until the next lookup, or 0
// if no other lookup may follow.
func (a responder) notYet(r ledger.Payment, wait time.Duration) *Outcome {
	var f *fault.Error
	switch {
	case r.State == ledger.Redeemed:
		f = fault.New(fault.PaymentInProgress, nil).Saying(
			"The answer was too large to be stored, and was given once. It is looked up again, without a charge, after Retry-After.")
	case r.LastFault != nil:
		f = failureOf(r.LastFault)
	default:
		f = fault.New(fault.InternalError, errors.New("the last lookup ended without a verdict"))
	}
	return a.owed(f.After(wait), r, wait > 0).withResponse(successResponse(r.Receipt))
}

// owed returns the answer for a fault that came after settlement. The payment is charged. If
// retryable is true, another lookup may follow, and the payer can retry with the same
// signature. Otherwise the message says that a refund is due, and asks for no retry.
func (a responder) owed(f *fault.Error, r ledger.Payment, retryable bool) *Outcome {
	if retryable {
		f = a.warnUnrepeatable(f, r)
	} else {
		text := "The seller allows no more tries for this payment, and none gave an answer. Repeats change nothing: a refund is due."
		if f.Code != fault.InternalError {
			text = f.Public() + " " + text
		}
		f = f.Saying(text).Final()
	}
	out := faultOutcome(f, new(true))
	out.Payment.Retryable = retryable
	return out
}

// silenceFault returns the final answer to a payment whose target was silent: the fault of the
// last lookup, with a message that calls the silence the answer.
func silenceFault(f *fault.Error) *fault.Error {
	return f.Saying(f.Public() + " The host was silent each time it could be asked: that silence is the answer.").Final()
}

// answerSilence answers a payment whose target remained silent. The final answer is the fault
// of the last lookup, and answerSilence stores it.
func (a *attempt) answerSilence(ctx context.Context, r ledger.Payment) *Outcome {
	answer, err := SilentAnswer(a.gate.Ledger, r, a.request.Error)
	if err != nil {
		return ledgerFault(err, new(true)).withResponse(successResponse(r.Receipt))
	}
	answered, err := a.gate.Ledger.AnswerSilence(ctx, r, answer, a.request.Window)
	if err != nil {
		return ledgerFault(err, new(true)).withResponse(successResponse(r.Receipt))
	}
	a.noteState(answered.State)
	return a.responder().replay(*answered)
}

// SilentAnswer returns the answer to a payment with the standing ledger.StandingSilent: the
// fault of its last lookup. render returns the body. The error comes from Ledger.NewAnswer.
func SilentAnswer(l *ledger.Ledger, r ledger.Payment, render func(f *fault.Error, s PaymentStatus) []byte) (ledger.Answer, error) {
	f := silenceFault(failureOf(r.LastFault))
	return l.NewAnswer(f.Info().Status, render(f, PaymentStatus{Charged: new(true)}))
}

// failureOf turns the recorded failure of a lookup into a fault. Records of earlier releases
// have no status. Their fault gets the status 504.
func failureOf(l *ledger.Failure) *fault.Error {
	status := cmp.Or(l.Status, http.StatusGatewayTimeout)
	return fault.Info{
		Code:   fault.Code(l.Code),
		Status: status,
		Class:  fault.Owed,
		Retry:  true,
		After:  time.Second,
	}.New(nil).Saying(l.Message)
}

// warnUnrepeatable adds a warning to a fault that asks for a retry, if the payment came
// without a retry token. The warning says that this payment cannot be repeated once the money
// has moved. If other payments can join the purchase, the warning tells the payer to sign a
// new one instead of repeating this payment.
func (a responder) warnUnrepeatable(f *fault.Error, r ledger.Payment) *fault.Error {
	if r.Token != "" || a.hasJoined {
		return f
	}
	text := f.Public()
	switch f.Code { //nolint:exhaustive // no other message asks for a retry
	case fault.PaymentInProgress:
		text = "A payment for this request is being processed."
	case fault.InternalError:
		text = "Internal error. Nothing you sent caused it."
	}
	if r.Purchase == "" {
		return f.Saying(text + " This payment came without the extensions of its offer and without an Idempotency-Key, so that it cannot be repeated once it is paid.")
	}
	return f.Saying(text + " This payment came without the extensions of its offer: instead of repeating it, sign a new one, which is not charged again.")
}

// otherNameFault returns the fault for a payment that is repeated under another purchase name.
// The payment belongs to the purchase that its first claim named.
func otherNameFault(r ledger.Payment) *fault.Error {
	first := "without an Idempotency-Key"
	if ledger.Named(r.Purchase) {
		first = "with another Idempotency-Key"
	}
	return fault.Newf(fault.IdempotencyConflict, nil,
		"This signature was sent %s at first. Send it as it was sent then, or sign a new authorization for this purchase.", first)
}

// otherNonce answers a payment whose nonce is already on record, but without this
// authorization. There are two cases. Either the record is of another authorization, or it is
// of money that came without a request. In the second case the record names no authorization,
// so the money may come from this payment. vouched means that the payer is known to have
// signed this payment.
func (a responder) otherNonce(r ledger.Payment, vouched bool) *Outcome {
	switch {
	case r.AuthDigest != "":
		return refusalOutcome("nonce already used for another authorization", nil)
	case !vouched:
		return unprovenOutcome(r)
	case r.State == ledger.Settled:
		return refusalOutcome("the money of this authorization came without a request, and is due back", nil).withRecord(r)
	}
	return a.ended(r)
}

// refundOutcome answers a payment whose amount must be refunded, or whose refund was begun.
func refundOutcome(r ledger.Payment) *Outcome {
	if r.SendingBack != nil {
		return refusalOutcome("a refund of this payment was begun: sign a new authorization to buy the answer", nil).withRecord(r)
	}
	return refusalOutcome("the money of this authorization is due back: sign a new one to buy the answer", nil).withRecord(r)
}

// ended answers a payment that was refunded, was refused for good, or had an answer that is no
// longer kept.
func (a responder) ended(r ledger.Payment) *Outcome {
	switch r.State { //nolint:exhaustive // all others are refused, below
	case ledger.Refunded:
		return refusalOutcome("the payment was refunded by transaction "+r.Refund, nil).withRecord(r)
	case ledger.Redeemed:
		return refusalOutcome(reasonAnswerGone, nil).withRecord(r)
	}
	return refusalOutcome("settlement refused: "+r.Reason, a.failureResponse(r.Reason))
}

// unsure answers a payment while it is not known whether its money has moved. cause is logged.
func (a responder) unsure(r ledger.Payment, cause error) *Outcome {
	f := fault.New(fault.SettlementUncertain, cause)
	withoutToken := r.Token == "" && !a.hasJoined
	if withoutToken && r.Purchase != "" {
		f = f.Saying("Settlement is not confirmed yet. Repeat this to learn whether it was charged. " +
			"For the answer sign a new payment for the same request, which charges nothing more: this one came without the extensions of its offer.")
	}
	return faultOutcome(f, nil)
}

// failureResponse returns the PAYMENT-RESPONSE of a failed settlement.
func (a responder) failureResponse(reason string) *SettleResponse {
	return &SettleResponse{
		ErrorReason: reason,
		Network:     a.network,
		Payer:       a.payer.Checksum(),
	}
}
