package limittest

import (
	"slices"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/limit"
)

func counts(t *testing.T, s Store) {
	open := 0
	add := func(client string, window time.Time, n, want int) {
		t.Helper()
		if got, err := s.Add(t.Context(), client, window, limit.Units{All: n}); err != nil || got != (limit.Units{All: want, Open: open}) {
			t.Errorf("Add(%s, %s, %d) = %+v, %v; want %d and %d", client, window, n, got, err, want, open)
		}
	}
	next := noon.Add(limit.Window)
	add("203.0.113.7", noon, 31, 31)
	add("203.0.113.7", noon, 1, 32)
	add("203.0.113.70", noon, 5, 5)
	add("2001:db8::/64", noon, 2, 2)
	add("203.0.113.7", next, 3, 3)
	add("203.0.113.7", noon, 1, 33) // a late report of the window before
	add("203.0.113.7", next, 3, 6)
	add("203.0.113.7", noon.In(time.FixedZone("", 3600)), 1, 34)
	for _, n := range []limit.Units{{All: 5, Open: 4}, {All: 5, Open: 4}, {All: -4, Open: -4}} {
		open += n.Open
		if got, err := s.Add(t.Context(), "203.0.113.7", noon, n); err != nil || got.Open != open {
			t.Errorf("Add of %+v = %+v, %v", n, got, err)
		}
	}
	add("203.0.113.7", noon, 1, 41)
}

// takes: what would pass the limit counts nothing.
func takes(t *testing.T, s Store) {
	take := func(client string, n, most int, ok bool, want limit.Units) {
		t.Helper()
		got, took, err := s.Take(t.Context(), client, noon, limit.Units{All: n, Open: n - 1}, most)
		if err != nil || took != ok || got != want {
			t.Errorf("Take(%s, %d of %d) = %+v, %v, %v; want %+v, %v", client, n, most, got, took, err, want, ok)
		}
	}
	take("a", 5, 4, false, limit.Units{})
	take("a", 5, 10, true, limit.Units{All: 5, Open: 4})
	take("a", 5, 9, false, limit.Units{All: 5, Open: 4})
	take("a", 5, 10, true, limit.Units{All: 10, Open: 8})
	take("a", 1, 10, false, limit.Units{All: 10, Open: 8})
	take("b", 1, 1, true, limit.Units{All: 1})
	if got, err := s.Add(t.Context(), "a", noon, limit.Units{All: -4, Open: -4}); err != nil || got != (limit.Units{All: 6, Open: 4}) {
		t.Errorf("given back: %+v, %v", got, err)
	}
	take("a", 4, 10, true, limit.Units{All: 10, Open: 7})
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
