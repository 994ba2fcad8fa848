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

// harness is a Slots with its store and its clock.
type harness struct {
	*limit.Slots
	store *leases
	clock limittest.Clock
	calls int
}

// next is a client that has no slot yet, so that tests of the cap are independent of
// the limit of half the slots for one client.
func (b *harness) next() string {
	b.calls++
	return fmt.Sprint("client ", b.calls)
}

func newHarness(most int) *harness {
	b := &harness{store: &leases{}}
	b.clock.Set(noon)
	b.Slots = limittest.NewSlots(b.store, "dns", most, 0, b.clock.Now)
	return b
}

func (b *harness) take(t *testing.T) *limit.Slot {
	t.Helper()
	slot, err := b.Acquire(t.Context(), b.next(), b.clock.Now().Add(30*time.Second))
	if err != nil {
		t.Fatalf("Acquire: %v", err)
	}
	return slot
}

func (b *harness) refused(t *testing.T, want fault.Code) *fault.Error {
	t.Helper()
	slot, err := b.Acquire(t.Context(), b.next(), b.clock.Now().Add(30*time.Second))
	var f *fault.Error
	if slot != nil || !errors.As(err, &f) || f.Code != want {
		t.Fatalf("Acquire = %v, %v; want %s", slot, err, want)
	}
	return f
}

func (b *harness) expectCalls(t *testing.T, what string, acquires, removes int) {
	t.Helper()
	if a, r := b.store.calls(); a != acquires || r != removes {
		t.Errorf("%s took %d acquires and %d removes, want %d and %d", what, a, r, acquires, removes)
	}
}

func TestSlots(t *testing.T) {
	t.Parallel()
	b := newHarness(2)
	first := b.take(t)
	b.take(t)
	b.expectCalls(t, "two slots", 2, 0)
	f := b.refused(t, fault.Overloaded)
	if f.Info().Status != http.StatusServiceUnavailable || f.Wait() <= 0 || !f.Info().Retry {
		t.Errorf("%+v with Retry-After %s", f.Info(), f.Wait())
	}
	b.expectCalls(t, "a refusal with nothing dead", 1, 0)
	for range 3 {
		if err := first.Release(t.Context()); err != nil {
			t.Errorf("Release: %v", err)
		}
	}
	b.expectCalls(t, "three releases of one slot", 0, 1)
	b.take(t)
	b.expectCalls(t, "the slot that came free", 1, 0)
}

// A dead lease is taken over at the moment it runs out, and no sooner.
func TestSlotsRunOut(t *testing.T) {
	t.Parallel()
	b := newHarness(2)
	late := b.take(t)
	b.clock.Advance(time.Second)
	b.take(t)
	b.clock.Advance(29*time.Second - time.Millisecond)
	b.refused(t, fault.Overloaded)
	b.store.calls()
	b.clock.Advance(time.Millisecond)
	b.take(t)
	b.expectCalls(t, "a slot in place of a dead one", 2, 1)
	b.refused(t, fault.Overloaded)
	// The owner of the dead lease comes back and takes nothing from the others.
	if err := late.Release(t.Context()); err != nil {
		t.Errorf("Release: %v", err)
	}
	b.refused(t, fault.Overloaded)
}

func TestSlotsLowerCap(t *testing.T) {
	t.Parallel()
	b := newHarness(5)
	for range 5 {
		b.take(t)
	}
	lower := limittest.NewSlots(b.store, "dns", 2, 1, b.clock.Now)
	if _, err := lower.Acquire(t.Context(), b.next(), noon.Add(time.Minute)); fault.From(err).Code != fault.Overloaded {
		t.Errorf("Acquire = %v", err)
	}
	b.clock.Advance(time.Minute)
	for i := range 2 {
		if _, err := lower.Acquire(t.Context(), b.next(), noon.Add(2*time.Minute)); err != nil {
			t.Errorf("slot %d: %v", i, err)
		}
	}
	if _, err := lower.Acquire(t.Context(), b.next(), noon.Add(2*time.Minute)); fault.From(err).Code != fault.Overloaded {
		t.Errorf("Acquire = %v", err)
	}
}

// When more leases are alive than the cap, removing dead ones would free no slot, so
// nothing is removed.
func TestSlotsRemovesOnlyWhatHelps(t *testing.T) {
	t.Parallel()
	b := newHarness(3)
	b.take(t)
	b.clock.Advance(time.Second)
	b.take(t)
	b.take(t)
	b.clock.Advance(29 * time.Second) // the first is dead
	lower := &harness{Slots: limittest.NewSlots(b.store, "dns", 2, 1, b.clock.Now), store: b.store}
	lower.clock.Set(b.clock.Now())
	b.store.calls()
	lower.refused(t, fault.Overloaded)
	b.expectCalls(t, "a refusal with two alive and one dead", 1, 0)
}

// A slot that came free between the refusal and the look at it is taken.
func TestSlotsCameFree(t *testing.T) {
	t.Parallel()
	b := newHarness(1)
	held := b.take(t)
	slots := limittest.NewSlots(&refusedThen{Leases: b.store, then: func() {
		if err := held.Release(t.Context()); err != nil {
			t.Error(err)
		}
	}}, "dns", 1, 1, b.clock.Now)
	if _, err := slots.Acquire(t.Context(), b.next(), noon.Add(time.Minute)); err != nil {
		t.Errorf("Acquire = %v", err)
	}
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
		b := newHarness(1)
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
	off := limit.NewSlots(limit.SlotsConfig{})
	for range 3 {
		slot, err := off.Acquire(t.Context(), "a", noon)
		if slot == nil || err != nil {
			t.Fatalf("Acquire = %v, %v", slot, err)
		}
		if err := slot.Release(t.Context()); err != nil {
			t.Errorf("Release: %v", err)
		}
	}
	var none *limit.Slot
	if err := none.Release(t.Context()); err != nil {
		t.Errorf("Release of no slot: %v", err)
	}
}

func TestSlotsStoreDown(t *testing.T) {
	t.Parallel()
	b := newHarness(1)
	slot := b.take(t)
	b.store.down = true
	f := b.refused(t, fault.LedgerUnavailable)
	if !errors.Is(f, errDown) || f.Public() == errDown.Error() {
		t.Errorf("%v says %q", f, f.Public())
	}
	if err := slot.Release(t.Context()); !errors.Is(err, errDown) {
		t.Errorf("Release = %v", err)
	}
	b.store.down = false
	if err := slot.Release(t.Context()); err != nil { // tries again
		t.Errorf("Release = %v", err)
	}
	b.take(t)
}

// The store fails between the refusal and the second try.
func TestSlotsStoreFailsLater(t *testing.T) {
	t.Parallel()
	b := newHarness(1)
	b.take(t)
	b.clock.Advance(time.Minute)
	flaky := &removeFails{b.store}
	slots := limittest.NewSlots(flaky, "dns", 1, 1, b.clock.Now)
	if _, err := slots.Acquire(t.Context(), b.next(), noon.Add(time.Hour)); fault.From(err).Code != fault.LedgerUnavailable {
		t.Errorf("Acquire = %v", err)
	}
}

// removeFails takes everything else to the store.
type removeFails struct{ limit.Leases }

func (r *removeFails) Remove(ctx context.Context, _ string, _ ...limit.Lease) error {
	return errors.Join(errDown, ctx.Err())
}

// A lease whose acquisition was written and never answered runs out by itself.
func TestSlotsLostReply(t *testing.T) {
	t.Parallel()
	b := newHarness(1)
	b.store.lost = true
	b.refused(t, fault.LedgerUnavailable)
	b.store.lost = false
	b.refused(t, fault.Overloaded)
	b.clock.Advance(30 * time.Second)
	b.take(t)
}

func TestNewSlotsPanics(t *testing.T) {
	t.Parallel()
	good := limit.SlotsConfig{Operation: "dns", Cap: 1, Leases: &limit.Memory{}, Now: time.Now, NewID: func() string { return "x" }}
	limit.NewSlots(good)
	for i, spoil := range []func(*limit.SlotsConfig){
		func(c *limit.SlotsConfig) { c.Operation = "" },
		func(c *limit.SlotsConfig) { c.Cap = -1 },
		func(c *limit.SlotsConfig) { c.Leases = nil },
		func(c *limit.SlotsConfig) { c.Now = nil },
		func(c *limit.SlotsConfig) { c.NewID = nil },
	} {
		bad := good
		spoil(&bad)
		mustPanic(t, fmt.Sprint("spoilt ", i), func() { limit.NewSlots(bad) })
	}
}

func mustPanic(t *testing.T, what string, f func()) {
	t.Helper()
	defer func() {
		if recover() == nil {
			t.Errorf("%s: no panic", what)
		}
	}()
	f()
}
