package limit

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Store keeps the units of clients and the leases of operations. A call that returns an error
// may or may not have taken effect.
type Store interface {
	// Count adds n, which may be negative, to the units that a client has used in a window,
	// and returns the new total. window is the time at which the window begins. If the total
	// would exceed maxUnits, Count adds nothing, and ok is false. If maxUnits is Unbounded,
	// one call never adds n twice, even if a reply of the store is lost.
	Count(ctx context.Context, client string, window time.Time, n Units, maxUnits int) (total Units, ok bool, err error)

	// Acquire adds a lease to an operation if that operation has fewer than maxLeases leases,
	// including expired ones. Otherwise it adds nothing, and ok is false. held has all leases
	// of the operation, in any order, and includes the lease if it was added. If the lease was
	// refused, held may have been read some time after the refusal. If the operation already
	// has the lease, ok is true, so an Acquire may be sent twice.
	Acquire(ctx context.Context, operation string, l Lease, maxLeases int) (held []Lease, ok bool, err error)

	// Remove removes leases. It ignores a lease that is not stored, and a lease that is stored
	// with another Until.
	Remove(ctx context.Context, operation string, leases ...Lease) error
}

// Memory is a Store in the memory of this process, for a single server and for tests. The zero
// value is empty.
type Memory struct {
	mu      sync.Mutex
	leases  map[string][]Lease // by operation
	windows []windowCounts     // the most recently used windows; the last one used comes last
}

// windowCounts holds the total of each client in one window.
type windowCounts struct {
	window time.Time
	totals map[string]Units
}

// maxWindows is how many windows a Memory keeps: the present one, the previous one for late
// reports, the later ones into which a debt is carried, and two more in case the clock is
// wrong for a moment.
const maxWindows = 4 + maxDebtWindows

// Acquire implements Store.
func (m *Memory) Acquire(ctx context.Context, operation string, l Lease, maxLeases int) ([]Lease, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	held := m.leases[operation]
	ok := slices.ContainsFunc(held, l.equal)
	if ctx.Err() == nil && !ok && len(held) < maxLeases {
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

// Count implements Store. It keeps the windows that were used most recently, whatever their
// times. So a client's count is not lost if the clock is wrong by hours and is corrected
// within the minute.
func (m *Memory) Count(ctx context.Context, client string, window time.Time, n Units, maxUnits int) (Units, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	totals := m.totals(window)
	total := totals[client]
	if ctx.Err() != nil || total.All+n.All > maxUnits {
		return total, false, ctx.Err()
	}
	total.All += n.All
	total.Open += n.Open
	totals[client] = total
	return total, true, nil
}

// totals returns the totals of a window, by client. The caller holds the lock.
func (m *Memory) totals(window time.Time) map[string]Units {
	latest := windowCounts{window: window, totals: map[string]Units{}}
	for i, w := range m.windows {
		if w.window.Equal(window) {
			latest = w
			m.windows = slices.Delete(m.windows, i, i+1)
			break
		}
	}
	m.windows = append(m.windows, latest)
	tooMany := max(len(m.windows)-maxWindows, 0)
	m.windows = slices.Delete(m.windows, 0, tooMany)
	return latest.totals
}
