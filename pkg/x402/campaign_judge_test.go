package x402_test

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

func isAnswer(out *x402.Outcome) bool {
	return out.Fault == nil || out.Fault.Info().Class == fault.Answer
}

// saysNo is the answer that lets a payer sign anew: nothing moved, and nothing
// will unless he sends the authorization again.
func saysNo(out *x402.Outcome) bool { return out.Receipt != nil && !out.Receipt.Success }

func isTrue(b *bool) bool  { return b != nil && *b }
func isFalse(b *bool) bool { return b != nil && !*b }

// usedUp is what everybody is told who sends what is on record and cannot show
// that he is its payer.
const usedUp = "authorization already used"

// unproven says that an answer is that.
func unproven(out *x402.Outcome) bool {
	return out.Status == 402 && out.Receipt == nil && out.Fault.Public() == usedUp
}

// about is the payment that an answer is about: the one that its receipt names,
// or else the last that the process had its hands on. The lock is held.
func (w *world) about(p *process, out *x402.Outcome) *authorization {
	if out.Receipt != nil && out.Receipt.Success {
		// Without a view of the chain, what counts as paid has no transaction.
		if a := w.pay(out.Receipt.Transaction); a != nil {
			return a
		}
		// Nor does such a one name the payment, which can have lost the purchase
		// since it was read: it is one whose record has that very receipt. Several
		// can have it; the process had its hands on the first of these.
		for _, b := range append([]*authorization{p.on, p.pay, w.owner(p.pay.purchase)}, w.pays...) {
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
	case p.looked > 0:
		return p.on
	case paid(p.pay):
		return p.pay
	case o != nil && paid(o):
		return o
	case p.on != nil:
		return p.on
	}
	return p.pay
}

// ended holds a request to what must be true once it is over, whether or not
// anybody hears its answer. The lock is held.
func (w *world) ended(p *process, out *x402.Outcome) {
	if p.slot == holds {
		w.complain("a slot was not given back")
	}
	if !p.froze && !p.faulty && time.Since(p.begun) > invocation+time.Second {
		w.complain("an invocation outlived its deadline")
	}
	// An attempt that says that money moved has written that down, if the
	// ledger let it; one that lost its lease says so only then.
	lost := out.Fault != nil && out.Fault.Code == fault.SettlementUncertain
	a := w.about(p, out)
	if p.on != nil && isTrue(out.Standing.Charged) && (!p.faulty || lost) {
		if r := w.record(a); r == nil || r.Receipt == nil {
			w.complain("money moved, the payer was told so, and it is not on record")
		}
	}
	if isAnswer(out) && !out.Replayed && !p.faulty {
		if r := w.record(a); r == nil || r.State != ledger.Redeemed || a.writer != p {
			w.complain("an answer that is not on record")
		}
	}
	if isTrue(out.Standing.Charged) && p.sent > 0 && p.looked == 0 {
		w.happened("settled too late for the lookup")
	}
}

// judge holds one answer that was heard to what must be true of every answer.
// The lock is held.
func (w *world) judge(p *process, out *x402.Outcome) {
	w.pass()
	if out.Receipt != nil && out.Receipt.Success && out.Receipt.Transaction != "" && w.pay(out.Receipt.Transaction) == nil {
		w.complain("a receipt for a transaction that nobody knows")
	}
	if p.signed.forged {
		if isAnswer(out) || out.Receipt != nil || isTrue(out.Standing.Charged) && p.on != nil {
			w.complain("a forged signature got an answer")
		}
		return
	}
	if p.kind == asStranger && w.strange(p, out) {
		return
	}
	if out.Fault != nil && (errors.Is(out.Fault, ledger.ErrIllegal) || errors.Is(out.Fault, ledger.ErrCorrupt)) {
		w.complain("an illegal transition or a corrupt record")
	}
	if out.Fault != nil && !x402.ChargeOf(out.Fault.Code).Allows(out.Standing.Charged) {
		w.complain("charged is not what the documents say: " + string(out.Fault.Code))
	}
	switch {
	case isAnswer(out):
		w.answered(p, out)
	case out.Fault.Info().Class == fault.Owed:
		w.owes(p, out)
	default:
		w.turnedAway(p, out)
	}
	switch {
	case isTrue(out.Standing.Charged):
		w.charged(p, out)
	case isFalse(out.Standing.Charged):
		w.uncharged(p, out)
	}
}

// strange is about a stranger's copy of what can be read on the chain. It opens
// nothing once its payment is known to be paid, or where the first claim brought
// a secret. Before that, a claim that came without any may be repeated by
// whoever has the authorization, and is judged like one: strange is false then.
// So are rows of the first version, which asked for nothing. The lock is held.
func (w *world) strange(p *process, out *x402.Outcome) bool {
	if p.pay.older || p.pay.proof == (ledger.Proof{}) && !p.known {
		return false
	}
	if p.known {
		w.happened("a stranger's copy turned away once paid")
	} else {
		w.happened("a stranger's copy turned away in doubt")
	}
	if !unproven(out) && !p.faulty && !p.froze {
		w.complain("a stranger is not told what all are told")
	}
	if isAnswer(out) || out.Receipt != nil || p.sent+p.looked+p.writes > 0 || p.verified {
		w.complain("a stranger's copy got something")
	}
	return true
}

// answered is about what was paid for.
func (w *world) answered(p *process, out *x402.Outcome) {
	if !strings.Contains(string(out.Body), strconv.Quote(p.path)) {
		w.complain("an answer for another request")
	}
	if !isTrue(out.Standing.Charged) {
		w.complain("an answer, and not charged")
	}
	if out.Replayed {
		w.happened("replayed")
		if p.looked+p.sentOf[p.pay] > 0 {
			w.complain("worked for a replay")
		}
		if out.Answered.IsZero() {
			w.complain("a replay without the time of the answer")
		}
	}
	a := w.about(p, out)
	if a.purchase != p.pay.purchase && !a.older && !p.pay.older {
		w.complain("an answer of another purchase")
	}
	if a != p.pay {
		w.happened("answered from another payment")
		w.notOver(p, a, out)
	}
	if r := w.record(a); w.rpc && a.moved() && a.movedAt.Before(r.CreatedAt.Add(-10*time.Minute-w.skew)) {
		w.complain("an answer for a transfer of long before")
	}
	if a.cancelled && !a.moved() {
		w.happened("used in doubt counts as paid") // a loss that is accepted without a view of the chain
	}
	w.lookedUp(p)
}

// notOver: a stored answer stands for other signatures for its time only. A
// payment that was superseded has it for the day that its own would have had.
func (w *world) notOver(p *process, a *authorization, out *x402.Outcome) {
	if !out.Replayed {
		return
	}
	r := w.record(p.pay)
	if r != nil && r.State == ledger.Superseded && p.claims[p.pay] == (claim{}) {
		w.happened("a superseded payment was answered")
		return
	}
	if r != nil && r.Doubt && r.Owner != "" && p.arrived.Before(out.Answered.Add(ledger.KeptFor)) {
		w.happened("a payment in doubt was answered once more")
		return
	}
	w.happened("another signature got the stored answer")
	if !p.arrived.Before(out.Answered.Add(w.replays(a.purchase))) {
		w.complain("an answer that was over got another payment's request")
	}
}

// owes is about an answer that is owed.
func (w *world) owes(p *process, out *x402.Outcome) {
	if !isTrue(out.Standing.Charged) {
		w.complain("owed, and not charged")
	}
	w.lookedUp(p)
	a := w.about(p, out)
	day := owedFor - 11*time.Minute - w.skew
	if !out.Standing.Retryable && a.begun < ledgerLookups && time.Since(a.movedAt) < day {
		w.complain("used up before five lookups and before a day")
	}
	a.spent = a.spent || !out.Standing.Retryable
	if r := w.record(a); p.looked > 0 && !p.froze && !p.faulty && a.writer == p && r != nil {
		a.owedN, a.owedAt = r.Lookups, p.lookEnded
	}
}

// What one payment buys (design §3): so many lookups, for so long.
const (
	ledgerLookups = 5
	owedFor       = 24 * time.Hour
)

// lookedUp counts lookups by attempts that nothing happened to.
func (w *world) lookedUp(p *process) {
	if p.looked == 0 || p.froze || p.faulty {
		return
	}
	if p.on.clean++; p.on.clean > ledgerLookups {
		w.complain("more than five lookups")
	}
}

// turnedAway is about everything else.
func (w *world) turnedAway(p *process, out *x402.Outcome) {
	switch out.Fault.Code {
	case fault.Overloaded, fault.LedgerUnavailable, fault.PaymentUnavailable, fault.PaymentInProgress, fault.IdempotencyConflict:
		if p.sentOf[p.pay]+p.looked > 0 {
			w.complain("sent or looked up, and answered " + string(out.Fault.Code))
		}
	default:
	}
	switch out.Fault.Code {
	case fault.PaymentInProgress:
		w.happened("in progress")
		w.waited(p)
	case fault.Overloaded:
		w.happened("overloaded")
	case fault.IdempotencyConflict:
		w.conflicts(p, out)
		return
	case fault.PaymentRequired:
		w.refused(p, out)
	default:
	}
	if retryable := out.Fault.Code != fault.PaymentRequired; out.Standing.Retryable != retryable {
		w.complain("retryable is wrong: " + string(out.Fault.Code))
	}
	if out.Standing.Retryable && out.Fault.Wait() == 0 {
		w.complain("retryable, and not told when: " + string(out.Fault.Code))
	}
}

// conflicts is about one key for two requests.
func (w *world) conflicts(p *process, out *x402.Outcome) {
	w.happened("a key for another request")
	o := w.owner(p.pay.purchase)
	r := w.record(p.pay)
	if r == nil {
		w.complain("a conflict of keys, and no record")
		return
	}
	if !keyed(p.pay.purchase) || out.Standing.Retryable || o == nil || w.record(o) != nil && w.record(o).Request == r.Request {
		w.complain("a conflict of keys that is none")
	}
	if doubt := r != nil && r.Doubt; !isFalse(out.Standing.Charged) && !(doubt && out.Standing.Charged == nil) {
		w.complain("a conflict of keys, and charged")
	}
}

// waited: a request that finds another payment of its purchase under way waits
// for it. The client of the reference does not come back after a 409. One that
// another request overtook while it waited need not begin anew.
func (w *world) waited(p *process) {
	o := p.awaited
	if o == nil || o == p.pay || o.purchase != p.pay.purchase {
		return
	}
	w.happened("waited for another payment")
	r := w.record(o)
	if unchanged := r != nil && r.Version == p.awaitedAs; unchanged && !p.froze && !p.faulty && p.sent == 0 && time.Since(p.begun) < 6*time.Second {
		w.complain("did not wait for another payment of the purchase")
	}
}

// refused is about a request that buys nothing, as far as it is no payer's.
func (w *world) refused(p *process, out *x402.Outcome) {
	switch {
	case p.sent > 0 && p.sentOf[p.pay] == 0:
		w.happened("another payment refused again")
	case unproven(out) && p.known && p.pay.proof == (ledger.Proof{}) && !p.pay.older:
		w.happened("turned away without a token once paid")
	case unproven(out) && p.signed.token != "" && p.pay.proof.Token == p.signed.token:
		w.complain("the payer was taken for a stranger")
	}
}

// stale says that an answer is no longer replayed. The lock is held.
func (w *world) stale(a *authorization) bool {
	r := w.record(a)
	return r != nil && r.State == ledger.Redeemed && time.Since(r.UpdatedAt) > 24*time.Hour-w.skew
}

// unvouched says that a payment was turned away on a signature that nobody
// vouched for: not the payer's, as far as anybody knew. The lock is held.
func (w *world) unvouched(p *process, out *x402.Outcome) bool {
	return out.Fault != nil && unproven(out) && p.claims[p.pay] == (claim{})
}

// charged is about a payer who is told that money moved.
func (w *world) charged(p *process, out *x402.Outcome) {
	a := w.about(p, out)
	if busy := out.Fault != nil && out.Fault.Code == fault.PaymentInProgress && out.Receipt == nil; busy && p.awaited != nil {
		a = p.awaited
	}
	if !a.moved() && (w.rpc || !a.cancelled) {
		w.complain("told that money moved, and it did not")
	}
	if !w.unvouched(p, out) && (out.Receipt == nil || !out.Receipt.Success) {
		w.complain("charged, and no receipt")
	}
}

// uncharged is about a payer who is told that no money moved, and, with a
// failed PAYMENT-RESPONSE, that none will. What our own settlements did since
// is judged in the end; whoever claimed after the verdict was sent by the payer.
func (w *world) uncharged(p *process, out *x402.Outcome) {
	a := p.pay
	at := p.refusedAt
	switch {
	case !at.IsZero():
	case !p.readAt.IsZero():
		at = p.readAt
	default:
		at = p.begun
	}
	if w.stale(a) || w.unvouched(p, out) {
		return
	}
	if at.After(a.falseAt) {
		a.falseAt = at
	}
	if !saysNo(out) {
		return
	}
	w.happened("told that nothing moved")
	if at.After(a.noAt) {
		a.noAt = at
	}
	byOther := a.moved() && !a.byUs && a.shownAt.Before(at)
	seen := !p.lookedAt.IsZero() && !a.shownAt.After(p.lookedAt)
	if w.rpc && !w.liar && w.skew == 0 && byOther && seen && !p.refusedAt.IsZero() && !strings.Contains(out.Fault.Public(), usedBefore) {
		w.complain("told that nothing moved after a third party's transfer")
	}
}
