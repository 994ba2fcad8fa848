package limit

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hostfacts/hostfacts/pkg/fault"
)

// Lease is a place among those of an operation.
type Lease struct {
	ID string // not empty, and of nobody else
	// Until is when the lease runs out, in whole milliseconds.
	Until time.Time
}

// Leases keeps the leases of each operation. A call that returns an error may or
// may not have taken effect. Memory and limit/dynamo implement it, and both pass
// limittest.
type Leases interface {
	// Acquire adds a lease to an operation that has fewer than limit of them,
	// dead ones included. Otherwise it adds nothing, ok is false, and held are
	// all leases in no order, as they were then or a moment later. A lease that is held already counts as added: to
	// send an Acquire twice takes one place.
	Acquire(ctx context.Context, operation string, l Lease, limit int) (held []Lease, ok bool, err error)

	// Remove takes leases away, at least the first of them. It leaves one alone
	// that runs until another time, and does not mind one that is gone.
	Remove(ctx context.Context, operation string, leases ...Lease) error
}

// SlotsConfig is what a Slots is made of.
type SlotsConfig struct {
	Operation string // its name in the store
	// Cap is how many may run at once; 0 is no cap, and then nothing else is
	// needed.
	Cap    int
	Leases Leases
	Now    func() time.Time
	// NewID returns an identifier that no other lease of the operation has.
	// Every byte of it is written with each call of the operation, some Cap
	// times: 64 random bits do.
	NewID func() string
}

// Slots caps how many calls of an operation run at once, over all environments.
type Slots struct {
	operation string
	cap       int
	leases    Leases
	now       func() time.Time
	newID     func() string
}

// NewSlots returns a Slots. It panics when a part is missing that a cap needs.
func NewSlots(c SlotsConfig) *Slots {
	if c.Cap < 0 {
		panic("limit.NewSlots: a negative cap")
	}
	if c.Cap > 0 && (c.Operation == "" || c.Leases == nil || c.Now == nil || c.NewID == nil) {
		panic("limit.NewSlots: a cap needs an operation, leases, a clock and identifiers")
	}
	return &Slots{operation: c.Operation, cap: c.Cap, leases: c.Leases, now: c.Now, newID: c.NewID}
}

// Slot is a place that was acquired. The zero Slot holds none.
type Slot struct {
	slots *Slots
	lease Lease

	mu       sync.Mutex
	released bool
}

// Acquire takes a slot that is free again at until at the latest, whatever
// happens to this process; the work has to be over by then. Its error is a
// *fault.Error: overloaded when every slot is taken, ledger_unavailable when the
// store cannot say. After the latter a lease may stand in the store that nobody
// holds, until it runs out: a second call to a store that just failed would keep
// the client waiting, and could be overtaken by the first.
//
// It costs one write. Only when that is refused it looks for leases that have
// run out, removes them, and tries once more.
func (s *Slots) Acquire(ctx context.Context, until time.Time) (*Slot, error) {
	if s.cap == 0 {
		return &Slot{}, nil
	}
	mine := Lease{ID: s.newID(), Until: until.Truncate(time.Millisecond)}
	held, ok, err := s.leases.Acquire(ctx, s.operation, mine, s.cap)
	if err == nil && !ok {
		held, ok, err = s.again(ctx, mine, held)
	}
	if err != nil {
		return nil, fault.New(fault.LedgerUnavailable, fmt.Errorf("acquire a slot of %s: %w", s.operation, err))
	}
	if !ok {
		return nil, fault.New(fault.Overloaded, fmt.Errorf("%d slots of %s are taken, the cap is %d", len(held), s.operation, s.cap))
	}
	return &Slot{slots: s, lease: mine}, nil
}

// again removes those of held that have run out and tries once more, if there
// is anything to be had.
func (s *Slots) again(ctx context.Context, mine Lease, held []Lease) ([]Lease, bool, error) {
	now := s.now()
	var dead []Lease
	for _, l := range held {
		if !l.Until.After(now) {
			dead = append(dead, l)
		}
	}
	if len(held)-len(dead) >= s.cap {
		return held, false, nil
	}
	if len(dead) > 0 {
		// The oldest first, should the store take only some of them.
		slices.SortFunc(dead, func(a, b Lease) int {
			return cmp.Or(a.Until.Compare(b.Until), cmp.Compare(a.ID, b.ID))
		})
		if err := s.leases.Remove(ctx, s.operation, dead...); err != nil {
			return nil, false, err
		}
	}
	return s.leases.Acquire(ctx, s.operation, mine, s.cap)
}

// Release gives the slot back. It may be called again: after a success it does
// nothing, after an error it tries again. The error is for the log; a slot that
// is not released runs out.
func (s *Slot) Release(ctx context.Context) error {
	if s == nil || s.slots == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.released {
		return nil
	}
	if err := s.slots.leases.Remove(ctx, s.slots.operation, s.lease); err != nil {
		return fmt.Errorf("release a slot of %s: %w", s.slots.operation, err)
	}
	s.released = true
	return nil
}
