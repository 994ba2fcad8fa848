package x402_test

import (
	"context"
	"errors"
	"strings"
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
		p.readAt = time.Now()
		if p.w.sabotage == todaysTerms {
			return nil
		}
		r, err = p.w.store.Fetch(ctx, key)
		if p.readState, p.vouched = "", false; r != nil {
			p.readState, p.vouched = r.State, r.SigDigest == p.signed.digest
		}
		r = p.seen(r)
		return err
	})
	if err != nil {
		return nil, err
	}
	return r, nil
}

func (p *process) create(ctx context.Context, r ledger.Record) (*ledger.Record, error) {
	w := p.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.sabotage == sendUnclaimed && r.State == ledger.Settling {
		p.committed(nil, r)
		return nil, nil
	}
	if w.sabotage == forgetNames && r.State == ledger.Bound {
		return nil, nil
	}
	if err := p.tooLate(ctx); err != nil {
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
	if old != nil {
		p.readAt = time.Now()
	}
	return p.seen(old), err
}

func (p *process) replace(ctx context.Context, r ledger.Record) error {
	w := p.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := p.tooLate(ctx); err != nil {
		return err
	}
	old, err := w.store.Fetch(background(), r.Key)
	if err != nil {
		return err
	}
	p.spoil(&r)
	switch {
	case w.forgets(r) != nil:
		return ledger.ErrConflict
	case w.sabotage == dropEvidence && r.State == ledger.Settled && r.Lookups == 0 && p.claimed != nil && old != nil && old.WriteID != p.claimed.WriteID:
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

// tooLate is the end of a write whose context has ended, and, where that rule
// is broken, of one after the invocation's deadline. The lock is held.
func (p *process) tooLate(ctx context.Context) error {
	verdict := p.claimed != nil && !p.background // a reconciler bounds its own
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
	a := w.pay(r.Key)
	if a == nil {
		return // a name
	}
	if old == nil {
		old = &ledger.Record{}
	}
	live := a.holder != p && old.LeaseUntil.After(p.now())
	testimony := old.State == ledger.Settling && r.State == ledger.Settled && r.LeaseUntil.Equal(old.LeaseUntil)
	switch {
	case live && !testimony:
		w.complain("a live lease was taken")
	case live:
		w.happened("evidence over a lost lease")
	}
	switch r.State {
	case ledger.Settling:
		p.claimed, p.claimedAt = &r, time.Now()
		if !a.noAt.IsZero() {
			w.happened("sent again after a no")
		}
		if r.Doubt && !old.Doubt {
			w.happened("taken over in doubt")
		}
	case ledger.Refused:
		p.refusedAt = time.Now()
		if old.Doubt && !w.proven(a, r.CreatedAt) {
			w.complain("refused in doubt and without proof")
		}
		if old.Doubt {
			w.happened("refused by proof")
		}
	case ledger.Settled:
		if p.background {
			w.happened("settled by the reconciler")
		}
	default:
	}
	a.begun += r.Lookups - old.Lookups
	if r.Lookups < old.Lookups {
		a.spent = false // one was given back, by an attempt that had seemed dead
	}
	a.settledAt = r.SettledAt
	if r.Attempt > old.Attempt {
		a.holder = p
	}
	a.writer = p
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
	for _, a := range p.w.pays {
		if !p.weather(10) {
			keys = append(keys, a.key)
		}
	}
	return keys, nil
}

// bound is the payment that a name was given to first, or empty. The lock is
// held.
func (w *planet) bound() string {
	for _, key := range w.store.Keys() {
		if !strings.HasPrefix(key, "id|") {
			continue
		}
		if r, err := w.store.Fetch(background(), key); err == nil && r != nil {
			return r.AuthDigest
		}
	}
	return ""
}
