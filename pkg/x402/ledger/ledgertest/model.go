package ledgertest

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// model is what a store and its views must say: the contract, without bytes.
type model map[string]ledger.Record

func (m model) create(r ledger.Record) (existing *ledger.Record) {
	held, taken := m[r.Key]
	switch {
	case !taken:
		m[r.Key] = r
	case held.WriteID != r.WriteID:
		return &held
	}
	return nil
}

func (m model) replace(r ledger.Record) error {
	held, there := m[r.Key]
	switch {
	case there && held.Version == r.Version-1:
		m[r.Key] = r
	case !there || held.WriteID != r.WriteID:
		return ledger.ErrConflict
	}
	return nil
}

// open and owed are the lists of a ledger.Index. A key stands for its record's time.
func (m model) open(before time.Time) []string {
	return m.list(func(r ledger.Record) bool {
		undecided := r.State == ledger.Settling || r.State == ledger.Uncertain
		return (undecided || r.State == ledger.Settled && r.LeaseUntil.After(r.UpdatedAt)) && !r.OpenedAt().After(before)
	})
}

func (m model) owed() []string {
	return m.list(func(r ledger.Record) bool { return r.State == ledger.Settled && !r.LeaseUntil.After(r.UpdatedAt) })
}

func (m model) list(wanted func(ledger.Record) bool) (keys []string) {
	for key, r := range m {
		if wanted(r) {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, func(a, b string) int { return m[a].OpenedAt().Compare(m[b].OpenedAt()) })
	return keys
}

// lists compares every list of a store with the model.
func (m model) lists(t *testing.T, s Whole, before time.Time, limit int) {
	t.Helper()
	checkKeys(t, fmt.Sprintf("Open before %v, limit %d", before, limit), m.open(before), limit)(s.Open(t.Context(), before, limit))
	checkKeys(t, fmt.Sprintf("Owed, limit %d", limit), m.owed(), limit)(s.Owed(t.Context(), limit))
	want, got := map[string]ledger.Record{}, map[string]ledger.Record{}
	if limit > 0 {
		got = rows(t, s, limit)
		for key, r := range m {
			want[key] = r.Bodiless()
		}
	} else if p, err := s.Page(t.Context(), "", limit); len(p.Records) > 0 || err != nil {
		t.Errorf("a page of %d = %+v, %v", limit, p, err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("pages of %d (-want +got):\n%s", limit, diff)
	}
}

// payer compares the list of a payer with the model. Which keys it has where there
// are more than the limit is the store's affair.
func (m model) payer(t *testing.T, s Whole, prefix string, limit int) {
	t.Helper()
	all := slices.DeleteFunc(slices.Sorted(maps.Keys(m)), func(key string) bool { return !strings.HasPrefix(key, prefix) })
	got, err := s.ByPayer(t.Context(), prefix, limit)
	want := slices.DeleteFunc(slices.Clone(all), func(key string) bool { return !slices.Contains(got, key) })
	if err != nil || len(got) != max(0, min(limit, len(all))) || !slices.Equal(got, want) {
		t.Errorf("ByPayer %q, limit %d = %q, %v; there are %q", prefix, limit, got, err, all)
	}
}

// checkKeys compares the first keys that are wanted with those of a call.
func checkKeys(t *testing.T, what string, want []string, limit int) func(got []string, err error) {
	t.Helper()
	return func(got []string, err error) {
		t.Helper()
		if want := want[:max(0, min(limit, len(want)))]; !slices.Equal(want, got) || err != nil {
			t.Errorf("%s = %q, %v; want %q", what, got, err, want)
		}
	}
}

// pages reads a store to its end.
func pages(t *testing.T, v ledger.Rows, limit int) (list []ledger.Page) {
	t.Helper()
	for after := ""; len(list) < 1000; {
		p, err := v.Page(t.Context(), after, limit)
		must(t, err)
		if len(p.Records)+len(p.Corrupt) > limit {
			t.Errorf("a page of %d has %d records and %q", limit, len(p.Records), p.Corrupt)
		}
		list = append(list, p)
		if after = p.Next; after == "" {
			return list
		}
	}
	t.Fatal("the pages have no end")
	return nil
}

// rows are the records of all pages. None may be in two, nor have a body.
func rows(t *testing.T, v ledger.Rows, limit int) map[string]ledger.Record {
	t.Helper()
	all := map[string]ledger.Record{}
	for _, p := range pages(t, v, limit) {
		for _, r := range p.Records {
			if _, twice := all[r.Key]; twice {
				t.Errorf("%s is in two pages of %d", r.Key, limit)
			}
			if r.Answer != nil && r.Answer.Body != nil {
				t.Errorf("%s is in a page with the body of its answer", r.Key)
			}
			all[r.Key] = r
		}
	}
	return all
}

// write is a call of Create or Replace.
type write struct {
	creates bool
	record  ledger.Record
}

// walk sends a store what its callers may send, in any order, the same write again
// long after it too, and compares what it says, holds and lists with the model. The
// times of two records never are the same.
func walk(seed uint64) func(*testing.T, Planter) {
	return func(t *testing.T, s Planter) {
		const steps = 200
		random := rand.New(rand.NewPCG(seed, seed))
		m, sent, times := model{}, []write{}, random.Perm(steps)
		key := func() string { return fmt.Sprintf("exercise|%d|%d", random.IntN(3), random.IntN(10)) }
		limits := []int{-1, 0, 1, 7, 29, 30, 31, 1 << 20}
		for step := range steps {
			if step%10 == 0 {
				before := noon().Add(time.Duration(random.IntN(2*steps)) * time.Second)
				m.lists(t, s, before, limits[step/10%len(limits)])
				m.payer(t, s, "exercise|1|", random.IntN(13)-1)
			}
			w := write{random.IntN(3) == 0, anyRecord(random, key(), noon().Add(time.Duration(times[step])*time.Second))}
			if !w.creates {
				ahead := []int64{1, 1, 1, 1, 1, 0, 2, 1 << 53, 1<<63 - 1 - steps}
				w.record.Version = max(1, m[w.record.Key].Version+ahead[random.IntN(len(ahead))])
			}
			if len(sent) > 0 && random.IntN(4) == 0 {
				w = sent[max(0, len(sent)-1-random.IntN(10))]
			}
			sent = append(sent, w)
			w.send(t, s, m)
			for _, key := range []string{w.record.Key, key()} {
				if r, ok := m[key]; ok {
					Holds(t, s, r)
				} else {
					holdsNothing(t, s, key)
				}
			}
			if t.Failed() {
				t.Fatalf("after step %d, which sent %+v", step, w)
			}
		}
		m.lists(t, s, never(), 1000)
	}
}

// send makes a write in the store and in the model.
func (w write) send(t *testing.T, s ledger.Store, m model) {
	t.Helper()
	if !w.creates {
		if want, err := m.replace(w.record), s.Replace(t.Context(), w.record); !errors.Is(err, want) || (err == nil) != (want == nil) {
			t.Errorf("Replace = %v, want %v", err, want)
		}
		return
	}
	want := m.create(w.record)
	got, err := s.Create(t.Context(), w.record)
	if err != nil || (got == nil) != (want == nil) {
		t.Errorf("Create = %+v, %v; want %+v", got, err, want)
	} else if want != nil {
		same(t, *want, *got)
	}
}

// anyRecord is a first record in any state, whose lease is over, was over before its
// last write, or was given back.
func anyRecord(random *rand.Rand, key string, updated time.Time) ledger.Record {
	r := First(key)
	if random.IntN(2) == 0 {
		r = Full(key)
	}
	r.State = ledger.States()[random.IntN(len(ledger.States()))]
	if random.IntN(2) == 0 { // those that are listed
		r.State = []ledger.State{ledger.Settling, ledger.Uncertain, ledger.Settled}[random.IntN(3)]
	}
	r.UpdatedAt = updated
	r.LeaseUntil = []time.Time{{}, updated.Add(-time.Hour), updated.Add(500 * time.Millisecond)}[random.IntN(3)]
	return r
}
