package x402_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

type node struct {
	down, slow, behind bool
	lag                time.Duration // of a node that is behind
}

// Find implements x402.Evidence as chain.Nodes does with one node or two: each can
// be unreachable, slow or behind, and none is wrong about final blocks. They are
// asked in order, each with its share of the time, and the first answer is the
// result.
func (p *process) Find(ctx context.Context, q x402.Question) x402.Finding {
	p.await()
	var answers *node
	asked, nodes := 0, p.w.nodes
	for ; answers == nil && asked < nodes; asked++ {
		n := node{down: p.drawFault(12), behind: p.drawFault(10), slow: p.drawFault(3), lag: p.drawDuration(time.Minute)}
		if n.slow { // it does not answer, and is given its share of the time
			end, _ := ctx.Deadline()
			time.Sleep(time.Until(end) / time.Duration(nodes-asked))
		}
		if !n.down && !n.slow {
			answers = &n
		}
	}
	w := p.w
	defer w.lock()()
	w.executePending()
	a := w.authorizationOf(fmt.Sprintf("0x%x", q.Nonce))
	if q.Value.String() != "5000" || !strings.EqualFold(q.Payee.String(), terms().PayTo) {
		w.violated("the chain was asked about other terms")
	}
	f := x402.Finding{Verdict: x402.CannotTell, Cause: errors.New("down")}
	p.of(a).verdict = new(x402.CannotTell)
	if answers == nil {
		if w.brokenRule == "the window's end is proof by our clock" && !p.now().Before(q.ValidBefore) {
			return x402.Finding{Verdict: x402.NeverPaid, Reason: "authorization expired"}
		}
		return f
	}
	if asked > 1 {
		w.observed("a node was passed over")
	}
	at := w.chainNow()
	if answers.behind {
		w.observed("chain behind")
		at = at.Add(-answers.lag)
	}
	if w.brokenRule == "the fallback's success in doubt is not checked" && p.of(a).classes[fallbackName] == x402.Moved {
		return x402.Finding{Verdict: x402.Paid, Transaction: a.tx}
	}
	f = w.finding(a, q, at)
	p.of(a).verdict = &f.Verdict
	return f
}

func (p *process) Acquire(_ context.Context, _ string, until time.Time) (x402.Slot, error) {
	p.await()
	if p.drawFault(2) {
		return nil, fault.New(fault.LedgerUnavailable, nil)
	}
	full := p.drawFault(4)
	w := p.w
	defer w.lock()()
	for other, end := range w.slots {
		if !end.After(p.now()) {
			delete(w.slots, other)
		}
	}
	if full || len(w.slots) >= w.slotCap {
		return nil, fault.New(fault.Overloaded, nil)
	}
	if until.Before(p.arrived.Add(minimumLease)) {
		w.violated("a slot ends before its lease")
	}
	p.slots, w.slots[p] = p.slots+1, until
	return p, nil
}

func (p *process) Release(context.Context) error {
	p.await()
	w := p.w
	w.mu.Lock()
	if p.slots != 1 {
		w.violated("a slot was given back twice")
	}
	p.slots--
	delete(w.slots, p)
	w.mu.Unlock()
	if p.drawFault(2) {
		return errors.New("store down")
	}
	return nil
}

// lacksSlot says whether a process that settles or looks up has no slot, where there is a
// cap.
func (p *process) lacksSlot() bool { return p.w.slotCap > 0 && p.slots != 1 }

func (p *process) runLookup(ctx context.Context) (x402.Reply, error) {
	w := p.w
	a := w.checkLookup(p)
	defer func() {
		defer w.lock()()
		p.lookEnded = time.Now()
		delete(a.runningLookups, p)
	}()
	p.await()
	takes := p.drawDuration(3 * time.Second)
	if p.drawFault(25) {
		takes = p.drawDuration(10 * time.Second)
	}
	select {
	case <-time.After(takes):
	case <-ctx.Done():
		return x402.Reply{}, lookup.Fault(lookup.DNSTimeout, ctx.Err())
	}
	if p.await(); w.nearlyUsedUp {
		p.pause(20)
	}
	switch {
	case p.drawFault(12), w.lookupsFail && p.chance(85):
		if f := lookup.Fault(lookup.DNSTimeout, nil); w.silent {
			return x402.Reply{}, f.Silence()
		}
		return x402.Reply{}, lookup.Fault(lookup.DNSTimeout, nil)
	case p.drawFault(2):
		panic("a bug of ours")
	case p.chance(10):
		return x402.Reply{}, lookup.Fault(lookup.NXDomain, nil)
	}
	return x402.Reply{Body: fmt.Appendf(nil, `{"answer":%d,"to":%q}`, p.drawDuration(1<<40), p.path)}, nil
}

func (w *world) checkLookup(p *process) *authorization {
	defer w.lock()()
	w.executePending()
	a := p.current
	p.lookups++
	w.trace("  p%d looks up for %s", p.number, w.number(a.key))
	together := false // with another lookup
	for other := range a.runningLookups {
		together = together || w.clockSkew <= 2*time.Second && time.Since(other.begun) < minimumLease-w.clockSkew
	}
	a.runningLookups[p] = true
	waits := []time.Duration{0, time.Second, 10 * time.Second, time.Minute, 10 * time.Minute}
	wait := waits[min(a.lastLookupCount, len(waits)-1)]
	late := p.stopped.Load() // by its own clock it has its lease still
	w.check(map[string]bool{
		"worked without a slot":                                p.lacksSlot(),
		"a lookup before money moved":                          !a.moved() && (w.chainVisible || !a.cancelled),
		"two lookups ran at once":                              !late && together,
		"a lookup more than a day after the settlement":        !late && !a.settledAt.IsZero() && p.now().Sub(a.settledAt) > owedFor+time.Minute,
		"a lookup, after the payer was told that none is left": !late && a.toldUsedUp,
		"a lookup came too soon after the last":                !late && w.clockSkew == 0 && time.Since(a.lastLookupEnd) < wait,
	})
	return a
}
