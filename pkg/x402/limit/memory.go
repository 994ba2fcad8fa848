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
	counts map[time.Time]map[string]Units  // total by window and client
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
		until, mine := held[l.ID]
		return listOf(held), mine && until.Equal(l.Until), nil
	}
	if m.leases == nil {
		m.leases = map[string]map[string]time.Time{}
	}
	if held == nil {
		held = map[string]time.Time{}
		m.leases[operation] = held
	}
	held[l.ID] = l.Until
	return listOf(held), true, nil
}

func listOf(held map[string]time.Time) []Lease {
	all := make([]Lease, 0, len(held))
	for id, until := range held {
		all = append(all, Lease{ID: id, Until: until})
	}
	return all
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

// Add implements Counter. Windows that ended more than a minute before the one
// that begins are deleted.
func (m *Memory) Add(ctx context.Context, client string, window time.Time, n Units) (Units, error) {
	if err := ctx.Err(); err != nil {
		return Units{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.add(client, window.UTC(), n), nil
}

// Take implements Counter.
func (m *Memory) Take(ctx context.Context, client string, window time.Time, n Units, most int) (Units, bool, error) {
	if err := ctx.Err(); err != nil {
		return Units{}, false, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	window = window.UTC()
	if had := m.counts[window][client]; had.All+n.All > most {
		return had, false, nil
	}
	return m.add(client, window, n), true, nil
}

func (m *Memory) add(client string, window time.Time, n Units) Units {
	if m.counts == nil {
		m.counts = map[time.Time]map[string]Units{}
	}
	counts := m.counts[window]
	if counts == nil {
		for w := range m.counts {
			if w.Before(window.Add(-Window)) {
				delete(m.counts, w)
			}
		}
		counts = map[string]Units{}
		m.counts[window] = counts
	}
	counts[client] = counts[client].plus(n)
	return counts[client]
}
