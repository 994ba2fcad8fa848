package x402_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
)

// The following methods implement the store of a process. A call can fail without effect, take
// effect and report failure, or hang until the client library's timeout. A write can be sent
// twice because the first reply was lost. A write that hangs may take effect long after its
// caller has given up. A record may have changed by the time the reader gets it. Fetch is
// consistent, as ledger.Store requires; List, the index, is not.

// callStore makes one call of the store, by calling the function do. By chance, the call fails
// without effect, takes effect and reports failure, or hangs. If the call hangs, callStore may
// call the function landLater long afterwards. landLater is nil for a call that has no effect,
// such as a read.
func (p *process) callStore(ctx context.Context, do func(context.Context) (ledger.Record, error), landLater func(context.Context)) (r ledger.Record, err error) {
	p.await()
	ctx = p.dropDeadlineIfStopped(ctx)
	fails, failsAfter := p.drawFault(2), p.drawFault(3)
	if hangs := p.drawFault(p.w.hangPercent); hangs || fails || failsAfter {
		p.storeFailed.Store(true)
		switch {
		case failsAfter:
			_, err = do(ctx)
			p.await()
		case hangs: // the hang lasts until the client library's timeout or the end of the context
			if landLater != nil && p.chance(70) {
				p.landLate(landLater)
			}
			select {
			case <-time.After(1500 * time.Millisecond):
			case <-ctx.Done():
				err = ctx.Err()
			}
		}
		return nil, cmp.Or(err, ledgertest.ErrInjected)
	}
	r, err = do(ctx)
	p.await()
	return r, err
}

// landLate lets a write take effect after its caller has given up or died. Most writes take
// effect within 45 seconds, and some only after minutes.
func (p *process) landLate(write func(context.Context)) {
	after := p.drawDuration(45 * time.Second)
	if p.chance(20) {
		after = p.drawDuration(10 * time.Minute)
	}
	p.w.expectEffectsFor(after)
	go func() {
		time.Sleep(after)
		p.w.noteEvent("a write landed late")
		p.w.noteActivity()
		write(context.Background())
	}()
}

func (p *process) Put(ctx context.Context, r ledger.Record) (ledger.Record, error) {
	p.stall(r.Kind() == ledger.KindPurchase)
	// Some writes are sent a second time, even without faults, as the store's client library
	// does if a reply is lost. The caller gets the second reply.
	return p.callStore(ctx, func(ctx context.Context) (ledger.Record, error) {
		stored, err := p.put(ctx, r)
		if err != nil || !p.chance(4) {
			return stored, err
		}
		p.w.noteEvent("sent twice by the store's client")
		return p.put(ctx, r)
	}, func(ctx context.Context) { _, _ = p.put(ctx, r) })
}

// MostKept implements ledger.Store.
func (p *process) MostKept() int { return p.w.store.MostKept() }

func (p *process) Fetch(ctx context.Context, key string) (ledger.Record, error) {
	p.stall(isPurchase(key))
	found, err := p.callStore(ctx, func(ctx context.Context) (ledger.Record, error) {
		defer p.w.lock()()
		r, err := p.w.store.Fetch(ctx, key)
		if err != nil {
			return nil, err
		}
		return p.noteRead(key, r), nil
	}, nil)
	p.stall(p.kind == actorReconciler && found != nil && found.Status() == string(ledger.Settling))
	return found, err
}

// noteRead notes that the process has read a record, and returns the record that the process
// gets. If the schedule breaks a rule at reading, the process gets a changed record.
func (p *process) noteRead(key string, r ledger.Record) ledger.Record {
	switch a := p.w.authorizationOf(key); {
	case a == nil || p.kind == actorReconciler:
	case a == p.payment:
		p.readAt = time.Now()
		p.readState = ""
		if r != nil {
			p.readState = ledger.State(r.Status())
		}
	case r != nil:
		p.otherPayment, p.otherVersion = a, r.Head().Version
	}
	return p.recordAsRead(r)
}

func (p *process) put(ctx context.Context, r ledger.Record) (ledger.Record, error) {
	w := p.w
	defer w.lock()()
	head := r.Head()
	first, held := head.Version == 1, w.store[head.Key]
	if err := p.contextError(ctx, held, r); err != nil {
		return nil, err
	}
	if w.brokenRule != nil {
		r = w.brokenRule.recordAsWritten(p, held, r)
	}
	stored, err := w.store.Put(ctx, r)
	switch {
	case err != nil || stored == nil:
		return nil, err
	case stored.Head().WriteID == head.WriteID && (held == nil || held.Head().WriteID != head.WriteID):
		p.checkWrite(held, r)
	case first && p.payment != nil && head.Key == p.payment.key && stored.Head().WriteID != head.WriteID:
		p.readAt = time.Now()
	}
	if first && held != nil {
		return p.recordAsRead(stored), nil
	}
	return stored, nil
}

// contextError returns the error of a write whose context has ended. Once a process has
// claimed a payment, the Gate must write the outcome of that attempt under a context that has
// not ended. Three kinds of writes may have a context that has ended, because they send
// nothing: the claim itself, the supersession of a payment, and the write of a purchase.
func (p *process) contextError(ctx context.Context, old, r ledger.Record) error {
	verdict := p.isVerdict(old, r)
	if err := ctx.Err(); err != nil {
		if verdict {
			p.w.noteViolation("a verdict is written under a context that has ended")
		}
		return err
	}
	if verdict && time.Since(p.begun) > invocationTimeout {
		p.w.noteEvent("written after the deadline")
	}
	return nil
}

// isVerdict reports whether a process writes the outcome of its attempt on a payment. Three
// kinds of writes are no verdict: a claim, and two kinds of writes to a payment other than
// that of the request, namely a supersession and a write that changes only the version. A
// write of the reconciler is no verdict.
func (p *process) isVerdict(old, r ledger.Record) bool {
	pay, ok := r.(ledger.Payment)
	if !ok || p.kind == actorReconciler {
		return false
	}
	a := p.w.authorizationOf(pay.Key)
	before, _ := old.(ledger.Payment)
	claims := old != nil && pay.Attempt > before.Attempt
	closes := a != p.payment && (pay.State == ledger.Superseded || old != nil && onlyVersionRaised(before, pay))
	return !claims && !closes && !p.attemptOn(a).claimedAt.IsZero()
}

// decodedStore is the store of the campaign. It has the same contract as ledgertest.Memory. To
// make the campaign faster, it decodes a row only when the row is written, and not at every
// read. The world's lock guards it.
type decodedStore map[string]ledger.Record

// Put implements ledger.Store. If the version of the row follows that of the stored row, Put
// encodes and decodes the row, as a real store would, and stores it. Otherwise it returns the
// stored row.
func (s decodedStore) Put(ctx context.Context, r ledger.Record) (ledger.Record, error) {
	head := r.Head()
	held := s[head.Key]
	if ctx.Err() != nil || held == nil && head.Version != 1 || held != nil && held.Head().Version != head.Version-1 {
		return s.Fetch(ctx, head.Key)
	}
	doc, body, err := ledger.Marshal(r)
	if err != nil {
		return nil, err
	}
	s[head.Key], err = ledger.Unmarshal(head.Key, doc, body)
	return r, err
}

// MostKept implements ledger.Store.
func (s decodedStore) MostKept() int { return ledger.LeastKept }

// Fetch implements ledger.Store. The caller may change the returned copy.
func (s decodedStore) Fetch(ctx context.Context, key string) (ledger.Record, error) {
	held := s[key]
	if held == nil || ctx.Err() != nil {
		return nil, ctx.Err()
	}
	r, ok := held.(ledger.Payment)
	if ok && r.Answer != nil {
		answer := *r.Answer
		r.Answer = &answer
		return r, nil
	}
	return held, nil
}

func isPurchase(key string) bool { return strings.HasPrefix(key, "purchase|") }

func (p *process) Acquire(_ context.Context, _ string, until time.Time) (x402.Slot, error) {
	p.await()
	if p.drawFault(2) {
		return nil, fault.New(fault.LedgerUnavailable, nil)
	}
	full := p.drawFault(4)
	w := p.w
	defer w.lock()()
	for other, end := range w.slotEnds {
		if !end.After(p.now()) {
			delete(w.slotEnds, other)
		}
	}
	if full || len(w.slotEnds) >= w.slotCap {
		return nil, fault.New(fault.Overloaded, nil)
	}
	if until.Before(p.arrived.Add(minimumLease)) {
		w.noteViolation("a slot ends before its lease")
	}
	p.slotsHeld, w.slotEnds[p] = p.slotsHeld+1, until
	return p, nil
}

func (p *process) Release(context.Context) error {
	p.await()
	w := p.w
	w.mu.Lock()
	if p.slotsHeld != 1 {
		w.noteViolation("a slot was given back twice")
	}
	p.slotsHeld--
	delete(w.slotEnds, p)
	w.mu.Unlock()
	if p.drawFault(2) {
		return errors.New("store down")
	}
	return nil
}

// lacksSlot reports whether the schedule limits the number of slots, and this process has no
// slot. It is called when the process settles or looks up.
func (p *process) lacksSlot() bool { return p.w.slotCap > 0 && p.slotsHeld != 1 }

func (p *process) runLookup(ctx context.Context) (x402.Reply, error) {
	w := p.w
	a, usuallyFails := w.checkLookup(p)
	defer func() {
		defer w.lock()()
		p.lookupEndedAt = time.Now()
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
	p.await()
	switch {
	case p.drawFault(12), usuallyFails && p.chance(85):
		if f := lookup.Fault(lookup.DNSTimeout, nil); w.targetIsSilent {
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

// checkLookup checks the invariants of a lookup that begins, and returns the payment that the
// lookup is for. In some schedules, the first lookups of each payment usually fail;
// usuallyFails says that this is such a lookup.
func (w *world) checkLookup(p *process) (a *authorization, usuallyFails bool) {
	defer w.lock()()
	w.executePending()
	a = p.lastPayment
	p.lookups++
	w.trace("  p%d looks up for %s", p.number, w.shortName(a.key))
	anotherRuns := false // whether another lookup of the payment is running under a lease that has not ended
	for other := range a.runningLookups {
		anotherRuns = anotherRuns || w.clockSkew <= 2*time.Second && time.Since(other.begun) < minimumLease-w.clockSkew
	}
	a.runningLookups[p] = true
	waits := []time.Duration{
		0, time.Second, 10 * time.Second, time.Minute, 10 * time.Minute, 20 * time.Minute, 40 * time.Minute, time.Hour,
	}
	wait := waits[min(a.lastLookupCount, len(waits)-1)]
	clockIsBehind := p.clockStopped.Load() // the clock of the process stood still, so the process may think that it still has the lease
	w.noteViolations(map[string]bool{
		"worked without a slot":                                p.lacksSlot(),
		"a lookup before money moved":                          !a.moved() && (w.chainVisible || !a.cancelled),
		"two lookups ran at once":                              !clockIsBehind && anotherRuns,
		"a lookup after a refund was begun":                    a.refundBegun() && p.attemptOn(a).claimedAt.After(a.refundBegunAt),
		"a lookup, after the payer was told that none is left": !clockIsBehind && a.toldUsedUp,
		"a lookup came too soon after the last":                !clockIsBehind && w.clockSkew == 0 && time.Since(a.lastLookupEnd) < wait,
	})
	const some = 15
	return a, w.lookupsFail && a.lookupsBegun < some
}
