package limittest

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/limit"
)

// fleet is several environments on one store, by a clock that is moved by hand.
func fleet(s limit.Leases, most int) (environments []*limit.Slots, clock *Clock) {
	clock = &Clock{}
	clock.Set(noon)
	for e := range 3 {
		environments = append(environments, NewSlots(s, "op", most, e, clock.Now))
	}
	return environments, clock
}

// slotFor asks for a slot; nil is a refusal.
func slotFor(t *testing.T, slots *limit.Slots, client string, until time.Time) *limit.Slot {
	slot, err := slots.Acquire(t.Context(), client, until)
	if err != nil && fault.From(err).Code != fault.Overloaded {
		t.Errorf("Acquire: %v", err)
	}
	return slot
}

// raceSlots lets several environments run calls on one store, some of which
// crash and leave their lease behind. The clock stands still while they run, so
// at every moment the calls that run and the leases of the crashed ones that
// have not run out are no more than the cap. Between the rounds it moves, and
// the next round finds dead leases and live ones.
func raceSlots(t *testing.T, s Store) {
	const workers, most, term = 12, 5, 30 * time.Second
	slots, clock := fleet(s, most)
	crashed := map[time.Time]int{} // by the end of their leases
	var served, turned int
	for round := range 6 {
		var mu sync.Mutex
		until, live, worst := clock.Now().Add(term), 0, 0
		for end, n := range crashed {
			if end.After(clock.Now()) {
				live += n
			}
		}
		begin := func(slot *limit.Slot) (works bool) {
			mu.Lock()
			defer mu.Unlock()
			if slot == nil {
				turned++
				return false
			}
			served, live, worst = served+1, live+1, max(worst, live+1)
			if crashed[until] < 2 {
				crashed[until]++
				return false
			}
			return true
		}
		// Whoever has a slot at first keeps it until everybody has tried, so that calls do meet.
		var tried sync.WaitGroup
		tried.Add(workers)
		atOnce(workers, func(i int) {
			for n := range 2 { // clients are as many as calls, so that none of them is above its half
				slot := slotFor(t, slots[i%len(slots)], fmt.Sprint("client ", round, i, n), until)
				if n == 0 {
					tried.Done()
				}
				if !begin(slot) {
					continue
				}
				if _, err := s.Add(t.Context(), "work", noon, limit.Units{All: 1}); err != nil { // takes its time
					t.Errorf("Add: %v", err)
				}
				tried.Wait()
				mu.Lock()
				live--
				mu.Unlock()
				if err := slot.Release(t.Context()); err != nil {
					t.Errorf("Release: %v", err)
				}
			}
		})
		if worst > most {
			t.Errorf("round %d: %d leases at once, the cap is %d", round, worst, most)
		}
		clock.Advance(term/2 + time.Millisecond)
	}
	if served < 6 || turned == 0 {
		t.Errorf("%d served and %d turned away: the test shows nothing", served, turned)
	}
	// What crashed runs out, and the whole cap is there again.
	clock.Advance(term)
	for i := range most + 1 {
		if slot := slotFor(t, slots[0], fmt.Sprint("after ", i), clock.Now().Add(term)); (slot != nil) != (i < most) {
			t.Errorf("slot %d after the crashes: %v", i, slot)
		}
	}
}

// raceHalf lets one client ask for everything at once, over several environments:
// it gets no more than its half, and the rest is there for the others.
func raceHalf(t *testing.T, s Store) {
	const most, calls = 6, 24
	slots, clock := fleet(s, most)
	until := clock.Now().Add(time.Minute)
	got := make(chan *limit.Slot, calls)
	atOnce(calls, func(i int) {
		if slot := slotFor(t, slots[i%len(slots)], "greedy", until); slot != nil {
			got <- slot
		}
	})
	// Each of those that were above the half gave its lease back, also where at
	// that moment another one that did the same was counted.
	if won := len(got); won > most/2 || won == 0 {
		t.Fatalf("one client has %d of %d slots", won, most)
	}
	for i := range most - most/2 {
		if slotFor(t, slots[0], fmt.Sprint("modest ", i), until) == nil {
			t.Errorf("another client does not get slot %d", i)
		}
	}
	if err := (<-got).Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if slotFor(t, slots[1], "greedy", until) == nil {
		t.Error("refused below its half again")
	}
}

// NewSlots returns the Slots of an environment, whose lease ids begin with its
// number.
func NewSlots(s limit.Leases, operation string, most, environment int, now func() time.Time) *limit.Slots {
	var n atomic.Int64
	return limit.NewSlots(limit.SlotsConfig{
		Operation: operation, Cap: most, Leases: s, Now: now,
		NewID: func() string { return fmt.Sprintf("%d-%d", environment, n.Add(1)) },
	})
}

// Clock is a clock that is moved by hand. It is safe for concurrent use.
type Clock struct{ ns atomic.Int64 }

// Now returns the clock's time in UTC.
func (c *Clock) Now() time.Time { return time.Unix(0, c.ns.Load()).UTC() }

// Set sets the clock.
func (c *Clock) Set(t time.Time) { c.ns.Store(t.UnixNano()) }

// Advance moves the clock.
func (c *Clock) Advance(d time.Duration) { c.ns.Add(int64(d)) }
