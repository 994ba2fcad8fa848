package ledgertest

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// checkLists compares every list and all pages of a store with those of the model. The model
// is a Memory with the same readable records. It shares no code with the other stores.
func checkLists(t *testing.T, model, s Planter, before time.Time, limit int) {
	t.Helper()
	for _, list := range ledger.Lists() {
		var mine, theirs ledger.Place
		for more := true; more; { // page by page to the end
			want, failed := model.List(t.Context(), list, before, mine, limit)
			got, err := s.List(t.Context(), list, before, theirs, limit)
			if !slices.Equal(keysOf(want), keysOf(got)) || err != nil || failed != nil {
				t.Fatalf("%s before %v, limit %d after %q = %q, %v; want %q, %v", list, before, limit, theirs.Key, keysOf(got), err, keysOf(want), failed)
			}
			if more = len(want) > 0; more {
				mine = want[len(want)-1]
				theirs = got[len(got)-1]
			}
		}
	}
	checkPages(t, model, s, "", limit)
}

// checkPages compares the pages of a store with those of the model. It compares only the
// records whose keys begin with the given prefix.
func checkPages(t *testing.T, model, s Planter, prefix string, limit int) {
	t.Helper()
	want, _ := rows(t, model, prefix, limit)
	got, _ := rows(t, s, prefix, limit)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("pages of %d of %q (-want +got):\n%s", limit, prefix, diff)
	}
}

// keysOf returns the keys of the records at some places.
func keysOf(places []ledger.Place) (keys []string) {
	for _, p := range places {
		keys = append(keys, p.Key)
	}
	return keys
}

// rows returns the records of all pages, and the keys of the records that cannot be read. It
// fails the test if a page is too large, if a record is in two pages, or if a record has the
// body of its answer.
func rows(t *testing.T, v ledger.Rows, prefix string, limit int) (all map[string]ledger.Record, corrupt []string) {
	t.Helper()
	all = map[string]ledger.Record{}
	after := ""
	for range 1000 {
		p, err := v.Page(t.Context(), prefix, after, limit)
		must(t, err)
		if len(p.Records)+len(p.Corrupt) > max(0, limit) {
			t.Errorf("a page of %d has %d records and %q", limit, len(p.Records), p.Corrupt)
		}
		for _, r := range p.Records {
			key := r.Head().Key
			if _, twice := all[key]; twice || bodyOf(r) != nil {
				t.Errorf("%s is in two pages of %d, or in one with the body of its answer", key, limit)
			}
			all[key] = r
		}
		corrupt = append(corrupt, p.Corrupt...)
		if after = p.Next; after == "" {
			return all, corrupt
		}
	}
	t.Fatal("the pages have no end")
	return nil, nil
}

// oddKeys returns keys that a store must treat as plain bytes. It must treat their prefixes in
// the same way. All of these keys are different. But a database could take some of them for
// equal, such as two keys that differ only in case, and some of them for patterns.
func oddKeys() []string {
	return []string{
		"exercise|", "exercise| ", "exercise|\x00", "exercise|\x00\x00", "exercise|\n", `exercise|"`, `exercise|\`, "exercise|%00", "exercise|é",
		"exercise|e\u0301", "exercise|\u2028", "exercise|\U0001f4b8", "exercise|\ufffd", "exercise|\x7f",
		"eip155:8453|0xA|0xb|0x01", "eip155:8453|0xa|0xb|0x01", strings.Repeat("k", 2048),
		"exercise|a", "exercise|a|", "exercise|a|1", "exercise|a|1|0xtx", "exercise|a|\U0001f4b8", "exercise|aa|1", "exercise|A|1", "exercise|b|1",
		"exercise|%|1", "exercise|_|1", "exercise|*|1", "cursor|exercise|a|1", "id|exercise|a|1", "x exercise|a|1",
	}
}

// walk writes random records to a store and to the model, and compares the replies, the
// records and the lists of the two. Some writes repeat one of the last ten. No two new records
// have the same time, because indexTies tests equal times.
func walk(seed uint64) func(*testing.T, Planter) {
	return func(t *testing.T, s Planter) {
		w := &walker{
			T: t, store: s, model: &Memory{}, keys: oddKeys(),
			random: rand.New(rand.NewPCG(seed, seed)),
		}
		w.times = w.random.Perm(walkSteps)
		limits := []int{-1, 0, 1, 7, 29, 30, 31, 1 << 20}
		for step := range walkSteps {
			if step%10 == 0 {
				w.compareLists(step/10, limits[step/10%len(limits)])
			}
			w.writeStep(step)
		}
		w.compareAll()
	}
}

// walkSteps is the number of writes of a walk.
const walkSteps = 200

// walkPrefixes returns key prefixes. A walk asks the store and the model for the pages under
// these prefixes, and compares the pages.
func walkPrefixes() []string {
	return []string{"exercise|a|", "exercise|%|", "exercise|_|", "exercise|*|", "exercise|c|"}
}

// walker sends a store and the model the same writes.
type walker struct {
	*testing.T
	store       Planter
	model       *Memory
	random      *rand.Rand
	keys        []string
	times       []int // for each step, the time of its record, in seconds after noon
	sentRecords []ledger.Payment
}

// compareLists compares the lists and some pages of the store and the model.
func (w *walker) compareLists(n, limit int) {
	until := noon().Add(time.Duration(w.random.IntN(2*walkSteps)) * time.Second)
	checkLists(w.T, w.model, w.store, until, limit)
	prefixes := walkPrefixes()
	checkPages(w.T, w.model, w.store, prefixes[n%len(prefixes)], limit)
}

// nextRecord returns the record to write in a step: a new record of any version, or a record
// that the walk has already sent.
func (w *walker) nextRecord(step int) ledger.Payment {
	r := anyRecord(w.random, w.keys[step%len(w.keys)], noon().Add(time.Duration(w.times[step])*time.Second))
	held, _ := w.model.Fetch(w.Context(), r.Key)
	switch {
	case held == nil:
		r.Version = []int64{1, 1, 2, 1 << 53}[w.random.IntN(4)]
	case w.random.IntN(3) > 0:
		r.Version = max(1, held.Head().Version+[]int64{1, 1, 1, 1, 1, 0, 2, 1 << 53, 1<<63 - 1 - walkSteps}[w.random.IntN(9)])
	}
	if len(w.sentRecords) > 0 && w.random.IntN(4) == 0 {
		r = w.sentRecords[max(0, len(w.sentRecords)-1-w.random.IntN(10))]
	}
	w.sentRecords = append(w.sentRecords, r)
	return r
}

// writeStep sends one write to the store and to the model, and compares the replies and the
// stored records.
func (w *walker) writeStep(step int) {
	w.Helper()
	r := w.nextRecord(step)
	want, failed := w.model.Put(w.Context(), r)
	got, err := w.store.Put(w.Context(), r)
	if err = errors.Join(err, failed); err != nil || (got == nil) != (want == nil) {
		w.Errorf("%+v, %v; want %+v", got, err, want)
	} else if want != nil {
		checkSame(w.T, want, got)
	}
	for _, key := range []string{r.Key, w.keys[w.random.IntN(len(w.keys))]} {
		if held, _ := w.model.Fetch(w.Context(), key); held != nil {
			Holds(w.T, w.store, held)
		} else {
			checkMissing(w.T, w.store, key)
		}
	}
	if w.Failed() {
		w.Fatalf("after step %d, which sent %+v", step, r)
	}
}

// compareAll compares all lists, pages and records.
func (w *walker) compareAll() {
	w.Helper()
	checkLists(w.T, w.model, w.store, time.Time{}, 1000)
	for _, prefix := range walkPrefixes() {
		checkPages(w.T, w.model, w.store, prefix, 1000)
	}
	for _, key := range w.model.Keys() {
		r, _ := w.model.Fetch(w.Context(), key)
		Holds(w.T, w.store, r)
	}
}

// anyRecord returns a record of version 1 in a random state. The record has no lease, a lease
// that ended before the last write, or a lease that ends after the last write.
func anyRecord(random *rand.Rand, key string, updated time.Time) ledger.Payment {
	r := First(key)
	if random.IntN(2) == 0 {
		r = Full(key)
	}
	r.State = ledger.States()[random.IntN(len(ledger.States()))]
	if random.IntN(2) == 0 { // half of the records have a state that can be listed
		r.State = []ledger.State{ledger.Settling, ledger.Uncertain, ledger.Settled, ledger.Refused, ledger.Superseded}[random.IntN(5)]
		r.NoNode = true
		r.Sent = true
		r.Disproved = false
	}
	r.UpdatedAt = updated
	r.LeaseUntil = []time.Time{{}, updated.Add(-time.Hour), updated.Add(500 * time.Millisecond)}[random.IntN(3)]
	return r
}
