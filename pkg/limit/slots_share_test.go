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

// A client holds half of the slots and at least one, and the others the rest. Leases
// of its own that have run out do not count.
func TestSlotsHalf(t *testing.T) {
	t.Parallel()
	for most, half := range map[int]int{1: 1, 2: 1, 3: 1, 4: 2, 20: 10, 50: 25} {
		b := newHarness(t, most)
		var held []*limit.Slot
		fill := func() {
			for range half {
				slot, _ := b.try("a", "")
				held = append(held, slot)
			}
		}
		fill()
		b.took("a client's half", half, 0)
		b.try("a", fault.Overloaded)
		if most > 1 {
			b.took("one more, given back", 1, 1)
		}
		for range most - half {
			b.take()
		}
		b.store.calls()
		b.try("a", fault.Overloaded)
		b.took("one more when all are taken", 1, 0)
		b.give(held[0])
		b.try("a", "")
		b.clock.Advance(30 * time.Second)
		fill()
	}
}

// A lease above the half that cannot be removed does not count as a slot either.
func TestSlotsHalfStays(t *testing.T) {
	t.Parallel()
	b := newHarness(t, 4)
	b = b.over(4, &removeFails{b.store})
	b.try("a", "")
	b.try("a", "")
	if _, f := b.try("a", fault.Overloaded); !errors.Is(f, errDown) {
		t.Errorf("%v", f)
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
			for i := range 125 {
				after := time.Duration(random.IntN(20)) * time.Millisecond
				all.Go(func() {
					time.Sleep(after)
					client := "greedy"
					if i >= 100 {
						client = fmt.Sprint("modest ", i)
					}
					switch _, err := slots.Acquire(t.Context(), client, time.Now().Add(time.Minute)); {
					case i >= 100 && err != nil:
						t.Errorf("seed %d: another client: %v", seed, err)
					case i < 100 && err == nil:
						greedy.Add(1)
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
			lease := limit.Lease{ID: fmt.Sprint("greedy", i), Until: time.Now().Add(time.Hour)}
			if _, ok, err := memory.Acquire(t.Context(), "dns", lease, 4); !ok || err != nil {
				t.Fatal(ok, err)
			}
		}
		slots := limittest.NewSlots(&memory, "dns", 4, 0, time.Now)
		for limit, want := range map[time.Duration]time.Duration{
			time.Hour: 150 * time.Millisecond, 25 * time.Millisecond: 25 * time.Millisecond,
		} {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			begun := time.Now()
			_, err := slots.Acquire(ctx, "modest", time.Now().Add(time.Minute))
			if took := time.Since(begun); took != want || fault.From(err).Code != fault.Overloaded {
				t.Errorf("Acquire = %v after %s, want %s", err, took, want)
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
	b := newHarness(t, most)
	holds := func(want map[string]int) {
		t.Helper()
		got := map[string]int{}
		for name := range want {
			held, _, err := b.store.Memory.Acquire(t.Context(), name, limit.Lease{}, 0)
			if err != nil {
				t.Fatal(err)
			}
			got[name] = len(held)
		}
		if !maps.Equal(got, want) {
			t.Errorf("the items hold %v, want %v", got, want)
		}
	}
	var held []*limit.Slot
	fill := func(times int, client func() string) {
		for range times {
			if slot, err := b.Acquire(t.Context(), client(), b.clock.Now().Add(30*time.Second)); err == nil {
				held = append(held, slot)
			}
		}
	}
	fill(2*most, func() string { return "one client" })
	if n := len(held); n > most/2 || n < most/2-4 {
		t.Errorf("one client holds %d of %d slots, want half", n, most)
	}
	fill(4*most, b.next)
	same(t, "slots held in the end", len(held), most)
	holds(map[string]int{"dns": 42, "dns#1": 42, "dns#2": 43, "dns#3": 43, "dns#4": 0})
	b.store.calls()
	b.refused(fault.Overloaded)
	if n, _ := b.store.calls(); n > 2 {
		t.Errorf("a refusal took %d writes, want 2 at most", n)
	}
	b.give(held...)
	holds(map[string]int{"dns": 0, "dns#1": 0, "dns#2": 0, "dns#3": 0, "dns#4": 0})
}
