package x402_test

import (
	"context"
	"slices"
	"time"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

// second is the fallback of a process: another facilitator on the same chain.
type second struct{ *process }

func (s second) Settle(ctx context.Context, pay x402.Payload, r x402.Requirements) x402.Settlement {
	return s.settle(ctx, pay, r, fallbackName)
}

// outage is what is wrong with the primary in a schedule, beside the weather.
type outage int

const (
	noOutage   outage = iota
	down              // it cannot be reached
	turnsAway         // it turns every request away
	hanging           // it never answers, and moves nothing
	swallowing        // it never answers, and moves the money
	outages
)

// outage is the answer of a facilitator that is out of order, if it is: most of the
// time, while there are faults. A fallback that boasts says that it settled what is
// in doubt.
func (p *process) outage(ctx context.Context, a *authorization, by string) (x402.Settlement, bool) {
	w := p.w
	if !w.two || p.kind == asOlder || !p.weather(70) {
		return x402.Settlement{}, false
	}
	out := w.out
	if by == fallbackName {
		if out = noOutage; w.boasts && p.inDoubt(a) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.happened("the fallback lied")
			return x402.Settlement{Class: x402.Moved, Transaction: a.tx}, true
		}
	}
	switch delay := p.upTo(20 * time.Second); out {
	case down:
		w.mu.Lock()
		a.maySent--
		w.mu.Unlock()
		return x402.Settlement{Class: x402.NotSent, Code: fault.FacilitatorUnavailable, Reason: "connect_failed"}, true
	case turnsAway:
		return x402.Settlement{Class: x402.TurnedAway, Code: fault.FacilitatorUnauthorized, Reason: "http_401"}, true
	case hanging, swallowing:
		<-ctx.Done()
		return p.hangUp(a, out == hanging, delay), true
	case noOutage, outages:
	}
	return x402.Settlement{}, false
}

// inDoubt says that this process has to take a payment for one that may have been
// made.
func (p *process) inDoubt(a *authorization) bool {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	return p.doubts(a)
}

func (p *process) doubts(a *authorization) bool {
	class, asked := p.said[a][primaryName]
	return p.wrote[a].doubt || asked && class == x402.Unknown
}

// mayAsk holds a request to a facilitator to the rules of two. The lock is held.
func (p *process) mayAsk(ctx context.Context, a *authorization, by string) {
	w := p.w
	if p.asks[a] == nil {
		p.asks[a] = map[string]int{}
	}
	p.asks[a][by]++
	if r := w.record(a); r == nil || !slices.Contains(r.Asked, by) {
		w.complain("asked, and not named on record")
	}
	recorded := a.refuser
	if !a.refusedAt.Before(p.wrote[a].at) {
		recorded = "" // by another process, after this one had made sure that it may ask
	}
	for _, refuser := range []string{recorded, p.declined[a]} {
		switch refuser {
		case "":
		case by:
			w.happened("a refusal was left to who gave it")
		default:
			w.complain("a refusal about the payer was taken to the other facilitator")
		}
	}
	alone := a.refuser != "" || a.older
	most := map[string]int{primaryName: 2, fallbackName: 1}
	if p.asks[a][by] > most[by] {
		w.complain("asked too often by one request")
	}
	d, ok := ctx.Deadline()
	bound := time.Now().Add(5 * time.Second)
	if by == primaryName && p.asks[a][by] == 1 {
		bound = time.Now().Add(4 * time.Second)
		p.until[a] = time.Now().Add(6 * time.Second)
	} else if by == primaryName {
		bound = p.until[a]
	}
	if !alone && (!ok || d.After(bound)) {
		w.complain("a facilitator of two was given too much time")
	}
	if by == primaryName && p.asks[a][by] == 2 {
		w.happened("sent again to the primary")
	}
	if by == primaryName || alone {
		return
	}
	class, asked := p.said[a][primaryName]
	switch {
	case !asked:
		w.complain("the fallback was asked, and not the primary")
	case class == x402.Moved || class == x402.Refused:
		w.complain("the fallback was asked after a verdict")
	case !p.doubts(a):
	case w.rpc && !p.consulted[a]:
		w.complain("the fallback was asked at once in doubt")
	}
}

// hears notes what a facilitator has said. A process that dies has heard nothing.
func (p *process) hears(a *authorization, by string, s x402.Settlement) {
	w := p.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if p.said[a] == nil {
		p.said[a] = map[string]x402.Class{}
	}
	doubt := p.doubts(a)
	class := s.Class
	if p.said[a][by] == x402.Unknown && p.asks[a][by] > 1 && class != x402.Moved {
		class = x402.Unknown // nothing but success clears the doubt of the first request
	}
	p.said[a][by] = class
	if s.Class == x402.Refused || s.AboutPayer {
		p.declined[a] = by
	}
	if by != fallbackName {
		return
	}
	switch {
	case s.Class == x402.Moved && doubt && a.used:
		w.happened("the fallback settled in doubt")
	case s.Class == x402.Moved:
		w.happened("the fallback settled")
	case s.Class == x402.Refused:
		w.happened("the fallback refused")
	case s.Class == x402.Unknown && p.said[a][primaryName] == x402.Unknown:
		w.happened("silence of both")
	}
}
