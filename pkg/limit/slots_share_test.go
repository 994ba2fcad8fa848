package limit_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/limit"
	"github.com/hostfacts/hostfacts/pkg/limit/limittest"
)

// A client holds half of the slots and at least one, and the others the rest.
func TestSlotsHalf(t *testing.T) {
	t.Parallel()
	for most, half := range map[int]int{1: 1, 2: 1, 3: 1, 4: 2, 20: 10, 50: 25} {
		b := newHarness(most)
		until := noon.Add(30 * time.Second)
		var held []*limit.Slot
		for i := range half {
			slot, err := b.Acquire(t.Context(), "a", until)
			if err != nil {
				t.Fatalf("slot %d of %d: %v", i, most, err)
			}
			held = append(held, slot)
		}
		b.expectCalls(t, "a client's half", half, 0)
		if _, err := b.Acquire(t.Context(), "a", until); fault.From(err).Code != fault.Overloaded || fault.From(err).Wait() <= 0 {
			t.Errorf("cap %d: slot %d of a client: %v", most, half+1, err)
		}
		if most > 1 {
			b.expectCalls(t, "one more, given back", 1, 1)
		}
		for range most - half {
			b.take(t)
		}
		b.store.calls()
		if _, err := b.Acquire(t.Context(), "a", until); fault.From(err).Code != fault.Overloaded {
			t.Errorf("cap %d, full: %v", most, err)
		}
		b.expectCalls(t, "one more when all are taken", 1, 0)
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
	b := newHarness(4)
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

// A lease above the half that cannot be removed does not count as a slot either.
func TestSlotsHalfStays(t *testing.T) {
	t.Parallel()
	b := newHarness(4)
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

// However many slots one client asks for at once, another client that asks at the
// same moment gets a slot.
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

// A request waits for a surplus to be given back no longer than its own time limit.
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

// A cap above 50 is divided over items of at most 50 leases. Together they hold
// the cap, no client has more than half, and a refusal costs two writes at most.
func TestSlotsOverItems(t *testing.T) {
	t.Parallel()
	const most = 170
	b := newHarness(most)
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
