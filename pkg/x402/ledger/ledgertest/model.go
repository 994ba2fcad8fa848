package ledgertest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// agree compares every list of a store with those of the model, a Memory that has the same
// records. The other stores share no code with it.
func agree(t *testing.T, model, s Whole, before time.Time, limit int) {
	t.Helper()
	for name, list := range map[string]func(Whole, ledger.Place) ([]ledger.Place, error){
		"Open": func(s Whole, after ledger.Place) ([]ledger.Place, error) {
			return s.ListInDoubt(t.Context(), before, after, limit)
		},
		"Owed": func(s Whole, after ledger.Place) ([]ledger.Place, error) {
			return s.ListOwed(t.Context(), after, limit)
		},
	} {
		var mine, theirs ledger.Place
		for more := true; more; { // page by page to the end
			want, failed := list(model, mine)
			got, err := list(s, theirs)
			if !slices.Equal(keysOf(want), keysOf(got)) || err != nil || failed != nil {
				t.Fatalf("%s before %v, limit %d after %q = %q, %v; want %q, %v", name, before, limit, theirs.Key, keysOf(got), err, keysOf(want), failed)
			}
			if more = len(want) > 0; more {
				mine, theirs = want[len(want)-1], got[len(got)-1]
			}
		}
	}
	if diff := cmp.Diff(rows(t, model, limit), rows(t, s, limit)); diff != "" {
		t.Errorf("pages of %d (-want +got):\n%s", limit, diff)
	}
}

// keysOf are the keys of places.
func keysOf(places []ledger.Place) (keys []string) {
	for _, p := range places {
		keys = append(keys, p.Key)
	}
	return keys
}

// agreeOf compares the list of a payer. Which keys it has where there are more than the
// limit is the store's affair.
func agreeOf(t *testing.T, model, s Whole, prefix string, limit int) {
	t.Helper()
	all, failed := model.ByPayer(t.Context(), prefix, 1000)
	got, err := s.ByPayer(t.Context(), prefix, limit)
	want := slices.DeleteFunc(slices.Clone(all), func(key string) bool { return !slices.Contains(got, key) })
	if err = errors.Join(err, failed); err != nil || len(got) != max(0, min(limit, len(all))) || !slices.Equal(got, want) {
		t.Errorf("ByPayer %q, limit %d = %q, %v; there are %q", prefix, limit, got, err, all)
	}
}

// pages reads a store to its end.
func pages(t *testing.T, v ledger.Rows, limit int) (list []ledger.Page) {
	t.Helper()
	for after := ""; len(list) < 1000; {
		p, err := v.Page(t.Context(), after, limit)
		must(t, err)
		if len(p.Records)+len(p.Corrupt) > max(0, limit) {
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
			if _, twice := all[r.Key]; twice || r.Answer != nil && r.Answer.Body != nil {
				t.Errorf("%s is in two pages of %d, or in one with the body of its answer", r.Key, limit)
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
		model, sent, times := &Memory{}, []write{}, random.Perm(steps)
		key := func() string { return fmt.Sprintf("exercise|%d|%d", random.IntN(3), random.IntN(10)) }
		limits := []int{-1, 0, 1, 7, 29, 30, 31, 1 << 20}
		for step := range steps {
			if step%10 == 0 {
				before := noon().Add(time.Duration(random.IntN(2*steps)) * time.Second)
				agree(t, model, s, before, limits[step/10%len(limits)])
				agreeOf(t, model, s, "exercise|1|", random.IntN(13)-1)
			}
			w := write{random.IntN(3) == 0, anyRecord(random, key(), noon().Add(time.Duration(times[step])*time.Second))}
			if held, _ := model.Fetch(t.Context(), w.record.Key); !w.creates {
				version := []int64{1, 1, 1, 1, 1, 0, 2, 1 << 53, 1<<63 - 1 - steps}[random.IntN(9)]
				if held != nil {
					version += held.Version
				}
				w.record.Version = max(1, version)
			}
			if len(sent) > 0 && random.IntN(4) == 0 {
				w = sent[max(0, len(sent)-1-random.IntN(10))]
			}
			sent = append(sent, w)
			w.send(t, model, s)
			for _, key := range []string{w.record.Key, key()} {
				if r, _ := model.Fetch(t.Context(), key); r != nil {
					Holds(t, s, *r)
				} else {
					holdsNothing(t, s, key)
				}
			}
			if t.Failed() {
				t.Fatalf("after step %d, which sent %+v", step, w)
			}
		}
		agree(t, model, s, never(), 1000)
	}
}

// send makes a write in the model and in a store, which has it then if it says so.
func (w write) send(t *testing.T, model, s ledger.Store) {
	t.Helper()
	var want, got *ledger.Record
	var failed, err error
	if w.creates {
		want, failed = model.Create(t.Context(), w.record)
		got, err = s.Create(t.Context(), w.record)
	} else {
		failed, err = model.Replace(t.Context(), w.record), s.Replace(t.Context(), w.record)
	}
	switch {
	case !errors.Is(err, failed) || (err == nil) != (failed == nil) || (got == nil) != (want == nil):
		t.Errorf("%+v, %v; want %+v, %v", got, err, want, failed)
	case want != nil:
		same(t, *want, *got)
	case err == nil:
		Holds(t, s, w.record)
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
