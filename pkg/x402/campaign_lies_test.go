package x402_test

import (
	"context"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
)

// outage is a lasting fault of the primary in a schedule, besides single faults.
type outage int

const (
	noOutage         outage = iota
	unreachable             // connections fail
	rejecting               // it answers 401 to every request
	hanging                 // it never answers and does not settle
	hangingButPaying        // it never answers, but settles
	outages
)

// outage is the answer of a facilitator with an outage, which it has most of the
// time while there are faults. The fallback has none, but in some schedules it lies
// about payments that are in doubt.
func (p *process) outage(ctx context.Context, a *authorization, by string) (x402.Settlement, bool) {
	w := p.w
	if !w.fallback || !p.drawFault(70) {
		return x402.Settlement{}, false
	}
	if by == primaryName && (w.primaryOutage == hanging || w.primaryOutage == hangingButPaying) {
		<-ctx.Done()
		return p.hangUp(a, w.primaryOutage == hanging, p.drawDuration(20*time.Second)), true
	}
	which := p.drawDuration(3)
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case by == fallbackName && w.fallbackLies && p.requestsTo[a][primaryName] > 0 && p.inDoubt(a):
		return p.lieInDoubt(a, int(which)), true
	case by == fallbackName:
	case w.primaryOutage == unreachable:
		a.possibleSends--
		return unreached(), true
	case w.primaryOutage == rejecting:
		return turned(), true
	}
	return x402.Settlement{}, false
}

// lieInDoubt is a false word of the fallback about a payment that the primary may
// have been sent, without settling it: that it has, where the chain can contradict
// that, or that it cannot. The lock is held.
func (p *process) lieInDoubt(a *authorization, which int) x402.Settlement {
	w := p.w
	switch {
	case which == 1 && w.chainVisible:
		w.observed("the fallback reported a success that was none")
		return x402.Settlement{Class: x402.Moved, Transaction: a.tx}
	case which == 2:
		w.observed("the fallback refused in doubt")
		return declined()
	}
	return usedNonce()
}

// inDoubt says whether this process must assume that a payment may have been made.
// The lock is held.
func (p *process) inDoubt(a *authorization) bool {
	class, asked := p.lastClass[a][primaryName]
	return p.lastWrites[a].doubt || asked && class == x402.Unknown
}

// lies are how the primary lies about each authorization, without faults too: so
// many true answers, and then so many times that the balance is insufficient,
// although it settles, or has settled. After that it tells the truth.
type lies struct{ after, times int }

// to says whether a request is lied to, by its number.
func (l lies) to(n int) bool { return n >= l.after && n < l.after+l.times }

// lie is the primary's answer where it lies.
func (p *process) lie(a *authorization, by string) (x402.Settlement, bool) {
	w := p.w
	if w.lies.times == 0 || by != primaryName {
		return x402.Settlement{}, false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.executePending()
	n, now := a.reached, w.chainNow()
	a.reached++
	if !w.lies.to(n) || !a.used && !now.Add(6*time.Second).Before(a.validBefore) || a.cancelled {
		return x402.Settlement{}, false
	}
	if !a.used {
		a.movedAfterRefusal = true
		w.execute(a, now, p.claims[a], true)
	}
	if n == w.lies.after && !a.movedAfterRefusal {
		w.observed("lied after the truth")
	}
	return declined(), true
}

// firstLie says whether this process sent the authorization first, to a facilitator
// that settled it and refused it. This one refusal stands until reconcile finds the
// transfer, because a first refusal is not held against the chain. The lock is held.
func (p *process) firstLie(a *authorization) bool {
	_, refused := p.heard[a]
	return refused && a.movedAfterRefusal && !p.sentBefore[a]
}

// checkHeard checks what a process has made of a refusal. The lock is held.
func (w *world) checkHeard(p *process, out *x402.Outcome) {
	for a, s := range p.heard {
		r := w.record(a)
		again := p.sentBefore[a] || p.lastClass[a][primaryName] == x402.TurnedAway
		verdict, asked := p.consulted[a]
		switch told := saysNothingMoved(out); {
		case !again || r == nil:
		case s.NonceUsed && a.moved() && a.byUs && told:
			w.violated("refused a payment that has moved, of which the facilitator says that it is used")
		case s.NonceUsed && !w.chainVisible && !p.faulty.Load() && !r.Paid():
			w.violated("what the facilitator calls used was sent before, and is not on record as paid")
		case s.NonceUsed || s.Expired || !told || !p.sentBefore[a] || !w.chainVisible:
		case !asked:
			w.violated("refused again, and the chain was not asked")
		case verdict == x402.CannotTell:
			w.violated("refused again, and the chain could not tell")
		}
	}
}

// asked says whether a process has asked the chain about a payment. The lock is held.
func (p *process) asked(a *authorization) bool {
	_, asked := p.consulted[a]
	return asked
}
