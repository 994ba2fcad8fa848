package x402_test

import (
	"context"
	"errors"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
)

func background() context.Context { return context.Background() }

// The process as a store. Every call can fail without being done, be done and
// fail, hang until a client library gives up, or be sent twice because the
// first reply was lost; what it reads is true when it is read and old when it
// arrives. Fetch is consistent, as ledger.Store says; the index is not.

func (p *process) call(ctx context.Context, do func() error) error {
	p.await()
	switch {
	case p.weather(2):
		p.failed()
		return ledgertest.ErrInjected
	case p.weather(3):
		p.failed()
		if err := do(); err != nil {
			return err
		}
		p.await()
		return ledgertest.ErrInjected
	case p.weather(1):
		p.failed()
		return p.hang(ctx)
	}
	err := do()
	p.await()
	return err
}

// hang does nothing until the client library or the context gives up.
func (p *process) hang(ctx context.Context) error {
	select {
	case <-time.After(1500 * time.Millisecond):
		return ledgertest.ErrInjected
	case <-ctx.Done():
		return ctx.Err()
	}
}

// failed notes that the store let this process down.
func (p *process) failed() {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	p.faulty = true
}

// Create implements ledger.Store.
func (p *process) Create(ctx context.Context, r ledger.Record) (old *ledger.Record, err error) {
	err = p.call(ctx, func() (err error) {
		return p.twice(func() error { old, err = p.create(ctx, r); return err })
	})
	if err != nil {
		return nil, err
	}
	return old, nil
}

// Replace implements ledger.Store.
func (p *process) Replace(ctx context.Context, r ledger.Record) error {
	return p.call(ctx, func() error {
		return p.twice(func() error { return p.replace(ctx, r) })
	})
}

// twice sends a write again now and then, also in calm weather: the store's
// client library does when a reply is lost. The second answer is what counts.
func (p *process) twice(write func() error) error {
	err := write()
	if err != nil || !p.chance(4) {
		return err
	}
	p.w.mu.Lock()
	p.w.happened("sent twice by the store's client")
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
		r = p.reads(key, r)
		return err
	})
	if err != nil {
		return nil, err
	}
	return r, nil
}

// reads notes what is read, and returns it as a sabotaged ledger would see it.
// The lock is held.
func (p *process) reads(key string, r *ledger.Record) *ledger.Record {
	switch a := p.w.pay(key); {
	case a == nil || p.kind == asReconciler:
	case a == p.pay:
		p.readAt = time.Now()
		if p.w.sabotage == todaysTerms {
			return nil
		}
		p.readState = ""
		if r != nil {
			p.readState = r.State
		}
	case r != nil:
		p.awaited, p.awaitedAs = a, r.Version
	}
	return p.seen(r)
}

func (p *process) create(ctx context.Context, r ledger.Record) (*ledger.Record, error) {
	w := p.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.sabotage == sendUnclaimed && r.State == ledger.Settling {
		p.committed(nil, r)
		return nil, nil
	}
	if w.sabotage == forgetPurchases && r.State == ledger.Bought {
		p.opened[w.pay(r.Owner)] = true
		return nil, nil
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	p.spoil(&r)
	if held := w.forgets(r); held != nil {
		return held, nil
	}
	old, err := w.store.Create(ctx, r)
	if err == nil && old == nil {
		p.committed(nil, r)
	}
	if old != nil && p.pay != nil && r.Key == p.pay.key {
		p.readAt = time.Now()
	}
	return p.seen(old), err
}

func (p *process) replace(ctx context.Context, r ledger.Record) error {
	w := p.w
	w.mu.Lock()
	defer w.mu.Unlock()
	old, err := w.store.Fetch(background(), r.Key)
	if err != nil {
		return err
	}
	if err := p.tooLate(ctx, old, r); err != nil {
		return err
	}
	p.spoil(&r)
	if w.sabotage != whole && old != nil && onlyRaised(*old, r) {
		// What was read wrong is not written back.
		raised := *old
		raised.Version, raised.WriteID = r.Version, r.WriteID
		r = raised
	}
	switch {
	case w.forgets(r) != nil:
		return ledger.ErrConflict
	case w.sabotage == skipClose && r.State == ledger.Superseded && w.pay(r.Key) != p.pay:
		return nil
	case w.sabotage == skipOpen && r.State == ledger.Bought && old != nil && old.Owner == r.Owner:
		return nil
	case w.sabotage == dropEvidence && r.State == ledger.Settled && r.Lookups == 0 && old != nil && p.ousted(r.Key, old):
		return nil
	case w.sabotage == blindReplace || w.sabotage == sendUnclaimed:
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
		p.committed(old, r)
	}
	return nil
}

// ousted says that a payment that this process had claimed was written by
// another one since. The lock is held.
func (p *process) ousted(key string, old *ledger.Record) bool {
	c := p.claims[p.w.pay(key)]
	return c != claim{} && c.writeID != old.WriteID
}

// tooLate is the end of a write whose context has ended, and, where that rule
// is broken, of one after the invocation's deadline. A verdict on a payment that
// this process has claimed has no such end; taking a lease and what is written
// about purchases sends nothing, and may. The lock is held.
func (p *process) tooLate(ctx context.Context, old *ledger.Record, r ledger.Record) error {
	claims := old != nil && r.Attempt > old.Attempt
	closes := r.State == ledger.Superseded && p.w.pay(r.Key) != p.pay
	verdict := !claims && !closes && p.kind != asReconciler && r.State != ledger.Bought && p.claims[p.w.pay(r.Key)] != claim{}
	if err := ctx.Err(); err != nil {
		if verdict {
			p.w.complain("a verdict is written under a context that has ended")
		}
		return err
	}
	if verdict && time.Since(p.begun) > invocation {
		p.w.happened("written after the deadline")
		if p.w.sabotage == endedWrites {
			return context.DeadlineExceeded
		}
	}
	return nil
}

// committed holds a write that has happened to what must be true of all of
// them. old is nil for the first of a key. The lock is held.
func (p *process) committed(old *ledger.Record, r ledger.Record) {
	w := p.w
	p.writes++
	w.tell("  p%d writes %s v%d %s sent=%v doubt=%v disproved=%v lookups=%d lease=%v owner=%s", p.n, w.number(r.Key), r.Version, r.State, r.Sent, r.Doubt, r.Disproved, r.Lookups, !r.LeaseUntil.IsZero(), w.number(r.Owner))
	if old == nil {
		old = &ledger.Record{}
	}
	if r.State == ledger.Bought {
		p.bought(old, r)
		return
	}
	a := w.pay(r.Key)
	if a == nil {
		return // a cursor
	}
	p.follows(a, *old, r)
	if by := p.declined[a]; by != "" && a.refuser == "" && r.Attempt == old.Attempt {
		a.refuser, a.refusedAt = by, time.Now()
	}
	p.wrote[a] = wrote{time.Now(), r.Doubt}
	live := a.holder != p && old.LeaseUntil.After(p.now())
	testimony := old.State == ledger.Settling && r.State == ledger.Settled && r.LeaseUntil.Equal(old.LeaseUntil)
	switch {
	case live && !testimony:
		w.complain("a live lease was taken")
	case live:
		w.happened("evidence over a lost lease")
	}
	if r.Attempt > old.Attempt {
		p.claims[a], p.on = claim{time.Now(), r.WriteID}, a
		if r.Attempt > 1 && a == p.pay && a.proof == (ledger.Proof{}) && !a.older {
			w.happened("repeated without a token")
		}
		a.holder = p
	}
	switch r.State {
	case ledger.Settling:
		if !a.noAt.IsZero() {
			w.happened("sent again after a no")
		}
		if r.Doubt && !old.Doubt {
			w.happened("taken over in doubt")
		}
	case ledger.Refused:
		if a == p.pay {
			p.refusedAt = time.Now()
		}
		if old.Doubt && !w.proven(a, r.CreatedAt) {
			w.complain("refused in doubt and without proof")
		}
		if old.Doubt {
			w.happened("refused by proof")
		}
	case ledger.Settled:
		if p.kind == asReconciler {
			w.happened("settled by the reconciler")
		}
	default:
	}
	a.begun += r.Lookups - old.Lookups
	if r.Lookups < old.Lookups {
		a.spent = false // one was given back, by an attempt that had seemed dead
	}
	a.settledAt = r.SettledAt
	if !onlyRaised(*old, r) {
		a.writer = p
	}
}

// Open and Owed are an index that is behind: it misses what is new and lists
// what is over.

func (p *process) Open(context.Context, time.Time, int) ([]string, error) { return p.list() }

// Owed implements ledger.Index.
func (p *process) Owed(context.Context, int) ([]string, error) { return p.list() }

func (p *process) list() ([]string, error) {
	p.await()
	if p.weather(5) {
		return nil, errors.New("throttled")
	}
	var keys []string
	p.w.mu.Lock()
	pays := p.w.pays
	p.w.mu.Unlock()
	for _, a := range pays {
		if !p.weather(10) {
			keys = append(keys, a.key)
		}
	}
	return keys, nil
}

// shelf is the store itself: what ledgertest.Memory is, which keeps the contract,
// but each row is decoded once, when it is written, and not whenever it is read.
// The world's lock guards it.
type shelf struct{ rows map[string]*ledger.Record }

// put keeps a row as a store would give it back.
func (s *shelf) put(r ledger.Record) error {
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
func (s *shelf) Create(ctx context.Context, r ledger.Record) (*ledger.Record, error) {
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
func (s *shelf) Replace(ctx context.Context, r ledger.Record) error {
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

// Fetch implements ledger.Store. Whoever reads may change what he gets.
func (s *shelf) Fetch(ctx context.Context, key string) (*ledger.Record, error) {
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
