package x402

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// Time budgets of a settlement where there is a fallback. Together they are what
// the bundles, the operations with the longest lookups, leave to a settlement.
const (
	primaryBudget  = 6 * time.Second // for the primary, its one resend included
	firstBudget    = 4 * time.Second // the most that its first answer is waited for
	leastResend    = time.Second     // the least with which a request is sent again
	chainBudget    = 2 * time.Second // for the chain, before the fallback is asked in doubt
	fallbackBudget = 5 * time.Second // for the fallback, checkBudget included
	checkBudget    = time.Second     // for checking on the chain what the fallback says in doubt
	// checkPause is between two looks at a chain that does not have yet what the
	// fallback says that it settled: a node can be a block behind.
	checkPause    = 300 * time.Millisecond
	primaryVerify = verifyBudget / 2 // for the primary
)

// Fallback is a second facilitator, beside the Gate's own, and what this process
// knows of how the two are doing. All Gates of a process share it. All fields are
// required.
//
// That one authorization is sent to two facilitators never moves money twice,
// because the token lets it execute once. What can go wrong is how their answers
// are read. So the fallback is asked at once only when the primary was provably
// not reached, or turned the request away for a reason that its operator has to
// deal with. In doubt it is asked after the primary was sent the same once more
// and the chain did not decide, and then only its success counts, checked on the
// chain where there is one. It is never asked after a refusal about the payer, also
// when that is on record from an earlier attempt: then only the facilitator that
// refused is asked again.
type Fallback struct {
	Facilitator Facilitator
	// Primary names the Gate's own facilitator and Name this one, in records and
	// logs. They must differ, and stay what they are from one deployment to the
	// next.
	Primary, Name string
	Now           func() time.Time

	primary, second breaker
}

// source is one of two facilitators.
type source struct {
	Facilitator
	name     string
	fallback bool
	breaker  *breaker
}

// Ask is the reply of one facilitator of two.
type Ask struct {
	Facilitator string // its name in Fallback
	Fallback    bool   // it is the fallback
	Class       string // as Class.String has it
	Reason      string // that of the Settlement
	Took        time.Duration
}

// verification is what the primary says about the payment's signature, or the fallback
// where the primary gave no verdict. A reason about the payer is final.
func (a *attempt) verification(ctx context.Context) Verification {
	ctx, cancel := context.WithTimeout(ctx, verifyBudget)
	defer cancel()
	payload := a.request.Offer.payload(a.payment.exact(), a.claim.Terms)
	primary, f := a.gate.Facilitator, a.gate.Fallback
	switch {
	case f == nil || !f.second.admits(f.Now(), false):
		return primary.Verify(ctx, payload, a.terms)
	case !f.primary.admits(f.Now(), false):
		return f.Facilitator.Verify(ctx, payload, a.terms)
	}
	first, stop := context.WithTimeout(ctx, primaryVerify)
	defer stop()
	v := primary.Verify(first, payload, a.terms)
	if v.Fault != nil && !v.AboutPayer {
		if other := f.Facilitator.Verify(ctx, payload, a.terms); other.Fault == nil {
			return other
		}
	}
	return v
}

// settleWithFallback takes a payment to the primary and, where the rules let it, to
// the fallback. One that refused it before is asked alone, with the whole budget.
func (a *attempt) settleWithFallback(ctx context.Context, h *ledger.Hold, t *attempted, budget time.Duration) {
	f, r := a.gate.Fallback, h.Record()
	primary := source{a.gate.Facilitator, f.Primary, false, &f.primary}
	second := source{f.Facilitator, f.Name, true, &f.second}
	if r.RefusedBy == "" && r.Refusals == 0 {
		t.Settlement = a.ask(ctx, h, primary, firstBudget, min(budget, primaryBudget))
		pin(h, primary, t.Settlement)
		a.askChain(ctx, h, t, chainBudget)
		if !t.decided() && !t.AboutPayer && (t.Class == Unknown || t.Class == NotSent || t.Class == TurnedAway) {
			a.askSecond(ctx, h, t, second, t.Class == Unknown || t.doubt == inDoubt)
		}
		return
	}
	alone := primary // also where it refused before there was a fallback, without a name
	if r.RefusedBy == second.name {
		alone = second
	}
	t.Settlement = a.ask(ctx, h, alone, budget, budget)
	pin(h, alone, t.Settlement)
	if t.Class == Moved && t.doubt == inDoubt && alone.fallback && a.gate.Evidence != nil {
		t.Class = Unknown
		a.checkFallback(ctx, h, t, true)
		return
	}
	a.askChain(ctx, h, t, evidenceBudget)
}

// askSecond asks the fallback. Without doubt it stands in for a primary that did nothing
// with the payment; if it does nothing either, the answer is the primary's. In doubt, its
// success counts if the chain confirms it or cannot be asked. Anything else that it says
// leaves the doubt as it was, and is not pinned to the payment.
func (a *attempt) askSecond(ctx context.Context, h *ledger.Hold, t *attempted, second source, doubtful bool) {
	budget := min(fallbackBudget, a.spare())
	if doubtful && a.gate.Evidence != nil {
		budget -= checkBudget
	}
	if budget < leastSettle || !a.executable(h.Record()) {
		return
	}
	s := a.ask(ctx, h, second, budget, budget)
	t.Cause = errors.Join(s.Cause, t.Cause)
	s.Cause = t.Cause
	switch {
	case doubtful && s.Class == Moved && a.gate.Evidence == nil:
		t.Settlement = s
	case s.Class == NotSent:
	case doubtful:
		t.Class, t.Transaction = Unknown, cmp.Or(s.Transaction, t.Transaction)
		a.checkFallback(ctx, h, t, s.Class == Moved)
	default:
		pin(h, second, s)
		if s.Class == used && t.Class == TurnedAway && t.doubt == noDoubt {
			t.doubt = sentBefore // to the primary, by this attempt
		}
		if s.Class != TurnedAway || t.Class != TurnedAway || s.AboutPayer {
			t.Settlement = s
			a.askChain(ctx, h, t, evidenceBudget)
		}
	}
}

// checkFallback looks at the chain after the fallback was asked in doubt, again and
// again while it should have the payment and does not.
func (a *attempt) checkFallback(ctx context.Context, h *ledger.Hold, t *attempted, moved bool) {
	until := a.gate.Now().Add(min(a.spare(), chainBudget))
	for {
		t.finding = a.find(ctx, h.Record(), t.Settlement, until.Sub(a.gate.Now()))
		if t.decided() || !moved || t.finding.Verdict == noNode || !a.pause(ctx, checkPause, until.Add(-leastEvidence)) {
			t.Cause = errors.Join(t.Cause, t.finding.Cause)
			return
		}
	}
}

// ask has the record name one facilitator of two, and then sends it the payment, within a
// budget. Where first is less than the budget and the first reply leaves doubt, the same
// is sent once more. Nothing but success clears that doubt.
func (a *attempt) ask(ctx context.Context, h *ledger.Hold, f source, first, budget time.Duration) Settlement {
	end := a.gate.Now().Add(budget)
	left := func() time.Duration { return end.Sub(a.gate.Now()) }
	unasked := func(code fault.Code, reason string, cause error) Settlement {
		return a.asked(f, Settlement{Class: NotSent, Code: code, Reason: reason, Cause: cause}, 0)
	}
	if !f.breaker.admits(a.gate.Now(), true) {
		err := errors.New("the facilitator " + f.name + " is not asked for a while after several failures")
		return unasked(fault.FacilitatorUnavailable, "paused", err)
	}
	if f.fallback { // the claim has named the primary
		if err := h.Ask(withoutDeadline(ctx), f.name); err != nil {
			return unasked(fault.LedgerUnavailable, "not recorded", err)
		}
	}
	if left() < leastResend {
		return unasked(fault.PaymentUnavailable, "no time left to settle", nil)
	}
	send := func(budget time.Duration) Settlement {
		begun := a.gate.Now()
		s := a.send(ctx, h.Record(), f, budget)
		return a.asked(f, s, a.since(begun))
	}
	s := send(min(first, left()))
	if first < budget && s.Class == Unknown && s.Transaction == "" && !s.AboutPayer && left() >= leastResend && a.executable(h.Record()) {
		s = resent(s, send(left()))
	}
	f.breaker.leave(a.gate.Now(), s, a.claim.Recovered)
	return s
}

// asked notes the reply of one facilitator for the log, and returns it.
func (a *attempt) asked(f source, s Settlement, took time.Duration) Settlement {
	if s.Class != notResent {
		a.trace.Asked = append(a.trace.Asked, Ask{f.name, f.fallback, s.Class.String(), s.Reason, took})
	}
	return s
}

// pin has the record name a facilitator that refused the payment for a reason about
// the payer: only that one is asked about it from then on.
func pin(h *ledger.Hold, f source, s Settlement) {
	if s.Class.refused() || s.AboutPayer {
		h.RefusedBy(f.name)
	}
}

// resent joins the answer of a request that left doubt and of the same request
// sent again.
func resent(first, again Settlement) Settlement {
	if again.Class == Moved {
		return again
	}
	first.AboutPayer = again.AboutPayer || again.Class.refused()
	first.NoVerdict = first.NoVerdict && (again.NoVerdict || operatorsFault(again))
	first.Transaction = again.Transaction
	first.Cause = errors.Join(first.Cause, again.Cause)
	return first
}

// Bounds of a breaker: how many payments in a row must meet a time-out or a fault of the
// facilitator's operator before the facilitator is not asked, and for how long it is not.
const (
	breakerFailures = 5
	breakerPause    = 30 * time.Second
)

// breaker keeps payments away from a facilitator that is down, so that not every payment
// has to wait for it. Each process has its own.
type breaker struct {
	mu       sync.Mutex
	failures int       // in a row
	until    time.Time // when the next payment may try
}

// admits says whether a payment may be sent to the facilitator now. enters says that the
// caller sends it at once: while the breaker is open one payment may enter in each
// pause, and others wait for its outcome, or for the next pause if it has none.
func (b *breaker) admits(now time.Time, enters bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.failures < breakerFailures {
		return true
	}
	admits := !now.Before(b.until)
	if admits && enters {
		b.until = now.Add(breakerPause)
	}
	return admits
}

// leave counts the reply to a payment that entered. A time-out does not count if the
// signer was not recovered: the contract of its wallet can cause that.
func (b *breaker) leave(now time.Time, s Settlement, recovered bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case s.Class == notResent:
	case !operatorsFault(s):
		b.failures = 0
	case s.Class != Unknown || recovered:
		b.failures++
		b.until = now.Add(breakerPause)
	}
}

// operatorsFault says that a facilitator is down or misconfigured. It is false for
// everything that a payer can cause: otherwise a payer could open the breaker for all.
func operatorsFault(s Settlement) bool {
	switch s.Class { //nolint:exhaustive // what else a facilitator replies is about the payer
	case NotSent:
		return s.Code != fault.PaymentUnavailable // the payment is what could not be sent
	case TurnedAway:
		return !s.AboutPayer
	case Unknown:
		return s.NoVerdict
	}
	return false
}
