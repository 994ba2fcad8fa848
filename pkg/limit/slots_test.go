package limit_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/limit"
	"github.com/hostfacts/hostfacts/pkg/limit/limittest"
)

// harness is a Slots with its store and its clock. A slot is taken for 30 s.
type harness struct {
	*testing.T
	*limit.Slots
	store *leases
	clock *limittest.Clock
	calls int
}

func newHarness(t *testing.T, most int) *harness {
	b := &harness{T: t, store: &leases{}, clock: at(0)}
	b.Slots = limittest.NewSlots(b.store, "dns", most, 0, b.clock.Now)
	return b
}

// over is another environment of the same clock, with a cap and a store of its own.
func (b *harness) over(most int, store limit.Leases) *harness {
	other := *b
	other.Slots = limittest.NewSlots(store, "dns", most, 1, b.clock.Now)
	return &other
}

// next is a client that has no slot yet, so that tests of the cap are independent of
// the limit of half the slots for one client.
func (b *harness) next() string {
	b.calls++
	return fmt.Sprintf("client %p %d", b, b.calls)
}

// try takes a slot, or is refused for the reason that is wanted.
func (b *harness) try(client string, want fault.Code) (*limit.Slot, *fault.Error) {
	b.Helper()
	slot, err := b.Acquire(b.Context(), client, b.clock.Now().Add(30*time.Second))
	var f *fault.Error
	if errors.As(err, &f); (slot == nil) != (err != nil) || err != nil && (f == nil || f.Code != want) || err == nil && want != "" {
		b.Fatalf("Acquire = %v, %v; want %q", slot, err, want)
	}
	if want == fault.Overloaded && f.Wait() <= 0 {
		b.Errorf("%v with Retry-After %s", f, f.Wait())
	}
	return slot, f
}

func (b *harness) take() *limit.Slot {
	b.Helper()
	slot, _ := b.try(b.next(), "")
	return slot
}

func (b *harness) refused(want fault.Code) *fault.Error {
	b.Helper()
	_, f := b.try(b.next(), want)
	return f
}

func (b *harness) give(slots ...*limit.Slot) {
	b.Helper()
	for _, slot := range slots {
		if err := slot.Release(b.Context()); err != nil {
			b.Errorf("Release: %v", err)
		}
	}
}

// took compares the calls of the store since the last time.
func (b *harness) took(what string, acquires, removes int) {
	b.Helper()
	if a, r := b.store.calls(); a != acquires || r != removes {
		b.Errorf("%s took %d acquires and %d removes, want %d and %d", what, a, r, acquires, removes)
	}
}

func TestSlots(t *testing.T) {
	t.Parallel()
	b := newHarness(t, 2)
	first := b.take()
	b.take()
	b.took("two slots", 2, 0)
	if info := b.refused(fault.Overloaded).Info(); info.Status != http.StatusServiceUnavailable || !info.Retry {
		t.Errorf("%+v", info)
	}
	b.took("a refusal with nothing dead", 1, 0)
	b.give(first, first, first)
	b.took("three releases of one slot", 0, 1)
	b.take()
	b.took("the slot that came free", 1, 0)
}

// A dead lease is taken over at the moment it runs out, and no sooner.
func TestSlotsRunOut(t *testing.T) {
	t.Parallel()
	b := newHarness(t, 2)
	late := b.take()
	b.clock.Advance(time.Second)
	b.take()
	b.clock.Advance(29*time.Second - time.Millisecond)
	b.refused(fault.Overloaded)
	b.store.calls()
	b.clock.Advance(time.Millisecond)
	b.take()
	b.took("a slot in place of a dead one", 2, 1)
	b.refused(fault.Overloaded)
	// The owner of the dead lease comes back and takes nothing from the others.
	b.give(late)
	b.refused(fault.Overloaded)
}

func TestSlotsLowerCap(t *testing.T) {
	t.Parallel()
	b := newHarness(t, 5)
	for range 5 {
		b.take()
	}
	lower := b.over(2, b.store)
	lower.refused(fault.Overloaded)
	b.clock.Advance(time.Minute)
	lower.take()
	lower.take()
	lower.refused(fault.Overloaded)
}

// When more leases are alive than the cap, removing dead ones would free no slot, so
// nothing is removed.
func TestSlotsRemovesOnlyWhatHelps(t *testing.T) {
	t.Parallel()
	b := newHarness(t, 3)
	b.take()
	b.clock.Advance(time.Second)
	b.take()
	b.take()
	b.clock.Advance(29 * time.Second) // the first is dead
	b.store.calls()
	b.over(2, b.store).refused(fault.Overloaded)
	b.took("a refusal with two alive and one dead", 1, 0)
}

// A slot that came free between the refusal and the look at it is taken.
func TestSlotsCameFree(t *testing.T) {
	t.Parallel()
	b := newHarness(t, 1)
	held := b.take()
	b.over(1, &refusedThen{Leases: b.store, then: func() { b.give(held) }}).take()
}

// refusedThen shows what is held after the first refusal as it is later.
type refusedThen struct {
	limit.Leases
	then func()
}

func (r *refusedThen) Acquire(ctx context.Context, operation string, l limit.Lease, most int) ([]limit.Lease, bool, error) {
	held, ok, err := r.Leases.Acquire(ctx, operation, l, most)
	if !ok && err == nil && r.then != nil {
		r.then()
		r.then = nil
		held = nil
	}
	return held, ok, err
}

// Ends are whole seconds, because a store pays for each digit, and never early.
func TestSlotsWholeSeconds(t *testing.T) {
	t.Parallel()
	for until, want := range map[time.Time]time.Time{
		noon: noon, noon.Add(1): noon.Add(time.Second), noon.Add(1999 * time.Millisecond): noon.Add(2 * time.Second),
	} {
		b := newHarness(t, 1)
		if _, err := b.Acquire(t.Context(), "a", until); err != nil {
			t.Fatal(err)
		}
		held, _, err := b.store.Acquire(t.Context(), "dns", limit.Lease{ID: "x"}, 1)
		if err != nil || len(held) != 1 || !held[0].Until.Equal(want) {
			t.Errorf("held are %v, %v; want one until %s", held, err, want)
		}
	}
}

func TestSlotsOff(t *testing.T) {
	t.Parallel()
	b := newHarness(t, 1)
	b.Slots = limit.NewSlots(limit.SlotsConfig{})
	b.give(b.take(), b.take(), b.take(), nil)
}

func TestSlotsStoreDown(t *testing.T) {
	t.Parallel()
	b := newHarness(t, 1)
	slot := b.take()
	b.store.down = true
	if f := b.refused(fault.LedgerUnavailable); !errors.Is(f, errDown) || f.Public() == errDown.Error() {
		t.Errorf("%v says %q", f, f.Public())
	}
	if err := slot.Release(t.Context()); !errors.Is(err, errDown) {
		t.Errorf("Release = %v", err)
	}
	b.store.down = false
	b.give(slot) // tries again
	b.take()
}

// The store fails between the refusal and the second try.
func TestSlotsStoreFailsLater(t *testing.T) {
	t.Parallel()
	b := newHarness(t, 1)
	b.take()
	b.clock.Advance(time.Minute)
	b.over(1, &removeFails{b.store}).refused(fault.LedgerUnavailable)
}

// removeFails takes everything else to the store.
type removeFails struct{ limit.Leases }

func (r *removeFails) Remove(ctx context.Context, _ string, _ ...limit.Lease) error {
	return errors.Join(errDown, ctx.Err())
}

// A lease whose acquisition was written and never answered runs out by itself.
func TestSlotsLostReply(t *testing.T) {
	t.Parallel()
	b := newHarness(t, 1)
	b.store.lost = true
	b.refused(fault.LedgerUnavailable)
	b.store.lost = false
	b.refused(fault.Overloaded)
	b.clock.Advance(30 * time.Second)
	b.take()
}
