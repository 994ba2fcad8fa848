package x402_test

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// isAnswer reports whether an outcome is the answer that was paid for: a result, or a fault
// that states a fact about the target. A fault that says that the target was silent is also an
// answer if it is final: the payer may not retry, and no refund is due.
func isAnswer(out *x402.Outcome) bool {
	return out.Fault == nil || out.Fault.Info().Class == fault.Answer ||
		out.Fault.IsSilence() && !out.Payment.Retryable && !strings.Contains(out.Fault.Public(), "refund")
}

// saysNothingMoved reports whether an answer has a failed PAYMENT-RESPONSE. Such an answer
// promises that the payment moved no money, and will move none unless somebody sends the same
// authorization again. The payer may therefore sign a new authorization.
func saysNothingMoved(out *x402.Outcome) bool { return out.Receipt != nil && !out.Receipt.Success }

func chargeAllows(c x402.Charge, charged *bool) bool {
	return c.Unknown && charged == nil || c.Yes && isTrue(charged) || c.No && isFalse(charged)
}

func isTrue(b *bool) bool  { return b != nil && *b }
func isFalse(b *bool) bool { return b != nil && !*b }

// usedUpMessage is the message of the 402 to a request whose authorization is already on
// record, if the request does not prove that it comes from the payer. The request may then be
// a copy.
const usedUpMessage = "authorization already used: sign a new one for the same request, with the same Idempotency-Key if it had one; an answer that is owed, or was given a moment ago, comes without another charge"

func saysUsedUp(out *x402.Outcome) bool {
	return out.Fault != nil && out.Status == 402 && out.Receipt == nil && out.Fault.Public() == usedUpMessage
}

func isKeyConflict(out *x402.Outcome) bool { return isFault(out, fault.IdempotencyConflict) }

func isFault(out *x402.Outcome, code fault.Code) bool {
	return out != nil && out.Fault != nil && out.Fault.Code == code
}

// paymentOf returns the payment that an answer is about. If the receipt identifies a payment,
// paymentOf returns that payment. Otherwise it returns the first of the following payments
// that exists: the payment for which the process ran a lookup; the payment of the request, if
// it is paid; the owner of the purchase, if it is paid; the payment that the process claimed
// or sent last; the payment of the request.
func (w *world) paymentOf(p *process, out *x402.Outcome) *authorization {
	isPaid := func(a *authorization) bool { return a != nil && w.record(a) != nil && w.record(a).Paid() }
	owner := w.owner(p.payment.purchase)
	if out.Receipt != nil && out.Receipt.Success {
		if a := w.authorizationOf(out.Receipt.Transaction); a != nil {
			return a
		}
		// Without chain evidence, a payment can count as paid although its transaction is not
		// known. Then the receipt does not identify the payment. The owner of the purchase
		// does not identify it either, because the purchase may have another owner by now.
		// Therefore look for a paid payment of the purchase whose record has the same
		// transaction as the receipt. Begin with the payments that the process most likely
		// used.
		for _, b := range append([]*authorization{p.lastPayment, p.payment, owner}, w.authorizations...) {
			if isPaid(b) && b.purchase == p.payment.purchase && w.record(b).Receipt.Transaction == out.Receipt.Transaction {
				return b
			}
		}
	}
	switch {
	case p.lookups > 0:
		return p.lastPayment
	case isPaid(p.payment):
		return p.payment
	case isPaid(owner):
		return owner
	case p.lastPayment != nil:
		return p.lastPayment
	}
	return p.payment
}

// checkEnded checks the invariants of a request that has ended, whether or not its answer
// reaches the client before the gateway's timeout.
func (w *world) checkEnded(p *process, out *x402.Outcome) {
	// mustBeRecorded says that the settlement must be on record, because the process told the
	// payer that money moved. After a failed call of the store, the settlement may be missing,
	// except if the answer is settlement_uncertain. A process that lost its lease gives this
	// answer with "charged: true" only if the ledger has the settlement.
	a := w.paymentOf(p, out)
	r := w.record(a)
	mustBeRecorded := p.lastPayment != nil && isTrue(out.Payment.Charged) && (!p.storeFailed.Load() || isFault(out, fault.SettlementUncertain))
	w.noteViolations(map[string]bool{
		"a slot was not given back":                                   p.slotsHeld > 0,
		"an invocation outlived its deadline":                         !p.disturbed() && time.Since(p.begun) > invocationTimeout+time.Second,
		"money moved, the payer was told so, and it is not on record": mustBeRecorded && (r == nil || r.Receipt == nil),
		"an answer that is not on record": isAnswer(out) && !out.Replayed && !p.storeFailed.Load() &&
			(r == nil || r.State != ledger.Redeemed || a.lastWriter != p),
	})
	w.checkRefusals(p, out)
}

func (w *world) checkAnswer(p *process, out *x402.Outcome) {
	w.executePending()
	if out.Receipt != nil && out.Receipt.Success && out.Receipt.Transaction != "" && w.authorizationOf(out.Receipt.Transaction) == nil {
		w.noteViolation("a receipt for a transaction that nobody knows")
	}
	if p.header.forged {
		if isAnswer(out) || out.Receipt != nil || isTrue(out.Payment.Charged) && p.lastPayment != nil {
			w.noteViolation("a forged signature got an answer")
		}
		return
	}
	// If a payment was superseded before it was sent, it was never on the chain. A request
	// with this payment cannot be a copy from the chain.
	if r := w.record(p.payment); p.paymentIsPublic && r != nil && (r.State != ledger.Superseded || r.Sent) {
		w.noteEvent("a copy without a token")
		w.noteViolations(map[string]bool{"what is on the chain opened an answer": isAnswer(out) || p.lookups > 0 || out.Receipt != nil && out.Receipt.Success})
	}
	if p.kind == actorStranger && w.checkStranger(p, out) {
		return
	}
	w.checkName(p, out)
	if out.Fault != nil {
		w.noteViolations(map[string]bool{
			"an illegal transition or a corrupt record":                        errors.Is(out.Fault, ledger.ErrIllegal) || errors.Is(out.Fault, ledger.ErrCorrupt),
			"charged is not what the documents say: " + string(out.Fault.Code): !chargeAllows(x402.ChargeOf(out.Fault.Info()), out.Payment.Charged),
		})
	}
	switch {
	case isAnswer(out):
		w.checkPaidAnswer(p, out)
	case out.Fault.Info().Class == fault.Owed:
		w.checkOwed(p, out)
	default:
		w.checkOtherFault(p, out)
	}
	switch {
	case isTrue(out.Payment.Charged):
		w.checkCharged(p, out)
	case isFalse(out.Payment.Charged):
		w.noteUncharged(p, out)
	}
}

// madeElsewhere reports whether the payment was claimed at an endpoint other than the given
// one.
func (a *authorization) madeElsewhere(endpoint string) bool {
	return a.endpoint != "" && a.endpoint != endpoint
}

// mayBeCopy reports whether the process's request may be a copy: another request has put its
// payment on record, and the record has no retry token. Nothing then proves that the payer
// sent this request.
func (p *process) mayBeCopy() bool {
	return p.payment.token == "" && p.payment.purchase != "" && !p.claimedFirst
}

// checkStranger checks the answer to a stranger who copied a payment from public chain data.
// In two cases the stranger must get nothing: the record of the payment has a retry token, or
// the payment was already recorded as paid when the request began. In these cases
// checkStranger checks the answer and returns true. In all other cases anybody who has the
// authorization may repeat it. checkStranger then returns false, and the caller checks the
// answer as if the payer had sent the request.
func (w *world) checkStranger(p *process, out *x402.Outcome) bool {
	if p.payment.token == "" && !p.paidBefore {
		return false
	}
	if p.paidBefore {
		w.noteEvent("a stranger's copy turned away once paid")
	}
	w.noteViolations(map[string]bool{
		"a stranger's copy got another answer than the one for copies": !saysUsedUp(out) && !p.disturbed(),
		"a stranger's copy got something":                              isAnswer(out) || out.Receipt != nil || p.sends+p.lookups+p.writes > 0 || p.askedToVerify,
	})
	return true
}

func (w *world) checkPaidAnswer(p *process, out *x402.Outcome) {
	a := w.paymentOf(p, out)
	movedLongBefore := w.chainVisible && a.moved() && a.movedAt.Before(w.record(a).CreatedAt.Add(-10*time.Minute-w.clockSkew))
	w.noteViolations(map[string]bool{
		"an answer for another request":           !strings.Contains(string(out.Body), strconv.Quote(p.path)),
		"an answer, and not charged":              !isTrue(out.Payment.Charged),
		"worked for a replay":                     out.Replayed && p.lookups+p.attemptOn(p.payment).sends > 0,
		"an answer of another purchase":           a.purchase != p.payment.purchase,
		"an answer at another endpoint":           a.madeElsewhere(p.endpoint),
		"an answer for a transfer of long before": movedLongBefore,
		"an answer after a refund was begun":      a.refundBegun() && !p.storeFailed.Load(),
	})
	if a.cancelled && !a.moved() {
		// Without chain evidence, a payment that the payer cancelled can count as paid. The
		// seller accepts this loss.
		w.noteEvent("used in doubt counts as paid")
	}
	w.countLookup(p)
}

func (w *world) checkOwed(p *process, out *x402.Outcome) {
	a := w.paymentOf(p, out)
	w.noteViolations(map[string]bool{
		"owed, and not charged":              !isTrue(out.Payment.Charged),
		"owed at another endpoint":           a.madeElsewhere(p.endpoint),
		"used up before the lookups are had": !out.Payment.Retryable && (w.maxLookups == 0 || a.lookupsBegun < w.maxLookups),
	})
	w.countLookup(p)
	a.toldUsedUp = a.toldUsedUp || !out.Payment.Retryable
	if r := w.record(a); p.lookups > 0 && !p.disturbed() && a.lastWriter == p && r != nil {
		a.lastLookupCount, a.lastLookupEnd = r.Lookups, p.lookupEndedAt
	}
}

func (w *world) countLookup(p *process) {
	if p.lookups == 0 || p.disturbed() {
		return
	}
	if p.lastPayment.undisturbedLookups++; w.maxLookups > 0 && p.lastPayment.undisturbedLookups > w.maxLookups {
		w.noteViolation("more lookups than a payment buys")
	}
}

// checkOtherFault checks an outcome that is neither the answer that was paid for nor a fault
// of the class Owed, which promises that answer.
func (w *world) checkOtherFault(p *process, out *x402.Outcome) {
	switch code := out.Fault.Code; code {
	case fault.Overloaded, fault.LedgerUnavailable, fault.PaymentUnavailable, fault.PaymentInProgress, fault.IdempotencyConflict:
		if p.attemptOn(p.payment).sends+p.lookups > 0 {
			w.noteViolation("sent or looked up, and answered " + string(code))
		}
	}
	switch out.Fault.Code {
	case fault.PaymentInProgress:
		w.checkWaited(p)
	case fault.Overloaded:
		w.noteEvent("overloaded")
	case fault.IdempotencyConflict:
		w.checkKeyConflict(p, out)
	case fault.PaymentRequired:
		if saysUsedUp(out) && p.header.token != "" && p.payment.token == p.header.token {
			w.noteViolation("the payer was taken for a stranger")
		}
	}
}

// checkWaited checks a request that was answered with 409 because another payment of the
// purchase is in flight. The reference client does not retry after a 409. Therefore the
// process must have waited for the other payment until six seconds after the request began. It
// need not have waited that long if the record of the other payment changed, or if the process
// froze, sent a payment or had a failed call of the store.
func (w *world) checkWaited(p *process) {
	o := p.otherPayment
	if o == nil || o == p.payment || o.purchase != p.payment.purchase {
		return
	}
	r := w.record(o)
	if unchanged := r != nil && r.Version == p.otherVersion; unchanged && !p.disturbed() && p.sends == 0 && time.Since(p.begun) < 6*time.Second {
		w.noteViolation("did not wait for another payment of the purchase")
	}
}

// checkName checks the answer to a request whose authorization was already on record for a
// purchase other than the one that the request names. The process must refuse the request, and
// must write, send and look up nothing. If the retry token proves that the payer sent the
// request, and nothing else is wrong with the request, the answer must be a conflict of keys.
func (w *world) checkName(p *process, out *x402.Outcome) {
	a := p.payment
	if !p.recordedBefore || p.mayBeCopy() || a.purchase == p.purchaseKey(w) {
		return
	}
	if p.writes+p.sends+p.lookups > 0 || isAnswer(out) || out.Replayed {
		w.noteViolation("worked for an authorization under another name")
		return
	}
	r := w.record(a)
	proven := a.token != "" && a.token == p.header.token
	fits := w.deployAt.IsZero() && time.Until(a.validBefore) > 10*time.Second+w.clockSkew
	if proven && fits && r != nil && r.Request == p.path && !a.madeElsewhere(p.endpoint) && !p.disturbed() && !isKeyConflict(out) {
		w.noteViolation("another name for an authorization is not a conflict, but " + string(out.Fault.Code))
	}
}

// checkKeyConflict checks an answer with the code idempotency_conflict. This answer must have
// one of two causes: the payer used one key for two requests, or sent one authorization under
// two purchase names.
func (w *world) checkKeyConflict(p *process, out *x402.Outcome) {
	r := w.record(p.payment)
	if r == nil {
		w.noteViolation("a conflict of keys, and no record")
		return
	}
	o, otherName := w.owner(p.payment.purchase), p.payment.purchase != p.purchaseKey(w)
	if otherName {
		w.noteEvent("a conflict of names")
	}
	w.noteViolations(map[string]bool{
		"a conflict of keys, and retryable": out.Payment.Retryable,
		"a conflict of keys that is none": !otherName &&
			(!isKeyed(p.payment.purchase) || o == nil || w.record(o) != nil && w.record(o).Request == r.Request),
		"a conflict of keys, and charged": !otherName && !isFalse(out.Payment.Charged) && !(r.Doubt && out.Payment.Charged == nil),
	})
}

func (w *world) replayEnded(a *authorization) bool {
	r := w.record(a)
	return r != nil && r.State == ledger.Redeemed && time.Since(r.UpdatedAt) > 24*time.Hour-w.clockSkew
}

// unverified reports whether the process refused the payment of its request before it verified
// the signature. Somebody other than the payer may then have sent the request.
func (p *process) unverified(out *x402.Outcome) bool {
	return saysUsedUp(out) && p.attemptOn(p.payment).claimedAt.IsZero()
}

func (w *world) checkCharged(p *process, out *x402.Outcome) {
	a := w.paymentOf(p, out)
	if isFault(out, fault.PaymentInProgress) && out.Receipt == nil && p.otherPayment != nil {
		a = p.otherPayment
	}
	w.noteViolations(map[string]bool{
		"told that money moved, and it did not": !a.moved() && (w.chainVisible || !a.cancelled),
		"charged, and no receipt":               !p.mayBeCopy() && !p.unverified(out) && !isKeyConflict(out) && (out.Receipt == nil || !out.Receipt.Success),
	})
}

// noteUncharged notes when an answer told the payer that no money has moved. An answer with a
// failed PAYMENT-RESPONSE also promises that no money will move.
//
// The noted time is when the process wrote the refusal. If it wrote none, the noted time is
// when the process last read the record of the payment, or else when the process began. At the
// end of the schedule, a check fails if money was moved by an attempt that claimed the payment
// at or before the noted time. A later claim may move money, because the payer sent the
// authorization again.
func (w *world) noteUncharged(p *process, out *x402.Outcome) {
	a, at := p.payment, p.refusedAt
	if at.IsZero() {
		at = p.readAt
	}
	if at.IsZero() {
		at = p.begun
	}
	if w.replayEnded(a) || p.unverified(out) {
		return
	}
	if at.After(a.unchargedToldAt) {
		a.unchargedToldAt = at
	}
	if saysNothingMoved(out) && at.After(a.refusalToldAt) {
		a.refusalToldAt = at
	}
}
