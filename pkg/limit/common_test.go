package limit_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/limit"
	"github.com/hostfacts/hostfacts/pkg/limit/limittest"
)

const client = "203.0.113.7"

var (
	noon    = time.Date(2026, time.November, 1, 12, 0, 0, 0, time.UTC)
	errDown = errors.New("the store is down")
)

// same compares what there is with what is wanted.
func same[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func at(offset time.Duration) *limittest.Clock {
	var c limittest.Clock
	c.Set(noon.Add(offset))
	return &c
}

// counter is a Memory that notes what each call adds, and fails while down or when
// its hook does.
type counter struct {
	limit.Memory
	mu    sync.Mutex
	calls []int // what each call added
	down  bool
	hook  func(ctx context.Context) error // before each call; may be nil
}

func (c *counter) called(ctx context.Context, n int) error {
	c.mu.Lock()
	c.calls = append(c.calls, n)
	down := c.down
	c.mu.Unlock()
	if down {
		return errDown
	}
	if c.hook != nil {
		return c.hook(ctx)
	}
	return nil
}

func (c *counter) Add(ctx context.Context, client string, window time.Time, n limit.Units) (limit.Units, error) {
	if err := c.called(ctx, n.All); err != nil {
		return limit.Units{}, err
	}
	return c.Memory.Add(ctx, client, window, n)
}

func (c *counter) Take(
	ctx context.Context, client string, window time.Time, n limit.Units, most int,
) (limit.Units, bool, error) {
	if err := c.called(ctx, n.All); err != nil {
		return limit.Units{}, false, err
	}
	return c.Memory.Take(ctx, client, window, n, most)
}

// taken returns what the calls since the last time added.
func (c *counter) taken() []int {
	c.mu.Lock()
	defer c.mu.Unlock()
	calls := c.calls
	c.calls = nil
	return calls
}

// total is what is counted of a client in a window.
func (c *counter) total(t *testing.T, client string, window time.Time) limit.Units {
	t.Helper()
	u, err := c.Memory.Add(t.Context(), client, window, limit.Units{})
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// silent answers when its caller gives up.
func silent(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// slow takes a tenth of a second, by the clock of a bubble.
func slow(context.Context) error {
	time.Sleep(100 * time.Millisecond)
	return nil
}

// leases is a Memory that counts the calls, fails while down, and loses replies.
type leases struct {
	limit.Memory
	mu                sync.Mutex
	acquired, removed int
	down, lost        bool
}

func (l *leases) Acquire(ctx context.Context, operation string, lease limit.Lease, most int) ([]limit.Lease, bool, error) {
	l.mu.Lock()
	l.acquired++
	down, lost := l.down, l.lost
	l.mu.Unlock()
	if down {
		return nil, false, errDown
	}
	held, ok, err := l.Memory.Acquire(ctx, operation, lease, most)
	if lost {
		return nil, false, errDown
	}
	return held, ok, err
}

func (l *leases) Remove(ctx context.Context, operation string, leases ...limit.Lease) error {
	l.mu.Lock()
	l.removed++
	down := l.down
	l.mu.Unlock()
	if down {
		return errDown
	}
	return l.Memory.Remove(ctx, operation, leases...)
}

// calls returns the calls of each kind since the last time.
func (l *leases) calls() (acquired, removed int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	acquired, removed = l.acquired, l.removed
	l.acquired, l.removed = 0, 0
	return acquired, removed
}

func TestNewPanics(t *testing.T) {
	t.Parallel()
	good := limit.SlotsConfig{
		Operation: "dns", Cap: 1, Leases: &limit.Memory{}, Now: time.Now, NewID: func() string { return "x" },
	}
	limit.NewSlots(good)
	for i, spoil := range []func(*limit.SlotsConfig){
		func(c *limit.SlotsConfig) { c.Operation = "" },
		func(c *limit.SlotsConfig) { c.Cap = -1 },
		func(c *limit.SlotsConfig) { c.Leases = nil },
		func(c *limit.SlotsConfig) { c.Now = nil },
		func(c *limit.SlotsConfig) { c.NewID = nil },
	} {
		bad := good
		spoil(&bad)
		mustPanic(t, fmt.Sprint("slots ", i), func() { limit.NewSlots(bad) })
	}
	for i, c := range []limit.RateConfig{
		{PerMinute: -1},
		{PerMinute: 1, Now: time.Now},
		{PerMinute: 1, Counter: &limit.Memory{}},
		{PerMinute: 1, Counter: &limit.Memory{}, Now: time.Now, MaxClients: -1},
		{PerMinute: 1, Counter: &limit.Memory{}, Now: time.Now, StoreTimeout: -1},
	} {
		mustPanic(t, fmt.Sprint("rate ", i), func() { limit.NewRate(c) })
	}
}

func mustPanic(t *testing.T, what string, f func()) {
	t.Helper()
	defer func() {
		if recover() == nil {
			t.Errorf("%s: no panic", what)
		}
	}()
	f()
}
