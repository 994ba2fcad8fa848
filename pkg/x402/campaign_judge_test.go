package x402_test

import (
	"errors"
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

// ended holds a request to what must be true once it is over, whether or not
// anybody hears its answer. The lock is held.
func (w *planet) ended(p *process, out *x402.Outcome) {
	if p.slot == holds {
		w.complain("a slot was not given back")
	}
	if !p.froze && !p.faulty && time.Since(p.begun) > invocation+time.Second {
		w.complain("an invocation outlived its deadline")
	}
	// An attempt that says that money moved has written that down, if the
	// ledger let it; one that lost its lease says so only then.
	lost := out.Fault != nil && out.Fault.Code == fault.SettlementUncertain
	if p.claimed != nil && isTrue(out.Standing.Charged) && (!p.faulty || lost) {
		if r := w.record(p.pay); r == nil || r.Receipt == nil {
			w.complain("money moved, the payer was told so, and it is not on record")
		}
	}
	if r := w.record(p.pay); isAnswer(out) && !out.Replayed && !p.faulty && (r.State != ledger.Redeemed || p.pay.writer != p) {
		w.complain("an answer that is not on record")
	}
	if isTrue(out.Standing.Charged) && p.sent > 0 && p.looked == 0 {
		w.happened("settled too late for the lookup")
	}
}

// judge holds one answer that was heard to what must be true of every answer.
// The lock is held.
func (w *planet) judge(p *process, path string, out *x402.Outcome) {
	w.pass()
	if p.signed.forged {
		if isAnswer(out) || out.Receipt != nil || isTrue(out.Standing.Charged) && p.claimed != nil {
			w.complain("a forged signature got an answer")
		}
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
		w.answered(p, path, out)
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

// answered is about what was paid for.
func (w *planet) answered(p *process, path string, out *x402.Outcome) {
	if path != "GET /a" {
		w.complain("an answer for another request")
	}
	if !isTrue(out.Standing.Charged) {
		w.complain("an answer, and not charged")
	}
	if out.Replayed {
		w.happened("replayed")
		if p.looked+p.sent > 0 {
			w.complain("worked for a replay")
		}
	}
	if r := w.record(p.pay); w.rpc && p.pay.moved() && p.pay.movedAt.Before(r.CreatedAt.Add(-10*time.Minute-w.skew)) {
		w.complain("an answer for a transfer of long before")
	}
	if p.pay.cancelled && !p.pay.moved() {
		w.happened("used in doubt counts as paid") // a loss that is accepted without a view of the chain
	}
	w.lookedUp(p)
}

// owes is about an answer that is owed.
func (w *planet) owes(p *process, out *x402.Outcome) {
	if !isTrue(out.Standing.Charged) {
		w.complain("owed, and not charged")
	}
	w.lookedUp(p)
	a := p.pay
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
func (w *planet) lookedUp(p *process) {
	if p.looked == 0 || p.froze || p.faulty {
		return
	}
	if p.pay.clean++; p.pay.clean > ledgerLookups {
		w.complain("more than five lookups")
	}
}

// turnedAway is about everything else.
func (w *planet) turnedAway(p *process, out *x402.Outcome) {
	switch out.Fault.Code {
	case fault.Overloaded, fault.LedgerUnavailable, fault.PaymentUnavailable, fault.PaymentInProgress, fault.PaymentIdentifierConflict:
		if p.sent+p.looked > 0 {
			w.complain("sent or looked up, and answered " + string(out.Fault.Code))
		}
	default:
	}
	switch out.Fault.Code {
	case fault.PaymentInProgress:
		w.happened("in progress")
	case fault.Overloaded:
		w.happened("overloaded")
	case fault.PaymentIdentifierConflict:
		w.happened("identifier conflict")
		if !w.named || out.Standing.Retryable {
			w.complain("a conflict of identifiers that is none")
		}
		return
	default:
	}
	if retryable := out.Fault.Code != fault.PaymentRequired; out.Standing.Retryable != retryable {
		w.complain("retryable is wrong: " + string(out.Fault.Code))
	}
	if out.Standing.Retryable && out.Fault.Wait() == 0 {
		w.complain("retryable, and not told when: " + string(out.Fault.Code))
	}
}

// stale says that an answer is no longer replayed. The lock is held.
func (w *planet) stale(a *authorization) bool {
	r := w.record(a)
	return r != nil && r.State == ledger.Redeemed && time.Since(r.UpdatedAt) > 24*time.Hour-w.skew
}

// unvouched says that a payment was turned away on a signature that nobody
// vouched for: not the payer's, as far as anybody knew. The lock is held.
func (w *planet) unvouched(p *process, out *x402.Outcome) bool {
	return !w.own && p.claimed == nil && !p.vouched && out.Fault.Code == fault.PaymentRequired
}

// charged is about a payer who is told that money moved.
func (w *planet) charged(p *process, out *x402.Outcome) {
	a := p.pay
	if !a.moved() && (w.rpc || !a.cancelled) {
		w.complain("told that money moved, and it did not")
	}
	if unknown := p.verified && p.claimed == nil || out.Fault != nil && w.unvouched(p, out); !unknown && (out.Receipt == nil || !out.Receipt.Success) {
		w.complain("charged, and no receipt")
	}
}

// uncharged is about a payer who is told that no money moved, and, with a
// failed PAYMENT-RESPONSE, that none will. What our own settlements did since
// is judged in the end; whoever claimed after the verdict was sent by the payer.
func (w *planet) uncharged(p *process, out *x402.Outcome) {
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
	seen := p.lookedAt.IsZero() || !a.shownAt.After(p.lookedAt)
	if w.rpc && !w.liar && w.skew == 0 && byOther && seen && !p.refusedAt.IsZero() && !strings.Contains(out.Fault.Public(), usedBefore) {
		w.complain("told that nothing moved after a third party's transfer")
	}
}
