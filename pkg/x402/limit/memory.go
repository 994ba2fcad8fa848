package limit

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

// Store is what limits are kept in. A call that returns an error may or may not have taken
// effect.
type Store interface {
	// Count adds n, which may be negative, to the units of a client in the window
	// that begins at window, if the total then stays within most. It returns the
	// client's total in the window, n included. Otherwise it counts nothing, and ok is
	// false. A call that is Unbounded never counts twice.
	Count(ctx context.Context, client string, window time.Time, n Units, most int) (total Units, ok bool, err error)

	// Acquire adds a lease to an operation that has fewer than limit of them,
	// expired ones included. Otherwise it adds nothing, and ok is false. held are
	// all leases in no order: with the new one right after it was added, or as they
	// were when it was refused or a moment later. A lease that is held already
	// counts as added, so that an Acquire may be sent twice.
	Acquire(ctx context.Context, operation string, l Lease, limit int) (held []Lease, ok bool, err error)

	// Remove removes leases. It keeps a lease whose Until is another, and ignores
	// one that does not exist.
	Remove(ctx context.Context, operation string, leases ...Lease) error
}

// Memory keeps leases and counts in this process, for one server and for tests. The zero
// value is empty.
type Memory struct {
	mu     sync.Mutex
	leases map[string][]Lease             // by operation
	counts map[time.Time]map[string]Units // total by window and client
}

// Acquire implements Store.
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

// Remove implements Store.
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

// Count implements Store. Windows that ended more than a minute before the one
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
