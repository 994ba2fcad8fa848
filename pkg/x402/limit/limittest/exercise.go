// Package limittest has the tests that every store of package limit must pass, and a store that
// records its calls.
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
	"golang.org/x/sync/errgroup"

	"github.com/hostfacts/hostfacts/pkg/x402/limit"
)

// Exercise runs the tests. open must return an empty store on every call.
func Exercise(t *testing.T, open func(t *testing.T) limit.Store) {
	t.Helper()
	for name, f := range map[string]func(*testing.T, limit.Store){
		"agrees with a model": agreesWithModel,
		"race":                race,
		"race of removals":    raceRemove,
		"counts at once":      countsAtOnce,
		"cancelled":           cancelledContext,
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

// agreesWithModel compares a store with a model in random steps over a few operations, clients
// and ids. Some of the names look like syntax, and must be treated as plain data. The steps
// include unusual cases: a limit below the number of leases held, and a window that is earlier
// than the last one, even by hours, as if the clock had been wrong.
func agreesWithModel(t *testing.T, s limit.Store) {
	random := rand.New(rand.NewPCG(1, 2))
	pick := func(of ...string) string { return of[random.IntN(len(of))] }
	held := map[string][]limit.Lease{}
	counted := map[string]limit.Units{}
	check := func(err error, want, got any, format string, args ...any) {
		t.Helper()
		if diff := gocmp.Diff(want, got); diff != "" || err != nil {
			t.Fatalf("%s: %v (-want +got):\n%s", fmt.Sprintf(format, args...), err, diff)
		}
	}
	for range 300 {
		op := pick("a", "a|b", "b")
		l := lease(pick("a.b", "#id", ":limit", "leases", "0", " ", "ü", "a[0]", "NULL", strings.Repeat("x", 64)))
		mine := slices.Contains(held[op], l)
		switch random.IntN(5) {
		case 0, 1: // Acquire: a lease that is held already is not added twice
			maxLeases := random.IntN(6)
			ok := mine || len(held[op]) < maxLeases
			if ok && !mine {
				held[op] = append(held[op], l)
			}
			got, took, err := s.Acquire(t.Context(), op, l, maxLeases)
			check(err, ok, took, "Acquire(%s, %s, %d) beside %v", op, l.ID, maxLeases, held[op])
			check(nil, sortLeases(held[op]), sortLeases(got), "Acquire(%s, %s, %d) holds", op, l.ID, maxLeases)
		case 2: // Remove: stored leases are removed even if the list also has leases that are not stored
			gone := []limit.Lease{l, lease("gone")}
			switch {
			case random.IntN(3) == 0:
				gone[0].Until = l.Until.Add(time.Second) // a different time from that of the stored lease
			case mine:
				at := slices.Index(held[op], l)
				gone = append(gone, held[op][at:]...)
				held[op] = slices.Clone(held[op][:at])
			case random.IntN(2) == 0:
				gone = nil
			}
			check(s.Remove(t.Context(), op, gone...), nil, nil, "Remove(%s, %v)", op, gone)
		default: // Count: units that would exceed the limit are not counted
			client := pick("203.0.113.7", "203.0.113.70", "2001:db8::/64", limit.DocumentsKey("203.0.113.7"))
			window := noon.Add([]time.Duration{0, limit.Window, 5 * time.Hour, 5*time.Hour + limit.Window}[random.IntN(4)])
			n := limit.Units{All: random.IntN(6) - 1, Open: random.IntN(4) - 1}
			key := client + window.String()
			maxUnits := []int{limit.Unbounded, counted[key].All + random.IntN(4)}[random.IntN(2)]
			ok := counted[key].All+n.All <= maxUnits
			if ok {
				counted[key] = limit.Units{All: counted[key].All + n.All, Open: counted[key].Open + n.Open}
			}
			got, took, err := s.Count(t.Context(), client, window.In(time.FixedZone("", 3600)), n, maxUnits)
			check(err, ok, took, "Count(%s, %s, %+v, %d)", client, window, n, maxUnits)
			check(nil, counted[key], got, "Count(%s, %s, %+v, %d) of", client, window, n, maxUnits)
		}
	}
}

func sortLeases(leases []limit.Lease) []limit.Lease {
	return slices.SortedFunc(slices.Values(leases), func(a, b limit.Lease) int { return cmp.Compare(a.ID, b.ID) })
}

// acquire adds a lease and fails the test if it is refused.
func acquire(t *testing.T, s limit.Store, operation string, l limit.Lease, maxLeases int) {
	t.Helper()
	if held, ok, err := s.Acquire(t.Context(), operation, l, maxLeases); err != nil || !ok {
		t.Fatalf("Acquire of %s = %v, %v, %v", l.ID, held, ok, err)
	}
}

// race checks that concurrent callers never get more leases than the limit, even for an
// operation that was never used before.
func race(t *testing.T, s limit.Store) {
	for operation, warm := range map[string]int{"warm 0": 4, "warm 1": 4, "new 0": 0, "new 1": 0} {
		for i := range warm {
			acquire(t, s, operation, lease(fmt.Sprint("warm ", i)), 7)
		}
		runRacers(t, 30, 7-warm, func(i int) (bool, error) {
			held, ok, err := s.Acquire(t.Context(), operation, lease(fmt.Sprint(i)), 7)
			if !ok && len(held) == 0 {
				t.Error("refused with nothing in the way")
			}
			return ok, err
		})
	}
}

// raceRemove checks that no new lease is lost when several callers remove the same expired
// leases at once.
func raceRemove(t *testing.T, s limit.Store) {
	const n = 12
	var dead []limit.Lease
	for i := range n {
		dead = append(dead, lease(fmt.Sprint("dead ", i)))
		acquire(t, s, "op", dead[i], n)
	}
	runRacers(t, n, n, func(i int) (bool, error) {
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

func countsAtOnce(t *testing.T, s limit.Store) {
	runRacers(t, 30, 7, func(int) (bool, error) {
		_, ok, err := s.Count(t.Context(), "bounded", noon, limit.Units{All: 5, Open: 4}, 35)
		return ok, err
	})
	const n, each = 20, 3
	totals := map[int]int{}
	var mu sync.Mutex
	runRacers(t, n, n, func(int) (bool, error) {
		total, ok, err := s.Count(t.Context(), "c", noon, limit.Units{All: each}, limit.Unbounded)
		mu.Lock()
		defer mu.Unlock()
		totals[total.All]++
		return ok && total.All%each == 0 && totals[total.All] == 1, err
	})
}

func cancelledContext(t *testing.T, s limit.Store) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, acquired, acquiring := s.Acquire(ctx, "op", lease("a"), 1)
	_, counted, counting := s.Count(ctx, "c", noon, limit.Units{All: 1}, limit.Unbounded)
	if removing := s.Remove(ctx, "op", lease("a")); acquired || counted || acquiring == nil || counting == nil || removing == nil {
		t.Errorf("Acquire = %v, %v; Count = %v, %v; Remove = %v", acquired, acquiring, counted, counting, removing)
	}
	acquire(t, s, "op", lease("b"), 1)
}

// runRacers makes n calls of f at once, and fails the test unless the number of calls that
// return true is winners.
func runRacers(t *testing.T, n, winners int, f func(i int) (bool, error)) {
	t.Helper()
	var all errgroup.Group
	var won atomic.Int64
	for i := range n {
		all.Go(func() error {
			ok, err := f(i)
			if ok {
				won.Add(1)
			}
			return err
		})
	}
	if err := all.Wait(); err != nil || won.Load() != int64(winners) {
		t.Errorf("%d of %d won, want %d; %v", won.Load(), n, winners, err)
	}
}
