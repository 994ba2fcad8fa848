package x402_test

import (
	"context"
	"errors"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
)

func background() context.Context { return context.Background() }

// The process as a store. A call can fail without effect, take effect and report
// failure, hang until the client library's timeout, or be sent twice because the
// first reply was lost. What is read may have changed by the time it arrives.
// Fetch is consistent, as ledger.Store requires; the index is not.

func (p *process) call(ctx context.Context, do func() error) error {
	p.await()
	switch {
	case p.drawFault(2):
		p.noteStoreFault()
		return ledgertest.ErrInjected
	case p.drawFault(3):
		p.noteStoreFault()
		if err := do(); err != nil {
			return err
		}
		p.await()
		return ledgertest.ErrInjected
	case p.drawFault(1):
		p.noteStoreFault()
		return p.hang(ctx)
	}
	err := do()
	p.await()
	return err
}

// hang has no effect and ends with the client library's timeout or the context.
func (p *process) hang(ctx context.Context) error {
	select {
	case <-time.After(1500 * time.Millisecond):
		return ledgertest.ErrInjected
	case <-ctx.Done():
		return ctx.Err()
	}
}

// noteStoreFault remembers that a store call of this process failed.
func (p *process) noteStoreFault() {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	p.faulty = true
}

// Create implements ledger.Store.
func (p *process) Create(ctx context.Context, r ledger.Record) (old *ledger.Record, err error) {
	err = p.call(ctx, func() (err error) {
		return p.sendTwice(func() error { old, err = p.create(ctx, r); return err })
	})
	if err != nil {
		return nil, err
	}
	return old, nil
}

// Replace implements ledger.Store.
func (p *process) Replace(ctx context.Context, r ledger.Record) error {
	return p.call(ctx, func() error {
		return p.sendTwice(func() error { return p.replace(ctx, r) })
	})
}

// sendTwice sends some writes a second time, without faults too, as the store's
// client library does when a reply is lost. The caller gets the second reply.
func (p *process) sendTwice(write func() error) error {
	err := write()
	if err != nil || !p.chance(4) {
		return err
	}
	p.w.mu.Lock()
	p.w.observed("sent twice by the store's client")
	p.w.mu.Unlock()
	return write()
}

// Fetch implements ledger.Store.
func (p *process) Fetch(ctx context.Context, key string) (r *ledger.Record, err error) {
	err = p.call(ctx, func() (err error) {
		p.w.mu.Lock()
		defer p.w.mu.Unlock()
		if r, err = p.w.store.Fetch(ctx, key); err != nil {
			return err
		}
		r = p.noteRead(key, r)
		return err
	})
	if err != nil {
		return nil, err
	}
	return r, nil
}

// noteRead remembers what is read, and returns it as changed by a broken rule.
// The lock is held.
func (p *process) noteRead(key string, r *ledger.Record) *ledger.Record {
	switch a := p.w.authorizationOf(key); {
	case a == nil || p.kind == asReconciler:
	case a == p.pay:
		p.readAt = time.Now()
		if p.w.brokenRule == todaysTerms {
			return nil
		}
		p.readState = ""
		if r != nil {
			p.readState = r.State
		}
	case r != nil:
		p.otherRead, p.otherVersion = a, r.Version
	}
	return p.applyBrokenRead(r)
}

func (p *process) create(ctx context.Context, r ledger.Record) (*ledger.Record, error) {
	w := p.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.brokenRule == sendUnclaimed && r.State == ledger.Settling {
		p.checkWrite(nil, r)
		return nil, nil
	}
	if w.brokenRule == forgetPurchases && r.State == ledger.Bought {
		p.openedPurchase[w.authorizationOf(r.Owner)] = true
		return nil, nil
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	p.applyBrokenWrite(&r)
	if held := w.heldByWriteID(r); held != nil {
		return held, nil
	}
	old, err := w.store.Create(ctx, r)
	if err == nil && old == nil {
		p.checkWrite(nil, r)
	}
	if old != nil && p.pay != nil && r.Key == p.pay.key {
		p.readAt = time.Now()
	}
	return p.applyBrokenRead(old), err
}

func (p *process) replace(ctx context.Context, r ledger.Record) error {
	w := p.w
	w.mu.Lock()
	defer w.mu.Unlock()
	old, err := w.store.Fetch(background(), r.Key)
	if err != nil {
		return err
	}
	if err := p.contextEnded(ctx, old, r); err != nil {
		return err
	}
	p.applyBrokenWrite(&r)
	if w.brokenRule != everyRuleHolds && old != nil && onlyRaised(*old, r) {
		// A broken rule changes what is read; that change must not be stored.
		raised := *old
		raised.Version, raised.WriteID = r.Version, r.WriteID
		r = raised
	}
	switch {
	case w.heldByWriteID(r) != nil:
		return ledger.ErrConflict
	case w.brokenRule == skipClose && r.State == ledger.Superseded && w.authorizationOf(r.Key) != p.pay:
		return nil
	case w.brokenRule == skipOpen && r.State == ledger.Bought && old != nil && old.Owner == r.Owner:
		return nil
	case w.brokenRule == dropEvidence && r.State == ledger.Settled && r.Lookups == 0 && old != nil && p.leaseLost(r.Key, old):
		return nil
	case w.brokenRule == blindReplace || w.brokenRule == sendUnclaimed:
		if old == nil {
			_, err = w.store.Create(ctx, r)
			return err
		}
		r.Version = old.Version + 1
	}
	if err := w.store.Replace(ctx, r); err != nil {
		return err
	}
	if old == nil || old.WriteID != r.WriteID {
		p.checkWrite(old, r)
	}
	return nil
}

// leaseLost says that another process has written the record since this one
// claimed it. The lock is held.
func (p *process) leaseLost(key string, old *ledger.Record) bool {
	c := p.claims[p.w.authorizationOf(key)]
	return c != claim{} && c.writeID != old.WriteID
}

// contextEnded fails a write whose context has ended and, under endedWrites, one
// after the invocation's deadline. The Gate must write a verdict on a payment
// that this process has claimed under a context that has not ended; a claim, a
// supersession and a write of a purchase send nothing, and may fail. The lock is
// held.
func (p *process) contextEnded(ctx context.Context, old *ledger.Record, r ledger.Record) error {
	claims := old != nil && r.Attempt > old.Attempt
	closes := r.State == ledger.Superseded && p.w.authorizationOf(r.Key) != p.pay
	verdict := !claims && !closes && p.kind != asReconciler && r.State != ledger.Bought && p.claims[p.w.authorizationOf(r.Key)] != claim{}
	if err := ctx.Err(); err != nil {
		if verdict {
			p.w.violated("a verdict is written under a context that has ended")
		}
		return err
	}
	if verdict && time.Since(p.begun) > invocation {
		p.w.observed("written after the deadline")
		if p.w.brokenRule == endedWrites {
			return context.DeadlineExceeded
		}
	}
	return nil
}

// Open implements ledger.Index, like Owed, as an index that is not up to date: it
// may miss a record, and lists records that do not belong on it.
func (p *process) Open(context.Context, time.Time, int) ([]string, error) { return p.list() }

// Owed implements ledger.Index.
func (p *process) Owed(context.Context, int) ([]string, error) { return p.list() }

func (p *process) list() ([]string, error) {
	p.await()
	if p.drawFault(5) {
		return nil, errors.New("throttled")
	}
	var keys []string
	p.w.mu.Lock()
	pays := p.w.authorizations
	p.w.mu.Unlock()
	for _, a := range pays {
		if !p.drawFault(10) {
			keys = append(keys, a.key)
		}
	}
	return keys, nil
}

// decodedStore is the store itself. It keeps the same contract as
// ledgertest.Memory, but decodes a row once, when it is written, instead of
// whenever it is read, which makes the campaign faster. The world's lock guards
// it.
type decodedStore struct{ rows map[string]*ledger.Record }

// put encodes and decodes a row, as a real store would, and keeps it.
func (s *decodedStore) put(r ledger.Record) error {
	doc, body, err := r.Marshal()
	if err != nil {
		return err
	}
	kept, err := ledger.Unmarshal(doc, body)
	if err != nil {
		return err
	}
	s.rows[r.Key] = kept
	return nil
}

// Create implements ledger.Store.
func (s *decodedStore) Create(ctx context.Context, r ledger.Record) (*ledger.Record, error) {
	switch held := s.rows[r.Key]; {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case held == nil:
		return nil, s.put(r)
	case held.WriteID == r.WriteID:
		return nil, nil
	}
	return s.Fetch(ctx, r.Key)
}

// Replace implements ledger.Store.
func (s *decodedStore) Replace(ctx context.Context, r ledger.Record) error {
	switch held := s.rows[r.Key]; {
	case ctx.Err() != nil:
		return ctx.Err()
	case held != nil && held.Version == r.Version-1:
		return s.put(r)
	case held != nil && held.WriteID == r.WriteID:
		return nil
	}
	return ledger.ErrConflict
}

// Fetch implements ledger.Store. The caller may change the copy it gets.
func (s *decodedStore) Fetch(ctx context.Context, key string) (*ledger.Record, error) {
	held := s.rows[key]
	if held == nil || ctx.Err() != nil {
		return nil, ctx.Err()
	}
	r := *held
	if held.Answer != nil {
		answer := *held.Answer
		r.Answer = &answer
	}
	return &r, nil
}
