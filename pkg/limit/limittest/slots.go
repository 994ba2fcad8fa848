package limittest

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/limit"
)

// raceSlots lets several environments run calls on one store, some of which
// crash and leave their lease behind. The clock stands still while they run, so
// at every moment the calls that run and the leases of the crashed ones that
// have not run out are no more than the cap. Between the rounds it moves, and
// the next round finds dead leases and live ones.
func raceSlots(t *testing.T, s Store) {
	const (
		environments, workers, calls, rounds = 3, 4, 2, 6
		most                                 = 5
		term                                 = 30 * time.Second
	)
	var clock Clock
	clock.Set(noon)
	var slots []*limit.Slots
	for e := range environments {
		slots = append(slots, NewSlots(s, "op", most, e, clock.Now))
	}
	crashed := map[time.Time]int{} // by the end of their leases
	var total, turned int
	for round := range rounds {
		r := crew{slots: slots, store: s, until: clock.Now().Add(term)}
		r.tried.Add(environments * workers)
		for until, n := range crashed {
			if until.After(clock.Now()) {
				r.live += n
			}
		}
		atOnce(environments*workers, func(i int) {
			for n := range calls {
				r.call(t, i%environments, n == 0)
			}
		})
		if r.worst > most {
			t.Errorf("round %d: %d leases at once, the cap is %d", round, r.worst, most)
		}
		crashed[r.until] = r.crashed
		total, turned = total+r.served, turned+r.turned
		clock.Advance(term/2 + time.Millisecond)
	}
	if total < rounds || turned == 0 {
		t.Errorf("%d served and %d turned away: the test shows nothing", total, turned)
	}
	// What crashed runs out, and the whole cap is there again.
	clock.Advance(term)
	for i := range most {
		if _, err := slots[0].Acquire(t.Context(), fmt.Sprint("after ", i), clock.Now().Add(term)); err != nil {
			t.Fatalf("slot %d after the crashes: %v", i, err)
		}
	}
	if _, err := slots[0].Acquire(t.Context(), "one more", clock.Now().Add(term)); err == nil {
		t.Error("one slot more than the cap")
	}
}

// raceHalf lets one client ask for everything at once, over several environments:
// it gets no more than its half, and the rest is there for the others.
func raceHalf(t *testing.T, s Store) {
	const environments, most, calls = 3, 6, 24
	var clock Clock
	clock.Set(noon)
	var slots []*limit.Slots
	for e := range environments {
		slots = append(slots, NewSlots(s, "op", most, e, clock.Now))
	}
	until := noon.Add(time.Minute)
	got := make([]*limit.Slot, calls)
	atOnce(calls, func(i int) {
		var err error
		var f *fault.Error
		if got[i], err = slots[i%environments].Acquire(t.Context(), "greedy", until); err != nil && (!errors.As(err, &f) || f.Code != fault.Overloaded) {
			t.Errorf("Acquire: %v", err)
		}
	})
	var first *limit.Slot
	won := 0
	for _, slot := range got {
		if slot != nil {
			first, won = slot, won+1
		}
	}
	// Each of those that were above the half gave its lease back, also where at
	// that moment another one that did the same was counted.
	if won > most/2 || won == 0 {
		t.Fatalf("one client has %d of %d slots", won, most)
	}
	for i := range most - most/2 {
		if _, err := slots[0].Acquire(t.Context(), fmt.Sprint("modest ", i), until); err != nil {
			t.Errorf("another client's slot %d: %v", i, err)
		}
	}
	if err := first.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := slots[1].Acquire(t.Context(), "greedy", until); err != nil {
		t.Errorf("below its half again: %v", err)
	}
}

// crew runs the calls of one round.
type crew struct {
	slots []*limit.Slots
	store limit.Counter
	until time.Time
	tried sync.WaitGroup // until everybody has tried once
	// clients are as many as calls, so that none of them is above its half.
	clients atomic.Int64

	mu                                   sync.Mutex
	live, worst, served, turned, crashed int
}

// call takes a slot, works, and gives it back or crashes. Whoever has a slot at
// first keeps it until everybody has tried, so that calls do meet.
func (c *crew) call(t *testing.T, environment int, first bool) {
	slot, err := c.slots[environment].Acquire(t.Context(), fmt.Sprint("client ", c.clients.Add(1)), c.until)
	if first {
		c.tried.Done()
	}
	var f *fault.Error
	c.mu.Lock()
	switch {
	case errors.As(err, &f) && f.Code == fault.Overloaded:
		c.turned++
		c.mu.Unlock()
		return
	case err != nil:
		t.Errorf("Acquire: %v", err)
		c.mu.Unlock()
		return
	}
	c.served++
	c.live++
	c.worst = max(c.worst, c.live)
	crash := c.crashed < 2
	if crash {
		c.crashed++
	}
	c.mu.Unlock()
	if crash {
		return
	}
	if _, err := c.store.Add(t.Context(), "work", noon, limit.Units{All: 1}); err != nil { // takes its time
		t.Errorf("Add: %v", err)
	}
	c.tried.Wait()
	c.mu.Lock()
	c.live--
	c.mu.Unlock()
	if err := slot.Release(t.Context()); err != nil {
		t.Errorf("Release: %v", err)
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
