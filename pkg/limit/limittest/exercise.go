// Package limittest is what every store of package limit has to pass, and what
// measures one.
package limittest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/pkg/limit"
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
		"cap":                  fills,
		"held after":           heldAfter,
		"same lease twice":     twice,
		"remove":               removes,
		"remove nothing":       removesNothing,
		"remove many":          removesMany,
		"operations are apart": apart,
		"lower cap":            lowerCap,
		"odd identifiers":      odd,
		"race":                 race,
		"race of the first":    raceFirst,
		"race of removals":     raceRemove,
		"slots race":           raceSlots,
		"half race":            raceHalf,
		"counts":               counts,
		"counts at once":       countsAtOnce,
		"takes":                takes,
		"takes at once":        takesAtOnce,
		"cancelled":            cancelled,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, open(t))
		})
	}
}

var noon = time.Date(2026, time.November, 1, 12, 0, 0, 0, time.UTC)

func lease(id string) limit.Lease {
	return limit.Lease{ID: id, Until: noon.Add(1234 * time.Millisecond)}
}

// acquire says what an Acquire has to come to; held is nil for a success.
func acquire(t *testing.T, s limit.Leases, operation string, l limit.Lease, most int, held ...limit.Lease) {
	t.Helper()
	got, ok, err := s.Acquire(t.Context(), operation, l, most)
	if err != nil {
		t.Fatalf("Acquire of %s: %v", l.ID, err)
	}
	if ok != (held == nil) {
		t.Fatalf("Acquire of %s = %v, %v; want %v", l.ID, got, ok, held == nil)
	}
	if !ok {
		same(t, held, got)
	} else if !slices.Contains(got, l) {
		t.Fatalf("Acquire of %s returned %v without it", l.ID, got)
	}
}

func same(t *testing.T, want, got []limit.Lease) {
	t.Helper()
	byID := func(a, b limit.Lease) int { return cmp.Compare(a.ID, b.ID) }
	want, got = slices.SortedFunc(slices.Values(want), byID), slices.SortedFunc(slices.Values(got), byID)
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Fatalf("held (-want +got):\n%s", diff)
	}
}

func remove(t *testing.T, s limit.Leases, operation string, leases ...limit.Lease) {
	t.Helper()
	if err := s.Remove(t.Context(), operation, leases...); err != nil {
		t.Fatalf("Remove: %v", err)
	}
}

// heldAfter: a lease that was added comes with all that are held now.
func heldAfter(t *testing.T, s Store) {
	a, b, c := lease("a"), lease("b"), lease("c")
	add := func(l limit.Lease, want ...limit.Lease) {
		t.Helper()
		got, ok, err := s.Acquire(t.Context(), "op", l, 3)
		if err != nil || !ok {
			t.Fatalf("Acquire = %v, %v", ok, err)
		}
		same(t, want, got)
	}
	add(a, a)
	add(b, a, b)
	add(c, a, b, c)
	remove(t, s, "op", b)
	add(a, a, c)
}

func fills(t *testing.T, s Store) {
	a, b, c := lease("a"), lease("b"), lease("c")
	b.Until = b.Until.Add(time.Hour)
	acquire(t, s, "op", a, 2)
	acquire(t, s, "op", b, 2)
	acquire(t, s, "op", c, 2, a, b)
	acquire(t, s, "op", c, 2, a, b) // the refusal added nothing
	acquire(t, s, "op", c, 3)
}

func twice(t *testing.T, s Store) {
	a, b := lease("a"), lease("b")
	acquire(t, s, "one", a, 1)
	acquire(t, s, "one", a, 1) // full, and it is ours
	acquire(t, s, "one", b, 1, a)
	acquire(t, s, "two", a, 2)
	acquire(t, s, "two", a, 2) // takes no second place
	acquire(t, s, "two", b, 2)
	acquire(t, s, "two", lease("c"), 2, a, b)
	remove(t, s, "two", a)
	acquire(t, s, "two", lease("c"), 2)
}

func removes(t *testing.T, s Store) {
	a, b := lease("a"), lease("b")
	acquire(t, s, "op", a, 1)
	renewed := a
	renewed.Until = a.Until.Add(time.Millisecond)
	remove(t, s, "op", renewed) // not what is stored
	remove(t, s, "op", b)
	acquire(t, s, "op", b, 1, a)
	remove(t, s, "op", a)
	remove(t, s, "op", a) // again
	acquire(t, s, "op", b, 1)
	remove(t, s, "op", b)
	acquire(t, s, "op", a, 1) // an empty one is like a new one
}

func removesNothing(t *testing.T, s Store) {
	remove(t, s, "op")
	remove(t, s, "op", lease("a")) // an operation that was never used
	acquire(t, s, "op", lease("b"), 1)
	remove(t, s, "op")
	acquire(t, s, "op", lease("c"), 1, lease("b"))
}

// Of many leases some may stay, but the first goes, and what is gone already
// does not keep the others.
func removesMany(t *testing.T, s Store) {
	const n = 120
	var all []limit.Lease
	for i := range n {
		all = append(all, lease(fmt.Sprintf("lease-%03d", i)))
		acquire(t, s, "op", all[i], n)
	}
	remove(t, s, "op", all[1])
	for range n { // ends well before
		held, ok, err := s.Acquire(t.Context(), "op", lease("new"), 1)
		if err != nil {
			t.Fatal(err)
		}
		if ok {
			return
		}
		oldest := slices.MinFunc(held, func(a, b limit.Lease) int { return cmp.Compare(a.ID, b.ID) })
		gone := []limit.Lease{oldest, all[1]}
		for _, l := range held {
			if l != oldest {
				gone = append(gone, l)
			}
		}
		remove(t, s, "op", gone...)
		after, ok, err := s.Acquire(t.Context(), "op", lease("new"), 0)
		if err != nil || ok {
			t.Fatalf("Acquire at a limit of 0 = %v, %v", ok, err)
		}
		if slices.Contains(after, oldest) {
			t.Fatal("the first of the removed leases is still there")
		}
	}
	t.Fatal("the leases do not go away")
}

func apart(t *testing.T, s Store) {
	acquire(t, s, "a", lease("x"), 1)
	acquire(t, s, "a|b", lease("x"), 1)
	acquire(t, s, "b", lease("y"), 1)
	remove(t, s, "b", lease("x"))
	remove(t, s, "a", lease("x"))
	acquire(t, s, "a", lease("z"), 1)
	acquire(t, s, "a|b", lease("z"), 1, lease("x"))
	acquire(t, s, "b", lease("z"), 1, lease("y"))
}

// After a deployment with a lower cap more may be held than it allows.
func lowerCap(t *testing.T, s Store) {
	var held []limit.Lease
	for i := range 5 {
		held = append(held, lease(fmt.Sprint(i)))
		acquire(t, s, "op", held[i], 5)
	}
	acquire(t, s, "op", lease("x"), 2, held...)
	remove(t, s, "op", held[:3]...)
	acquire(t, s, "op", lease("x"), 2, held[3:]...)
	remove(t, s, "op", held[3])
	acquire(t, s, "op", lease("x"), 2)
}

// Identifiers are data, whatever they look like.
func odd(t *testing.T, s Store) {
	ids := []string{"a.b", "#id", ":limit", "leases", "0", " ", "ü", "a[0]", "NULL", strings.Repeat("x", 64)}
	var held []limit.Lease
	for _, id := range ids {
		acquire(t, s, "op", lease(id), len(ids))
		held = append(held, lease(id))
	}
	acquire(t, s, "op", lease("one more"), len(ids), held...)
	remove(t, s, "op", held...)
	acquire(t, s, "op", lease("one more"), 1)
}

func race(t *testing.T, s Store) {
	const most = 7
	for _, operation := range []string{"op 0", "op 1"} {
		acquire(t, s, operation, lease("warm"), most)
		races(t, 40, most-1, func(i int) (bool, error) {
			held, ok, err := s.Acquire(t.Context(), operation, lease(fmt.Sprint(i)), most)
			if !ok && len(held) == 0 {
				t.Error("refused with nothing in the way")
			}
			return ok, err
		})
	}
}

func raceFirst(t *testing.T, s Store) {
	for _, operation := range []string{"new 0", "new 1", "new 2"} {
		races(t, 20, 3, func(i int) (bool, error) {
			_, ok, err := s.Acquire(t.Context(), operation, lease(fmt.Sprint(i)), 3)
			return ok, err
		})
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
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range held {
		if !strings.HasPrefix(l.ID, "live ") {
			t.Errorf("%s is still held", l.ID)
		}
	}
	if len(held) != n {
		t.Errorf("%d are held, want %d", len(held), n)
	}
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
