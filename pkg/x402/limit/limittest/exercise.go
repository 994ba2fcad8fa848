// Package limittest is what every store of package limit has to pass, and what
// measures one.
package limittest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/limit"
)

// Store is what is exercised.
type Store interface {
	limit.Leases
	limit.Counter
}

// Exercise runs the suite. open returns an empty store; several values that it
// returns within one test need not share anything.
func Exercise(t *testing.T, open func(t *testing.T) Store) {
	t.Helper()
	for name, f := range map[string]func(*testing.T, Store){
		"agrees with a model": agrees,
		"remove many":         removesMany,
		"race":                race,
		"race of removals":    raceRemove,
		"share race":          raceShare,
		"counts at once":      countsAtOnce,
		"takes at once":       takesAtOnce,
		"cancelled":           cancelled,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, open(t))
		})
	}
}

var noon = time.Date(2026, time.November, 1, 12, 0, 0, 0, time.UTC)

func lease(id string) limit.Lease {
	return limit.Lease{ID: id, Until: noon.Add(1234 * time.Second)}
}

// agrees holds a store to a model of its promises, in random steps over a few operations,
// clients and identifiers, which are data, whatever they look like. A cap may be lower
// than what is held, and a window earlier than the last.
func agrees(t *testing.T, s Store) {
	random := rand.New(rand.NewPCG(1, 2))
	pick := func(of ...string) string { return of[random.IntN(len(of))] }
	held, counted := map[string][]limit.Lease{}, map[string]limit.Units{}
	check := func(err error, want, got any, format string, args ...any) {
		t.Helper()
		if diff := gocmp.Diff(want, got); diff != "" || err != nil {
			t.Fatalf("%s: %v (-want +got):\n%s", fmt.Sprintf(format, args...), err, diff)
		}
	}
	for range 300 {
		op := pick("a", "a|b", "b")
		l := lease(pick("a.b", "#id", ":limit", "leases", "0", " ", "ü", "a[0]", "NULL", strings.Repeat("x", 64)))
		client, window := pick("203.0.113.7", "203.0.113.70", "2001:db8::/64", limit.DocumentsKey("203.0.113.7")), noon.Add(time.Duration(random.IntN(2))*limit.Window)
		n := limit.Units{All: random.IntN(6) - 1, Open: random.IntN(4) - 1}
		mine, key := slices.Contains(held[op], l), client+window.String()
		switch random.IntN(5) {
		case 0, 1: // a lease that is held takes no second place
			most := random.IntN(6)
			ok := mine || len(held[op]) < most
			if ok && !mine {
				held[op] = append(held[op], l)
			}
			got, took, err := s.Acquire(t.Context(), op, l, most)
			check(err, ok, took, "Acquire(%s, %s, %d) beside %v", op, l.ID, most, held[op])
			check(nil, sorted(held[op]), sorted(got), "Acquire(%s, %s, %d) holds", op, l.ID, most)
		case 2:
			gone := []limit.Lease{l}
			switch {
			case random.IntN(3) == 0:
				gone[0].Until = l.Until.Add(time.Second) // not what is stored
			case mine:
				gone = held[op][slices.Index(held[op], l):]
				held[op] = slices.Clone(held[op][:len(held[op])-len(gone)])
			case random.IntN(2) == 0:
				gone = nil
			}
			check(s.Remove(t.Context(), op, gone...), nil, nil, "Remove(%s, %v)", op, gone)
		case 3:
			counted[key] = limit.Units{All: counted[key].All + n.All, Open: counted[key].Open + n.Open}
			got, err := s.Add(t.Context(), client, window.In(time.FixedZone("", 3600)), n)
			check(err, counted[key], got, "Add(%s, %s, %+v)", client, window, n)
		case 4: // what would pass the limit counts nothing
			most := counted[key].All + random.IntN(4)
			ok := counted[key].All+n.All <= most
			if ok {
				counted[key] = limit.Units{All: counted[key].All + n.All, Open: counted[key].Open + n.Open}
			}
			got, took, err := s.Take(t.Context(), client, window, n, most)
			check(err, ok, took, "Take(%s, %s, %+v, %d)", client, window, n, most)
			check(nil, counted[key], got, "Take(%s, %s, %+v, %d) of", client, window, n, most)
		}
	}
}

func sorted(leases []limit.Lease) []limit.Lease {
	return slices.SortedFunc(slices.Values(leases), func(a, b limit.Lease) int { return cmp.Compare(a.ID, b.ID) })
}

// acquire adds a lease that there is room for.
func acquire(t *testing.T, s limit.Leases, operation string, l limit.Lease, most int) {
	t.Helper()
	if held, ok, err := s.Acquire(t.Context(), operation, l, most); err != nil || !ok {
		t.Fatalf("Acquire of %s = %v, %v, %v", l.ID, held, ok, err)
	}
}

// Of many leases some may stay, but the first goes, and what is gone already
// does not keep the others.
func removesMany(t *testing.T, s Store) {
	const n = 120
	var left []limit.Lease
	for i := range n {
		left = append(left, lease(fmt.Sprintf("lease-%03d", i)))
		acquire(t, s, "op", left[i], n)
	}
	for len(left) > 0 {
		first := left[0]
		removed := s.Remove(t.Context(), "op", append([]limit.Lease{first, lease("gone")}, left[1:]...)...)
		held, _, err := s.Acquire(t.Context(), "op", lease("new"), 0)
		if removed != nil || err != nil || slices.Contains(held, first) || len(held) >= len(left) {
			t.Fatalf("%d are held after a removal of %d, and %s may be: %v, %v", len(held), len(left), first.ID, removed, err)
		}
		left = sorted(held)
	}
}

// No more than the cap get a lease at once, of an operation that was never used, too.
func race(t *testing.T, s Store) {
	for operation, warm := range map[string]int{"warm 0": 4, "warm 1": 4, "new 0": 0, "new 1": 0} {
		for i := range warm {
			acquire(t, s, operation, lease(fmt.Sprint("warm ", i)), 7)
		}
		races(t, 30, 7-warm, func(i int) (bool, error) {
			held, ok, err := s.Acquire(t.Context(), operation, lease(fmt.Sprint(i)), 7)
			if !ok && len(held) == 0 {
				t.Error("refused with nothing in the way")
			}
			return ok, err
		})
	}
}

func takesAtOnce(t *testing.T, s Store) {
	races(t, 30, 7, func(int) (bool, error) {
		_, ok, err := s.Take(t.Context(), "c", noon, limit.Units{All: 5, Open: 4}, 35)
		return ok, err
	})
}

func countsAtOnce(t *testing.T, s Store) {
	const n, each = 20, 3
	totals := make([]int, n)
	atOnce(n, func(i int) {
		total, err := s.Add(t.Context(), "c", noon, limit.Units{All: each})
		if err != nil {
			t.Errorf("Add: %v", err)
		}
		totals[i] = total.All
	})
	slices.Sort(totals)
	for i, got := range totals {
		if want := each * (i + 1); got != want {
			t.Fatalf("totals are %v, want each multiple of %d once", totals, each)
		}
	}
}

// Several remove the same dead leases, and nobody's new one.
func raceRemove(t *testing.T, s Store) {
	const n = 12
	var dead []limit.Lease
	for i := range n {
		dead = append(dead, lease(fmt.Sprint("dead ", i)))
		acquire(t, s, "op", dead[i], n)
	}
	races(t, n, n, func(i int) (bool, error) {
		removed := s.Remove(t.Context(), "op", dead...)
		_, ok, err := s.Acquire(t.Context(), "op", lease(fmt.Sprint("live ", i)), n)
		return ok, errors.Join(removed, err)
	})
	held, _, err := s.Acquire(t.Context(), "op", lease("x"), n)
	others := slices.ContainsFunc(held, func(l limit.Lease) bool { return !strings.HasPrefix(l.ID, "live ") })
	if err != nil || others || len(held) != n {
		t.Errorf("%v are held, want %d that live: %v", held, n, err)
	}
}

// slotFor asks for a slot; nil is a refusal.
func slotFor(t *testing.T, slots *limit.Slots, client string, until time.Time) *limit.Slot {
	slot, err := slots.Acquire(t.Context(), client, until)
	if err != nil && fault.From(err).Code != fault.Overloaded {
		t.Errorf("Acquire: %v", err)
	}
	return slot
}

// raceShare lets one client ask for everything at once, over several environments: it gets no
// more than its quarter, and the rest is there for the others, and there again when what nobody
// gave back has run out.
func raceShare(t *testing.T, s Store) {
	const most, calls = 12, 24
	var clock Clock
	clock.Set(noon)
	var slots []*limit.Slots
	for e := range 3 {
		slots = append(slots, NewSlots(s, "op", most, e, clock.Now))
	}
	until := clock.Now().Add(time.Minute)
	got := make(chan *limit.Slot, calls)
	atOnce(calls, func(i int) {
		if slot := slotFor(t, slots[i%len(slots)], "greedy", until); slot != nil {
			got <- slot
		}
	})
	// Each of those that were above the share gave its lease back, also where at
	// that moment another one that did the same was counted.
	if won := len(got); won > most/4 || won == 0 {
		t.Fatalf("one client has %d of %d slots", won, most)
	}
	modest := func(most int) {
		t.Helper()
		for i := range most {
			if slotFor(t, slots[0], fmt.Sprint("modest ", i), clock.Now().Add(time.Minute)) == nil {
				t.Errorf("another client does not get slot %d", i)
			}
		}
	}
	modest(most - most/4)
	if err := (<-got).Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if slotFor(t, slots[1], "greedy", until) == nil {
		t.Error("refused below its share again")
	}
	clock.Advance(time.Minute)
	modest(most)
}

func cancelled(t *testing.T, s Store) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, ok, err := s.Acquire(ctx, "op", lease("a"), 1); err == nil || ok {
		t.Errorf("Acquire = %v, %v", ok, err)
	}
	if err := s.Remove(ctx, "op", lease("a")); err == nil {
		t.Error("Remove: no error")
	}
	if _, err := s.Add(ctx, "c", noon, limit.Units{All: 1}); err == nil {
		t.Error("Add: no error")
	}
	if _, ok, err := s.Take(ctx, "c", noon, limit.Units{All: 1}, 10); err == nil || ok {
		t.Errorf("Take = %v, %v", ok, err)
	}
	acquire(t, s, "op", lease("b"), 1)
}

// races runs f n times at once; so many of them must win.
func races(t *testing.T, n, winners int, f func(i int) (bool, error)) {
	t.Helper()
	var won atomic.Int64
	atOnce(n, func(i int) {
		ok, err := f(i)
		if err != nil {
			t.Error(err)
		}
		if ok {
			won.Add(1)
		}
	})
	if got := int(won.Load()); got != winners {
		t.Errorf("%d of %d won, want %d", got, n, winners)
	}
}

// atOnce runs f n times at the same time and waits.
func atOnce(n int, f func(i int)) {
	var wg sync.WaitGroup
	ready := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-ready
			f(i)
		})
	}
	close(ready)
	wg.Wait()
}
