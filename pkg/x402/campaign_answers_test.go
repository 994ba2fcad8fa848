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

func isAnswer(out *x402.Outcome) bool {
	return out.Fault == nil || out.Fault.Info().Class == fault.Answer || isSilence(out)
}

// isSilence says that an answer is the silence of the target in the last lookup.
func isSilence(out *x402.Outcome) bool {
	return out.Fault != nil && out.Fault.IsSilence() && !out.Payment.Retryable && !strings.Contains(out.Fault.Public(), "refund")
}

// saysNothingMoved says that an answer has a failed PAYMENT-RESPONSE, after which a
// payer may sign again: nothing moved, and nothing will unless the same
// authorization is sent once more.
func saysNothingMoved(out *x402.Outcome) bool { return out.Receipt != nil && !out.Receipt.Success }

// allows says whether an answer may say this of what was charged.
func allows(c x402.Charge, charged *bool) bool {
	return c.Unknown && charged == nil || c.Yes && isTrue(charged) || c.No && isFalse(charged)
}

func isTrue(b *bool) bool  { return b != nil && *b }
func isFalse(b *bool) bool { return b != nil && !*b }

// usedUpMessage is the answer to a copy of an authorization that is on record,
// without proof of being its payer.
const usedUpMessage = "authorization already used: sign a new one for the same request, with the same Idempotency-Key if it had one; an answer that is owed, or was given a moment ago, comes without another charge"

// saysUsedUp says whether an answer is usedUpMessage.
func saysUsedUp(out *x402.Outcome) bool {
	return out.Status == 402 && out.Receipt == nil && out.Fault.Public() == usedUpMessage
}

// paymentOf is the payment that an answer is about: the one that its receipt names,
// or else the last that the process claimed or sent. The lock is held.
func (w *world) paymentOf(p *process, out *x402.Outcome) *authorization {
	if out.Receipt != nil && out.Receipt.Success {
		// Without chain evidence, a payment can count as paid without a transaction.
		if a := w.authorizationOf(out.Receipt.Transaction); a != nil {
			return a
		}
		// A receipt without a transaction does not identify the payment, and the
		// payment can have lost the purchase since it was read. It is the first of
		// these whose record has this receipt, in the order in which the process is
		// likely to have used them.
		for _, b := range append([]*authorization{p.current, p.pay, w.owner(p.pay.purchase)}, w.authorizations...) {
			if b == nil || b.purchase != p.pay.purchase {
				continue
			}
			if r := w.record(b); r != nil && r.Paid() && r.Receipt.Transaction == out.Receipt.Transaction {
				return b
			}
		}
	}
	paid := func(a *authorization) bool {
		r := w.record(a)
		return r != nil && r.Paid()
	}
	switch o := w.owner(p.pay.purchase); {
	case p.lookups > 0:
		return p.current
	case paid(p.pay):
		return p.pay
	case o != nil && paid(o):
		return o
	case p.current != nil:
		return p.current
	}
	return p.pay
}

// checkEnded checks the invariants of a request that has ended, whether or not its
// answer arrives. The lock is held.
func (w *world) checkEnded(p *process, out *x402.Outcome) {
	if p.slots > 0 {
		w.violated("a slot was not given back")
	}
	if !p.disturbed() && time.Since(p.begun) > invocation+time.Second {
		w.violated("an invocation outlived its deadline")
	}
	// An attempt that reports that money moved has recorded it, unless the store
	// failed. One that lost its lease reports it only if it is on record.
	lost := out.Fault != nil && out.Fault.Code == fault.SettlementUncertain
	a := w.paymentOf(p, out)
	if p.current != nil && isTrue(out.Payment.Charged) && (!p.faulty.Load() || lost) {
		if r := w.record(a); r == nil || r.Receipt == nil {
			w.violated("money moved, the payer was told so, and it is not on record")
		}
	}
	if isAnswer(out) && !out.Replayed && !p.faulty.Load() {
		if r := w.record(a); r == nil || r.State != ledger.Redeemed || a.lastWriter != p {
			w.violated("an answer that is not on record")
		}
	}
	w.checkHeard(p, out)
}

// checkAnswer checks the invariants of an answer that arrived. The lock is held.
func (w *world) checkAnswer(p *process, out *x402.Outcome) {
	w.executePending()
	if out.Receipt != nil && out.Receipt.Success && out.Receipt.Transaction != "" && w.authorizationOf(out.Receipt.Transaction) == nil {
		w.violated("a receipt for a transaction that nobody knows")
	}
	if p.signed.forged {
		if isAnswer(out) || out.Receipt != nil || isTrue(out.Payment.Charged) && p.current != nil {
			w.violated("a forged signature got an answer")
		}
		return
	}
	if p.kind == asStranger && w.checkStranger(p, out) {
		return
	}
	if out.Fault != nil && (errors.Is(out.Fault, ledger.ErrIllegal) || errors.Is(out.Fault, ledger.ErrCorrupt)) {
		w.violated("an illegal transition or a corrupt record")
	}
	w.checkName(p, out)
	if out.Fault != nil && !allows(x402.ChargeOf(out.Fault.Info()), out.Payment.Charged) {
		w.violated("charged is not what the documents say: " + string(out.Fault.Code))
	}
	switch {
	case isAnswer(out):
		w.checkPaidAnswer(p, out)
	case out.Fault.Info().Class == fault.Owed:
		w.checkOwed(p, out)
	default:
		w.checkOther(p, out)
	}
	switch {
	case isTrue(out.Payment.Charged):
		w.checkCharged(p, out)
	case isFalse(out.Payment.Charged):
		w.checkUncharged(p, out)
	}
}

// checkStranger checks the answer to a stranger's copy of what can be read on the
// chain. Such a copy gets nothing when the payment was recorded as paid, or when
// its first claim recorded a token. Otherwise anybody who has the authorization may
// repeat it: the result is then false, and the answer is checked like one to the
// payer. The lock is held.
func (w *world) checkStranger(p *process, out *x402.Outcome) bool {
	if p.pay.token == "" && !p.paidBefore {
		return false
	}
	if p.paidBefore {
		w.observed("a stranger's copy turned away once paid")
	}
	if !saysUsedUp(out) && !p.disturbed() {
		w.violated("a stranger's copy got another answer than the one for copies")
	}
	if isAnswer(out) || out.Receipt != nil || p.sent+p.lookups+p.writes > 0 || p.verified {
		w.violated("a stranger's copy got something")
	}
	return true
}

// checkPaidAnswer checks an answer that was paid for.
func (w *world) checkPaidAnswer(p *process, out *x402.Outcome) {
	if !strings.Contains(string(out.Body), strconv.Quote(p.path)) {
		w.violated("an answer for another request")
	}
	if !isTrue(out.Payment.Charged) {
		w.violated("an answer, and not charged")
	}
	if out.Replayed {
		if p.lookups+p.sends[p.pay] > 0 {
			w.violated("worked for a replay")
		}
	}
	a := w.paymentOf(p, out)
	if a.purchase != p.pay.purchase {
		w.violated("an answer of another purchase")
	}
	if r := w.record(a); w.chainVisible && a.moved() && a.movedAt.Before(r.CreatedAt.Add(-10*time.Minute-w.clockSkew)) {
		w.violated("an answer for a transfer of long before")
	}
	if a.cancelled && !a.moved() {
		w.observed("used in doubt counts as paid") // an accepted loss where there is no chain evidence
	}
	w.countLookup(p)
}

// checkOwed checks the reply that an answer is still owed.
func (w *world) checkOwed(p *process, out *x402.Outcome) {
	if !isTrue(out.Payment.Charged) {
		w.violated("owed, and not charged")
	}
	w.countLookup(p)
	a := w.paymentOf(p, out)
	day := owedFor - 11*time.Minute - w.clockSkew
	if !out.Payment.Retryable && a.lookupsBegun < lookupsPerPayment && time.Since(a.movedAt) < day {
		w.violated("used up before five lookups and before a day")
	}
	a.toldUsedUp = a.toldUsedUp || !out.Payment.Retryable
	if r := w.record(a); p.lookups > 0 && !p.disturbed() && a.lastWriter == p && r != nil {
		a.lastLookupCount, a.lastLookupEnd = r.Lookups, p.lookEnded
	}
}

// One payment buys at most this many lookups, within this time.
const (
	lookupsPerPayment = 5
	// lookupsCutOff is how many can end with their process, or seem to by another clock,
	// and use none up.
	lookupsCutOff = 3
	owedFor       = 24 * time.Hour
)

// countLookup counts lookups by attempts that had no fault.
func (w *world) countLookup(p *process) {
	if p.lookups == 0 || p.disturbed() {
		return
	}
	if p.current.undisturbedLookups++; p.current.undisturbedLookups > lookupsPerPayment+lookupsCutOff {
		w.violated("more lookups than a payment buys")
	}
}

// checkOther checks all other answers: those without the paid answer that owe none.
func (w *world) checkOther(p *process, out *x402.Outcome) {
	switch out.Fault.Code {
	case fault.Overloaded, fault.LedgerUnavailable, fault.PaymentUnavailable, fault.PaymentInProgress, fault.IdempotencyConflict:
		if p.sends[p.pay]+p.lookups > 0 {
			w.violated("sent or looked up, and answered " + string(out.Fault.Code))
		}
	}
	switch out.Fault.Code {
	case fault.PaymentInProgress:
		w.checkWaited(p)
	case fault.Overloaded:
		w.observed("overloaded")
	case fault.IdempotencyConflict:
		w.checkKeyConflict(p, out)
		return
	case fault.PaymentRequired:
		if saysUsedUp(out) && p.signed.token != "" && p.pay.token == p.signed.token {
			w.violated("the payer was taken for a stranger")
		}
	}
}

// checkWaited checks that a request which finds another payment of its purchase in
// flight waits for it before it answers 409: the reference client does not retry
// after that. If the other record has changed meanwhile, it need not wait again.
func (w *world) checkWaited(p *process) {
	o := p.otherRead
	if o == nil || o == p.pay || o.purchase != p.pay.purchase {
		return
	}
	r := w.record(o)
	if unchanged := r != nil && r.Version == p.otherVersion; unchanged && !p.disturbed() && p.sent == 0 && time.Since(p.begun) < 6*time.Second {
		w.violated("did not wait for another payment of the purchase")
	}
}

// replayEnded says that an answer is no longer replayed. The lock is held.
func (w *world) replayEnded(a *authorization) bool {
	r := w.record(a)
	return r != nil && r.State == ledger.Redeemed && time.Since(r.UpdatedAt) > 24*time.Hour-w.clockSkew
}

// signatureUnverified says that a payment was refused before its signature was
// verified, so that the request may not be the payer's. The lock is held.
func (w *world) signatureUnverified(p *process, out *x402.Outcome) bool {
	return out.Fault != nil && saysUsedUp(out) && p.claims[p.pay].IsZero()
}

// checkCharged checks an answer with "charged": true.
func (w *world) checkCharged(p *process, out *x402.Outcome) {
	a := w.paymentOf(p, out)
	if busy := out.Fault != nil && out.Fault.Code == fault.PaymentInProgress && out.Receipt == nil; busy && p.otherRead != nil {
		a = p.otherRead
	}
	if !a.moved() && (w.chainVisible || !a.cancelled) {
		w.violated("told that money moved, and it did not")
	}
	if !w.signatureUnverified(p, out) && !isKeyConflict(out) && (out.Receipt == nil || !out.Receipt.Success) {
		w.violated("charged, and no receipt")
	}
}

// checkUncharged remembers when a payer was told that no money moved and, with a
// failed PAYMENT-RESPONSE, that none will. Whether a settlement moved it
// nevertheless is checked at the end of the schedule. Claims after the verdict are
// no violation: the payer sent the authorization again.
func (w *world) checkUncharged(p *process, out *x402.Outcome) {
	a := p.pay
	at := p.refusedAt
	switch {
	case !at.IsZero():
	case !p.readAt.IsZero():
		at = p.readAt
	default:
		at = p.begun
	}
	if w.replayEnded(a) || w.signatureUnverified(p, out) {
		return
	}
	if at.After(a.unchargedToldAt) {
		a.unchargedToldAt = at
	}
	if !saysNothingMoved(out) {
		return
	}
	if at.After(a.refusalToldAt) {
		a.refusalToldAt = at
	}
}
