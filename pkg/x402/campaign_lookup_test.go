package x402_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

type slotUse int

const (
	noSlot slotUse = iota
	slotHeld
	slotReleased
)

// Acquire implements x402.Slots.
func (p *process) Acquire(_ context.Context, _ string, until time.Time) (x402.Slot, error) {
	p.await()
	if p.drawFault(2) {
		return nil, fault.New(fault.LedgerUnavailable, nil)
	}
	full := p.drawFault(4)
	w := p.w
	w.mu.Lock()
	defer w.mu.Unlock()
	for other, end := range w.slots {
		if !end.After(p.now()) {
			delete(w.slots, other)
		}
	}
	if full || len(w.slots) >= w.slotCap {
		return nil, fault.New(fault.Overloaded, nil)
	}
	if until.Before(p.begun.Add(p.offset + minimumLease)) {
		w.violated("a slot ends before its lease")
	}
	p.slot, w.slots[p] = slotHeld, until
	return p, nil
}

// Release implements x402.Slot.
func (p *process) Release(context.Context) error {
	p.await()
	w := p.w
	w.mu.Lock()
	if p.slot != slotHeld {
		w.violated("a slot was given back twice")
	}
	p.slot = slotReleased
	delete(w.slots, p)
	w.mu.Unlock()
	if p.drawFault(2) {
		return errors.New("store down")
	}
	return nil
}

// checkSlot checks that a process which settles or looks up has a slot, where there
// is a cap. The lock is held.
func (w *world) checkSlot(p *process) {
	if w.slotCap > 0 && p.slot != slotHeld {
		w.violated("worked without a slot")
	}
}

// lookupReply runs the lookup with the signature that x402.Job takes.
func (p *process) lookupReply(ctx context.Context) (x402.Reply, error) {
	body, err := p.runLookup(ctx)
	return x402.Reply{Body: body}, err
}

// runLookup is the lookup: it answers, fails with a fault of ours, or panics.
func (p *process) runLookup(ctx context.Context) ([]byte, error) {
	w := p.w
	a := w.checkLookup(p)
	defer func() {
		w.mu.Lock()
		p.lookEnded = time.Now()
		delete(a.runningLookups, p)
		w.mu.Unlock()
	}()
	p.await()
	takes := p.drawDuration(3 * time.Second)
	if p.drawFault(25) {
		takes = p.drawDuration(10 * time.Second)
	}
	select {
	case <-time.After(takes):
	case <-ctx.Done():
		return nil, fault.New(fault.DNSTimeout, ctx.Err())
	}
	if p.await(); w.nearlyUsedUp {
		p.pause(20)
	}
	switch {
	case p.drawFault(12), w.lookupsFail && p.chance(85):
		return nil, fault.New(fault.DNSTimeout, nil)
	case p.drawFault(2):
		panic("a bug of ours")
	case p.chance(10):
		return nil, fault.New(fault.NXDomain, nil)
	}
	return fmt.Appendf(nil, `{"answer":%d,"to":%q}`, p.drawDuration(1<<40), p.path), nil
}

// checkLookup checks the invariants of a lookup that begins.
func (w *world) checkLookup(p *process) *authorization {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.executePending()
	a := p.current
	p.lookups++
	w.trace("  p%d looks up for %s", p.number, w.number(a.key))
	w.checkSlot(p)
	if !a.moved() && (w.chainVisible || !a.cancelled) {
		w.violated("a lookup before money moved")
	}
	for other := range a.runningLookups {
		if w.clockSkew <= 2*time.Second && time.Since(other.begun) < minimumLease-w.clockSkew {
			w.violated("two lookups ran at once")
		}
	}
	a.runningLookups[p] = true
	if !a.settledAt.IsZero() && p.now().Sub(a.settledAt) > owedFor+time.Minute {
		w.violated("a lookup more than a day after the settlement")
	}
	if a.toldUsedUp {
		w.violated("a lookup, after the payer was told that none is left")
	}
	waits := []time.Duration{0, time.Second, 10 * time.Second, time.Minute, 10 * time.Minute}
	if n := min(a.lastLookupCount, len(waits)-1); w.clockSkew == 0 && time.Since(a.lastLookupEnd) < waits[n] {
		w.violated("a lookup came too soon after the last")
	}
	return a
}
