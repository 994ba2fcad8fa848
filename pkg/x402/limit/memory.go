package limit

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Store keeps the counts and leases. A call that returns an error may or may not have taken
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

	// Remove removes leases. It keeps a lease whose Until differs, and ignores
	// one that does not exist.
	Remove(ctx context.Context, operation string, leases ...Lease) error
}

// Memory keeps leases and counts in this process, for one server and for tests. The zero
// value is empty.
type Memory struct {
	mu      sync.Mutex
	leases  map[string][]Lease // by operation
	windows []counts           // the last ones that were counted in, the latest at the end
}

// counts are the totals of one window, by client.
type counts struct {
	begun  time.Time
	totals map[string]Units
}

// keptWindows is how many windows a Memory keeps: the present one, the one before it, in
// which a late report counts, those that a debt is carried into, and two that a clock which
// was wrong for a moment has named.
const keptWindows = 4 + debts

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
		held = append(held, l)
		ok = true
		m.leases[operation] = held
	}
	return slices.Clone(held), ok && ctx.Err() == nil, ctx.Err()
}

func (l Lease) equal(other Lease) bool {
	return l.ID == other.ID && l.Until.Equal(other.Until)
}

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

// Count implements Store. The windows that it keeps are those that were counted in last,
// whatever they are by the clock: one that is wrong by hours and set right within the
// minute does not lift the limit.
func (m *Memory) Count(ctx context.Context, client string, window time.Time, n Units, most int) (Units, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	totals := m.totals(window)
	total := totals[client]
	if ctx.Err() != nil || total.All+n.All > most {
		return total, false, ctx.Err()
	}
	total.All += n.All
	total.Open += n.Open
	totals[client] = total
	return total, true, nil
}

// totals returns the totals of a window, under the lock.
func (m *Memory) totals(window time.Time) map[string]Units {
	latest := counts{begun: window, totals: map[string]Units{}}
	for i, w := range m.windows {
		if w.begun.Equal(window) {
			latest = w
			m.windows = slices.Delete(m.windows, i, i+1)
			break
		}
	}
	m.windows = append(m.windows, latest)
	tooMany := max(len(m.windows)-keptWindows, 0)
	m.windows = slices.Delete(m.windows, 0, tooMany)
	return latest.totals
}
