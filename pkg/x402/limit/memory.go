package limit

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Memory keeps leases and counts in this process, for one server and for tests. The zero
// value is empty.
type Memory struct {
	mu     sync.Mutex
	leases map[string][]Lease             // by operation
	counts map[time.Time]map[string]Units // total by window and client
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
	ok := slices.ContainsFunc(held, l.equal)
	if !ok && len(held) < limit {
		if m.leases == nil {
			m.leases = map[string][]Lease{}
		}
		held, ok = append(held, l), true
		m.leases[operation] = held
	}
	return slices.Clone(held), ok, nil
}

func (l Lease) equal(other Lease) bool { return l.ID == other.ID && l.Until.Equal(other.Until) }

// Remove implements Leases.
func (m *Memory) Remove(ctx context.Context, operation string, leases ...Lease) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, gone := range leases {
		if held, ok := m.leases[operation]; ok {
			m.leases[operation] = slices.DeleteFunc(held, gone.equal)
		}
	}
	return nil
}

// Add implements Counter.
func (m *Memory) Add(ctx context.Context, client string, window time.Time, n Units) (Units, error) {
	total, _, err := m.Take(ctx, client, window, n, 1<<62)
	return total, err
}

// Take implements Counter. Windows that ended more than a minute before the one
// that begins are deleted.
func (m *Memory) Take(ctx context.Context, client string, window time.Time, n Units, most int) (Units, bool, error) {
	if err := ctx.Err(); err != nil {
		return Units{}, false, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	window = window.UTC()
	had := m.counts[window][client]
	if had.All+n.All > most {
		return had, false, nil
	}
	if m.counts == nil {
		m.counts = map[time.Time]map[string]Units{}
	}
	if m.counts[window] == nil {
		for w := range m.counts {
			if w.Before(window.Add(-Window)) {
				delete(m.counts, w)
			}
		}
		m.counts[window] = map[string]Units{}
	}
	total := Units{All: had.All + n.All, Open: had.Open + n.Open}
	m.counts[window][client] = total
	return total, true, nil
}
