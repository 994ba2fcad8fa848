package x402_test

import (
	"context"
	"slices"
	"time"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

// fallbackFacilitator is the second facilitator as a process reaches it, on the
// same chain.
type fallbackFacilitator struct{ *process }

func (s fallbackFacilitator) Settle(ctx context.Context, pay x402.Payload, r x402.Requirements) x402.Settlement {
	return s.settle(ctx, pay, r, fallbackName)
}

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
// time while there are faults. The fallback has none, but with falseSuccess it
// claims to have settled a payment that is in doubt.
func (p *process) outage(ctx context.Context, a *authorization, by string) (x402.Settlement, bool) {
	w := p.w
	if !w.fallback || p.kind == asFirstVersion || !p.drawFault(70) {
		return x402.Settlement{}, false
	}
	out := w.primaryOutage
	if by == fallbackName {
		if out = noOutage; w.falseSuccess && p.inDoubt(a) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.observed("the fallback reported a success that was none")
			return x402.Settlement{Class: x402.Moved, Transaction: a.tx}, true
		}
	}
	switch delay := p.drawDuration(20 * time.Second); out {
	case unreachable:
		w.mu.Lock()
		a.possibleSends--
		w.mu.Unlock()
		return x402.Settlement{Class: x402.NotSent, Code: fault.FacilitatorUnavailable, Reason: "connect_failed"}, true
	case rejecting:
		return x402.Settlement{Class: x402.TurnedAway, Code: fault.FacilitatorUnauthorized, Reason: "http_401"}, true
	case hanging, hangingButPaying:
		<-ctx.Done()
		return p.hangUp(a, out == hanging, delay), true
	case noOutage, outages:
	}
	return x402.Settlement{}, false
}

// inDoubt says whether this process must assume that a payment may have been made.
func (p *process) inDoubt(a *authorization) bool {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	return p.inDoubtLocked(a)
}

func (p *process) inDoubtLocked(a *authorization) bool {
	class, asked := p.lastClass[a][primaryName]
	return p.lastWrites[a].doubt || asked && class == x402.Unknown
}

// checkFacilitatorChoice checks the rules of which of two facilitators may be asked,
// how often, and for how long. The lock is held.
func (p *process) checkFacilitatorChoice(ctx context.Context, a *authorization, by string) {
	w := p.w
	if p.requestsTo[a] == nil {
		p.requestsTo[a] = map[string]int{}
	}
	p.requestsTo[a][by]++
	if r := w.record(a); r == nil || !slices.Contains(r.Asked, by) {
		w.violated("asked, and not named on record")
	}
	recorded := a.refusedBy
	if !a.refusedAt.Before(p.lastWrites[a].at) {
		recorded = "" // by another process, after this one's last write, which permitted it to ask
	}
	for _, refuser := range []string{recorded, p.refusedBy[a]} {
		switch refuser {
		case "":
		case by:
			w.observed("a refused payment was sent again to the facilitator that refused it")
		default:
			w.violated("a refusal about the payer was taken to the other facilitator")
		}
	}
	alone := a.refusedBy != "" || a.firstVersion
	most := map[string]int{primaryName: 2, fallbackName: 1}
	if p.requestsTo[a][by] > most[by] {
		w.violated("asked too often by one request")
	}
	d, ok := ctx.Deadline()
	bound := time.Now().Add(5 * time.Second)
	if by == primaryName && p.requestsTo[a][by] == 1 {
		bound = time.Now().Add(4 * time.Second)
		p.primaryDeadline[a] = time.Now().Add(6 * time.Second)
	} else if by == primaryName {
		bound = p.primaryDeadline[a]
	}
	if !alone && (!ok || d.After(bound)) {
		w.violated("a facilitator of two was given too much time")
	}
	if by == primaryName && p.requestsTo[a][by] == 2 {
		w.observed("sent again to the primary")
	}
	if by == primaryName || alone {
		return
	}
	class, asked := p.lastClass[a][primaryName]
	switch {
	case !asked:
		w.violated("the fallback was asked, and not the primary")
	case class == x402.Moved || class == x402.Refused:
		w.violated("the fallback was asked after a verdict")
	case !p.inDoubtLocked(a):
	case w.chainVisible && !p.consulted[a]:
		w.violated("the fallback was asked at once in doubt")
	}
}

// noteAnswer remembers a facilitator's answer. A process that died before gets none.
func (p *process) noteAnswer(a *authorization, by string, s x402.Settlement) {
	w := p.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if p.lastClass[a] == nil {
		p.lastClass[a] = map[string]x402.Class{}
	}
	doubt := p.inDoubtLocked(a)
	class := s.Class
	if p.lastClass[a][by] == x402.Unknown && p.requestsTo[a][by] > 1 && class != x402.Moved {
		class = x402.Unknown // only success resolves the doubt that the first request left
	}
	p.lastClass[a][by] = class
	if s.Class == x402.Refused || s.AboutPayer {
		p.refusedBy[a] = by
	}
	if by != fallbackName {
		return
	}
	switch {
	case s.Class == x402.Moved && doubt && a.used:
		w.observed("the fallback settled in doubt")
	case s.Class == x402.Moved:
		w.observed("the fallback settled")
	case s.Class == x402.Refused:
		w.observed("the fallback refused")
	case s.Class == x402.Unknown && p.lastClass[a][primaryName] == x402.Unknown:
		w.observed("neither facilitator answered")
	}
}
