package limit

import (
	"context"
	"sync"
	"time"
)

// Memory keeps leases and counts in this process, for the local runner and for
// tests. The zero value is empty.
type Memory struct {
	mu     sync.Mutex
	leases map[string]map[string]time.Time // end by operation and id
	counts map[time.Time]map[string]int    // total by window and client
}

var (
	_ Leases  = (*Memory)(nil)
	_ Counter = (*Memory)(nil)
)

// Acquire implements Leases.
func (m *Memory) Acquire(ctx context.Context, operation string, l Lease, limit int) ([]Lease, bool, error) {
	if err := ctx.Err(); err != nil {
		return nil, false, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	held := m.leases[operation]
	if len(held) >= limit {
		if until, ok := held[l.ID]; ok && until.Equal(l.Until) {
			return nil, true, nil
		}
		all := make([]Lease, 0, len(held))
		for id, until := range held {
			all = append(all, Lease{ID: id, Until: until})
		}
		return all, false, nil
	}
	if m.leases == nil {
		m.leases = map[string]map[string]time.Time{}
	}
	if held == nil {
		held = map[string]time.Time{}
		m.leases[operation] = held
	}
	held[l.ID] = l.Until
	return nil, true, nil
}

// Remove implements Leases.
func (m *Memory) Remove(ctx context.Context, operation string, leases ...Lease) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	held := m.leases[operation]
	for _, l := range leases {
		if until, ok := held[l.ID]; ok && until.Equal(l.Until) {
			delete(held, l.ID)
		}
	}
	return nil
}

// Add implements Counter. It keeps a window until one begins that is more than
// a minute later.
func (m *Memory) Add(ctx context.Context, client string, window time.Time, n int) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	window = window.UTC()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.counts == nil {
		m.counts = map[time.Time]map[string]int{}
	}
	counts := m.counts[window]
	if counts == nil {
		for w := range m.counts {
			if w.Before(window.Add(-Window)) {
				delete(m.counts, w)
			}
		}
		counts = map[string]int{}
		m.counts[window] = counts
	}
	counts[client] += n
	return counts[client], nil
}
