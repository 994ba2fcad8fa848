package limit

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

// Store is what limits are kept in.
type Store interface {
	Counter
	Leases
}

// Memory keeps leases and counts in this process, for one server and for tests. The zero
// value is empty.
type Memory struct {
	mu     sync.Mutex
	leases map[string][]Lease             // by operation
	counts map[time.Time]map[string]Units // total by window and client
}

var _ Store = (*Memory)(nil)

// Acquire implements Leases.
func (m *Memory) Acquire(ctx context.Context, operation string, l Lease, limit int) ([]Lease, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	held := m.leases[operation]
	ok := slices.ContainsFunc(held, l.equal)
	if ctx.Err() == nil && !ok && len(held) < limit {
		if m.leases == nil {
			m.leases = map[string][]Lease{}
		}
		held, ok = append(held, l), true
		m.leases[operation] = held
	}
	return slices.Clone(held), ok && ctx.Err() == nil, ctx.Err()
}

func (l Lease) equal(other Lease) bool { return l.ID == other.ID && l.Until.Equal(other.Until) }

// Remove implements Leases.
func (m *Memory) Remove(ctx context.Context, operation string, leases ...Lease) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, gone := range leases {
		if held, ok := m.leases[operation]; ok && ctx.Err() == nil {
			m.leases[operation] = slices.DeleteFunc(held, gone.equal)
		}
	}
	return ctx.Err()
}

// Count implements Counter. Windows that ended more than a minute before the one
// that begins are deleted.
func (m *Memory) Count(ctx context.Context, client string, window time.Time, n Units, most int) (Units, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	window = window.UTC()
	total := m.counts[window][client]
	if ctx.Err() != nil || total.All+n.All > most {
		return total, false, ctx.Err()
	}
	total = Units{All: total.All + n.All, Open: total.Open + n.Open}
	if m.counts == nil {
		m.counts = map[time.Time]map[string]Units{}
	}
	if m.counts[window] == nil {
		maps.DeleteFunc(m.counts, func(w time.Time, _ map[string]Units) bool { return w.Before(window.Add(-Window)) })
		m.counts[window] = map[string]Units{}
	}
	m.counts[window][client] = total
	return total, true, nil
}
