package limit_test

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/hostfacts/hostfacts/pkg/limit"
)

var noon = time.Date(2026, time.November, 1, 12, 0, 0, 0, time.UTC)

var errDown = errors.New("the store is down")

// counter is a Memory that counts the calls, and fails while down.
type counter struct {
	limit.Memory
	mu    sync.Mutex
	calls []int // what each call added
	down  bool
}

func (c *counter) called(n int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = append(c.calls, n)
	if c.down {
		return errDown
	}
	return nil
}

func (c *counter) Add(ctx context.Context, client string, window time.Time, n limit.Units) (limit.Units, error) {
	if err := c.called(n.All); err != nil {
		return limit.Units{}, err
	}
	return c.Memory.Add(ctx, client, window, n)
}

func (c *counter) Take(ctx context.Context, client string, window time.Time, n limit.Units, most int) (limit.Units, bool, error) {
	if err := c.called(n.All); err != nil {
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
