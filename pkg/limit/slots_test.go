package limit_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/limit"
	"github.com/hostfacts/hostfacts/pkg/limit/limittest"
)

// bench is a Slots with its store and its clock.
type bench struct {
	*limit.Slots
	store *leases
	clock limittest.Clock
	calls int
}

// next is a client that has no slot, so that no test about the cap is one about
// a client's half.
func (b *bench) next() string {
	b.calls++
	return fmt.Sprint("client ", b.calls)
}

func newBench(most int) *bench {
	b := &bench{store: &leases{}}
	b.clock.Set(noon)
	b.Slots = limittest.NewSlots(b.store, "dns", most, 0, b.clock.Now)
	return b
}

func (b *bench) take(t *testing.T) *limit.Slot {
	t.Helper()
	slot, err := b.Acquire(t.Context(), b.next(), b.clock.Now().Add(30*time.Second))
	if err != nil {
		t.Fatalf("Acquire: %v", err)
	}
	return slot
}

func (b *bench) refused(t *testing.T, want fault.Code) *fault.Error {
	t.Helper()
	slot, err := b.Acquire(t.Context(), b.next(), b.clock.Now().Add(30*time.Second))
	var f *fault.Error
	if slot != nil || !errors.As(err, &f) || f.Code != want {
		t.Fatalf("Acquire = %v, %v; want %s", slot, err, want)
	}
	return f
}

func (b *bench) cost(t *testing.T, what string, acquires, removes int) {
	t.Helper()
	if a, r := b.store.calls(); a != acquires || r != removes {
		t.Errorf("%s took %d acquires and %d removes, want %d and %d", what, a, r, acquires, removes)
	}
}

func TestSlots(t *testing.T) {
	t.Parallel()
	b := newBench(2)
	first := b.take(t)
	b.take(t)
	b.cost(t, "two slots", 2, 0)
	f := b.refused(t, fault.Overloaded)
	if f.Info().Status != http.StatusServiceUnavailable || f.Wait() <= 0 || !f.Info().Retry {
		t.Errorf("%+v with Retry-After %s", f.Info(), f.Wait())
	}
	b.cost(t, "a refusal with nothing dead", 1, 0)
	for range 3 {
		if err := first.Release(t.Context()); err != nil {
			t.Errorf("Release: %v", err)
		}
	}
	b.cost(t, "three releases of one slot", 0, 1)
	b.take(t)
	b.cost(t, "the slot that came free", 1, 0)
}

// A dead lease is taken over at the moment it runs out, and no sooner.
func TestSlotsRunOut(t *testing.T) {
	t.Parallel()
	b := newBench(2)
	late := b.take(t)
	b.clock.Advance(time.Second)
	b.take(t)
	b.clock.Advance(29*time.Second - time.Millisecond)
	b.refused(t, fault.Overloaded)
	b.store.calls()
	b.clock.Advance(time.Millisecond)
	b.take(t)
	b.cost(t, "a slot in place of a dead one", 2, 1)
	b.refused(t, fault.Overloaded)
	// The owner of the dead lease comes back and takes nothing from the others.
	if err := late.Release(t.Context()); err != nil {
		t.Errorf("Release: %v", err)
	}
	b.refused(t, fault.Overloaded)
}

func TestSlotsLowerCap(t *testing.T) {
	t.Parallel()
	b := newBench(5)
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

// When too many are alive nothing is removed: it would help nobody.
func TestSlotsRemovesOnlyWhatHelps(t *testing.T) {
	t.Parallel()
	b := newBench(3)
	b.take(t)
	b.clock.Advance(time.Second)
	b.take(t)
	b.take(t)
	b.clock.Advance(29 * time.Second) // the first is dead
	lower := &bench{Slots: limittest.NewSlots(b.store, "dns", 2, 1, b.clock.Now), store: b.store}
	lower.clock.Set(b.clock.Now())
	b.store.calls()
	lower.refused(t, fault.Overloaded)
	b.cost(t, "a refusal with two alive and one dead", 1, 0)
}

// A slot that came free between the refusal and the look at it is taken.
func TestSlotsCameFree(t *testing.T) {
	t.Parallel()
	b := newBench(1)
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
		b := newBench(1)
		if _, err := b.Acquire(t.Context(), "a", until); err != nil {
			t.Fatal(err)
		}
		held, _, err := b.store.Acquire(t.Context(), "dns", limit.Lease{ID: "x"}, 1)
		if err != nil || len(held) != 1 || !held[0].Until.Equal(want) {
			t.Errorf("held are %v, %v; want one until %s", held, err, want)
		}
	}
}

// A client holds half of the slots and at least one, and the others the rest.
func TestSlotsHalf(t *testing.T) {
	t.Parallel()
	for most, half := range map[int]int{1: 1, 2: 1, 3: 1, 4: 2, 20: 10, 50: 25} {
		b := newBench(most)
		until := noon.Add(30 * time.Second)
		var held []*limit.Slot
		for i := range half {
			slot, err := b.Acquire(t.Context(), "a", until)
			if err != nil {
				t.Fatalf("slot %d of %d: %v", i, most, err)
			}
			held = append(held, slot)
		}
		b.cost(t, "a client's half", half, 0)
		if _, err := b.Acquire(t.Context(), "a", until); fault.From(err).Code != fault.Overloaded || fault.From(err).Wait() <= 0 {
			t.Errorf("cap %d: slot %d of a client: %v", most, half+1, err)
		}
		if most > 1 {
			b.cost(t, "one more, given back", 1, 1)
		}
		for range most - half {
			b.take(t)
		}
		b.store.calls()
		if _, err := b.Acquire(t.Context(), "a", until); fault.From(err).Code != fault.Overloaded {
			t.Errorf("cap %d, full: %v", most, err)
		}
		b.cost(t, "one more when all are taken", 1, 0)
		if err := held[0].Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Acquire(t.Context(), "a", until); err != nil {
			t.Errorf("cap %d: below the half again: %v", most, err)
		}
	}
}

// Leases of a client's own that have run out do not count.
func TestSlotsHalfRunsOut(t *testing.T) {
	t.Parallel()
	b := newBench(4)
	for range 2 {
		if _, err := b.Acquire(t.Context(), "a", noon.Add(30*time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	b.clock.Advance(30 * time.Second)
	for i := range 2 {
		if _, err := b.Acquire(t.Context(), "a", noon.Add(time.Minute)); err != nil {
			t.Errorf("slot %d after the others ran out: %v", i, err)
		}
	}
}

// A lease above the half that cannot be given back is no slot all the same.
func TestSlotsHalfStays(t *testing.T) {
	t.Parallel()
	b := newBench(4)
	slots := limittest.NewSlots(&removeFails{b.store}, "dns", 4, 1, b.clock.Now)
	for i := range 3 {
		slot, err := slots.Acquire(t.Context(), "a", noon.Add(time.Minute))
		if over := i == 2; over != (slot == nil) || over && (fault.From(err).Code != fault.Overloaded || !errors.Is(err, errDown)) {
			t.Errorf("slot %d: %v, %v", i, slot, err)
		}
	}
}

// delayed is a store that takes a while for each call.
type delayed struct{ limit.Leases }

func (d delayed) Acquire(ctx context.Context, operation string, l limit.Lease, most int) ([]limit.Lease, bool, error) {
	time.Sleep(3 * time.Millisecond) // the bubble's clock
	held, ok, err := d.Leases.Acquire(ctx, operation, l, most)
	time.Sleep(3 * time.Millisecond)
	return held, ok, err
}

func (d delayed) Remove(ctx context.Context, operation string, leases ...limit.Lease) error {
	time.Sleep(3 * time.Millisecond)
	return d.Leases.Remove(ctx, operation, leases...)
}

// However many slots one client asks for at once, another one that comes at that
// very moment gets his.
func TestSlotsSurplusTurnsNobodyAway(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			slots := limittest.NewSlots(delayed{&limit.Memory{}}, "dns", 50, 0, time.Now)
			var greedy atomic.Int64
			var all sync.WaitGroup
			for range 100 {
				after := time.Duration(random.IntN(20)) * time.Millisecond
				all.Go(func() {
					time.Sleep(after)
					if _, err := slots.Acquire(t.Context(), "greedy", time.Now().Add(time.Minute)); err == nil {
						greedy.Add(1)
					}
				})
			}
			for i := range 25 {
				after := time.Duration(random.IntN(20)) * time.Millisecond
				all.Go(func() {
					time.Sleep(after)
					if _, err := slots.Acquire(t.Context(), fmt.Sprint("modest ", i), time.Now().Add(time.Minute)); err != nil {
						t.Errorf("seed %d: another client: %v", seed, err)
					}
				})
			}
			all.Wait()
			if n := greedy.Load(); n > 25 || n == 0 {
				t.Errorf("seed %d: one client has %d of 50", seed, n)
			}
		})
	}
}

// Nobody waits for a surplus longer than his own time.
func TestSlotsSurplusStays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var memory limit.Memory
		for i := range 4 { // of one client, whose half is 2
			if _, ok, err := memory.Acquire(t.Context(), "dns", limit.Lease{ID: fmt.Sprint("greedy", i), Until: time.Now().Add(time.Hour)}, 4); !ok || err != nil {
				t.Fatal(ok, err)
			}
		}
		slots := limittest.NewSlots(&memory, "dns", 4, 0, time.Now)
		for limit, want := range map[time.Duration]time.Duration{time.Hour: 150 * time.Millisecond, 25 * time.Millisecond: 25 * time.Millisecond} {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			begun := time.Now()
			if _, err := slots.Acquire(ctx, "modest", time.Now().Add(time.Minute)); fault.From(err).Code != fault.Overloaded {
				t.Errorf("Acquire = %v", err)
			}
			if took := time.Since(begun); took != want {
				t.Errorf("it took %s, want %s", took, want)
			}
			cancel()
		}
	})
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
	b := newBench(1)
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
	b := newBench(1)
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
	b := newBench(1)
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

// A cap above 50 is divided over items of at most 50 leases. Together they hold
// the cap, no client has more than half, and a refusal costs two writes at most.
func TestSlotsOverItems(t *testing.T) {
	t.Parallel()
	const most = 170
	b := newBench(most)
	items := func() map[string]int {
		all := map[string]int{}
		for _, name := range []string{"dns", "dns#1", "dns#2", "dns#3", "dns#4"} {
			held, _, err := b.store.Memory.Acquire(t.Context(), name, limit.Lease{}, 0)
			if err != nil {
				t.Fatal(err)
			}
			all[name] = len(held)
		}
		return all
	}
	ctx, until := t.Context(), b.clock.Now().Add(30*time.Second)
	var one []*limit.Slot
	for range 2 * most {
		if slot, err := b.Acquire(ctx, "one client", until); err == nil {
			one = append(one, slot)
		}
	}
	if len(one) > most/2 || len(one) < most/2-4 {
		t.Errorf("one client holds %d of %d slots, want half", len(one), most)
	}
	var rest []*limit.Slot
	for range 4 * most {
		if slot, err := b.Acquire(ctx, b.next(), until); err == nil {
			rest = append(rest, slot)
		}
	}
	if all := len(one) + len(rest); all != most {
		t.Errorf("%d slots are held in the end, the cap is %d", all, most)
	}
	want := map[string]int{"dns": 42, "dns#1": 42, "dns#2": 43, "dns#3": 43, "dns#4": 0}
	if held := items(); !maps.Equal(held, want) {
		t.Errorf("the items hold %v, want %v", held, want)
	}
	b.store.calls()
	b.refused(t, fault.Overloaded)
	if n, _ := b.store.calls(); n > 2 {
		t.Errorf("a refusal took %d writes, want 2 at most", n)
	}
	for _, slot := range append(one, rest...) {
		if err := slot.Release(ctx); err != nil {
			t.Fatal(err)
		}
	}
	for name, n := range items() {
		if n != 0 {
			t.Errorf("%s still has %d leases", name, n)
		}
	}
}
