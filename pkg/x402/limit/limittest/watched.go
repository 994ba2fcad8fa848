package limittest

import (
	"context"
	"sync"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/limit"
)

// Call is one call of a store.
type Call struct {
	Verb  string // acquire, remove or count
	Of    string // the operation of an acquire or a remove, or the client of a count
	Units int    // how many units a count adds (Units.All); 0 for the other verbs
}

// Watched is a store in memory that records its calls. If Before returns an error, the call
// fails with it and has no effect. If After returns an error, the call has taken effect and
// fails with that error. Before and After may be nil.
type Watched struct {
	limit.Memory
	Before, After func(context.Context, Call) error

	mu    sync.Mutex
	calls []Call
}

// Calls returns the calls since the last call of Calls.
func (w *Watched) Calls() []Call {
	w.mu.Lock()
	defer w.mu.Unlock()
	calls := w.calls
	w.calls = nil
	return calls
}

// Acquire implements limit.Store.
func (w *Watched) Acquire(ctx context.Context, operation string, l limit.Lease, maxLeases int) (held []limit.Lease, ok bool, err error) {
	err = w.do(ctx, Call{Verb: "acquire", Of: operation}, func() error {
		held, ok, err = w.Memory.Acquire(ctx, operation, l, maxLeases)
		return err
	})
	return held, ok, err
}

// Remove implements limit.Store.
func (w *Watched) Remove(ctx context.Context, operation string, leases ...limit.Lease) error {
	return w.do(ctx, Call{Verb: "remove", Of: operation}, func() error { return w.Memory.Remove(ctx, operation, leases...) })
}

// Count implements limit.Store.
func (w *Watched) Count(ctx context.Context, client string, window time.Time, n limit.Units, maxUnits int) (total limit.Units, ok bool, err error) {
	err = w.do(ctx, Call{"count", client, n.All}, func() error {
		total, ok, err = w.Memory.Count(ctx, client, window, n, maxUnits)
		return err
	})
	return total, ok, err
}

func (w *Watched) do(ctx context.Context, c Call, call func() error) error {
	w.mu.Lock()
	w.calls = append(w.calls, c)
	w.mu.Unlock()
	if w.Before != nil {
		if err := w.Before(ctx, c); err != nil {
			return err
		}
	}
	err := call()
	if w.After == nil {
		return err
	}
	if after := w.After(ctx, c); err == nil {
		return after
	}
	return err
}
