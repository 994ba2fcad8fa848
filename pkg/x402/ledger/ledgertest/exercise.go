package ledgertest

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// Planter is a store that Exercise can test. A test can plant data in it that the store itself
// would never write.
type Planter interface {
	ledger.Store
	ledger.Index
	ledger.Rows
	// Plant stores doc as the JSON form of the record under key, with version 1, even if doc
	// is not valid.
	Plant(ctx context.Context, key string, doc []byte) error
}

// Exercise tests that a store keeps the contracts of ledger.Store, ledger.Index and
// ledger.Rows. open is called once for every case, and must return an empty store. The index
// of that store must be up to date as soon as a write returns. The cases run in parallel.
func Exercise(t *testing.T, open func(t *testing.T) Planter) {
	for name, run := range map[string]func(*testing.T, Planter){
		"any calls, first": walk(1), "any calls, second": walk(2),
		"round trip":                         roundTrip,
		"answers at the bound":               answersAtBound,
		"every kind of record":               everyKind,
		"shares no memory":                   noAliasing,
		"impossible records are not written": refusesImpossible,
		"ended context":                      endedContext,
		"corrupt records":                    reportsCorrupt,
		"writers at once":                    writersAtOnce,
		"none whose lease ends later":        indexBefore,
		"places of one time":                 indexTies,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, open(t))
		})
	}
}

// roundTrip checks that the store returns records as they were written.
func roundTrip(t *testing.T, s Planter) {
	for name, change := range map[string]func(*ledger.Payment){
		"full":  func(*ledger.Payment) {},
		"large": func(r *ledger.Payment) { r.Answer.Body = make([]byte, s.MostKept()) },
		"no body": func(r *ledger.Payment) {
			r.Answer.Body = nil
			r.Answer.Stored = false
		},
		"zone": func(r *ledger.Payment) { r.ExpiresAt = r.ExpiresAt.In(time.FixedZone("", 5*3600+1800)) },
		"bare": func(r *ledger.Payment) { // with Terms, because absent terms would come back as null
			*r = ledger.Payment{
				Row:   ledger.Row{Key: r.Key, Version: 1, WriteID: "w"},
				State: ledger.Settling,
				Terms: []byte("{}"),
			}
		},
	} {
		r := Full("exercise|" + name)
		change(&r)
		MustPut(t, s, r)
		Holds(t, s, r)
	}
}

// answersAtBound checks that the store keeps an answer whose compressed body is as large as
// MostKept. If the body is one byte larger, the store must keep the record without the body.
func answersAtBound(t *testing.T, s Planter) {
	l := ledger.New(s, time.Now, rand.Text)
	if n := l.MostKept(); n < ledger.LeastKept || n > ledger.LargestKept || n != s.MostKept() {
		t.Fatalf("MostKept of the store is %d, and of its ledger %d", s.MostKept(), n)
	}
	for over, kept := range map[int]bool{0: true, 1: false} {
		body := compressesTo(t, s.MostKept()+over)
		a, err := l.NewAnswer(200, body)
		must(t, err)
		if a.Stored != kept {
			t.Fatalf("an answer of %d bytes above the bound: kept is %v", over, a.Stored)
		}
		r := Full(fmt.Sprint("exercise|bound ", over))
		a.Receipt = r.Answer.Receipt
		a.Header = r.Answer.Header
		r.Answer = &a
		MustPut(t, s, r)
		Holds(t, s, r)
		if got, err := Payment(t, s, r.Key).Answer.Plain(); kept && (err != nil || !bytes.Equal(got, body)) || !kept && err == nil {
			t.Errorf("%d bytes above the bound: %d bytes were read, %v", over, len(got), err)
		}
	}
}

// compressesTo returns a body that has the given size when it is compressed.
func compressesTo(t *testing.T, size int) []byte {
	t.Helper()
	body := make([]byte, size)
	_, _ = mathrand.NewChaCha8([32]byte{}).Read(body) // Read never fails
	length := size
	for range 100 {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		_, err := z.Write(body[:length])
		must(t, errors.Join(err, z.Close()))
		if b.Len() == size {
			return body[:length]
		}
		length = min(length-(b.Len()-size), size)
	}
	t.Fatalf("no body takes %d bytes when it is compressed", size)
	return nil
}

// everyKind writes one record of each kind except payments. Fetch must return each record as
// it was written. If another record is then put under the same key, Put must return the first
// record. The records must be in the pages of the store, and in no list.
func everyKind(t *testing.T, s Planter) {
	for _, r := range Others("exercise|kind|") {
		MustPut(t, s, r)
		Holds(t, s, r)
		current, err := s.Put(t.Context(), First(r.Head().Key))
		must(t, err)
		checkSame(t, r, current)
	}
	all, corrupt := rows(t, s, "exercise|kind|", 10)
	if len(all) != len(Others("")) || len(corrupt) > 0 {
		t.Errorf("pages have %d records and %q", len(all), corrupt)
	}
	for _, list := range ledger.Lists() {
		if places, err := s.List(t.Context(), list, time.Time{}, ledger.Place{}, 10); len(places) > 0 || err != nil {
			t.Errorf("%s has %v, %v", list, places, err)
		}
	}
}

func noAliasing(t *testing.T, s Planter) {
	r := Full("exercise|alias")
	want := Full("exercise|alias")
	want.WriteID = r.WriteID
	MustPut(t, s, r)
	fetched := Payment(t, s, r.Key)
	current, err := s.Put(t.Context(), First(r.Key))
	must(t, err)
	existing, _ := current.(ledger.Payment)
	for _, r := range []*ledger.Payment{&r, fetched, &existing} {
		r.Answer.Body[0] = 'X'
		r.Terms[0] = 'X'
		r.Receipt.Payer = "X"
		Holds(t, s, want)
	}
}

// refusesImpossible checks that Put returns an error for a record that the store could not
// keep or read back, and writes nothing. The error must not be ErrCorrupt.
func refusesImpossible(t *testing.T, s Planter) {
	for name, spoil := range map[string]func(*ledger.Payment){
		"no key":          func(r *ledger.Payment) { r.Key = "" },
		"not UTF-8 a key": func(r *ledger.Payment) { r.Key = "exercise|\xff" },
		"too long a key":  func(r *ledger.Payment) { r.Key = strings.Repeat("k", 2049) },
		"no write id":     func(r *ledger.Payment) { r.WriteID = "" },
		"no state":        func(r *ledger.Payment) { r.State = "" },
		"unknown state":   func(r *ledger.Payment) { r.State = "paid" },
		"no version":      func(r *ledger.Payment) { r.Version = 0 },
		"terms not JSON":  func(r *ledger.Payment) { r.Terms = []byte("{") },
		"impossible time": func(r *ledger.Payment) { r.UpdatedAt = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) },
		"too large": func(r *ledger.Payment) {
			r.Answer = &ledger.Answer{Stored: true, Body: make([]byte, ledger.LargestKept+1)}
		},
	} {
		r := First("exercise|" + name)
		spoil(&r)
		_, put := s.Put(t.Context(), r)
		got, fetch := s.Fetch(t.Context(), r.Key)
		if put == nil || errors.Is(put, ledger.ErrCorrupt) || got != nil {
			t.Errorf("%s: Put = %v, Fetch = %v, %v", name, put, got, fetch)
		}
	}
}

func endedContext(t *testing.T, s Planter) {
	r := First("exercise|context")
	other := First("exercise|context other")
	MustPut(t, s, r)
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	for want, ctx := range map[error]context.Context{context.Canceled: cancelled, context.DeadlineExceeded: late} {
		for verb, err := range map[string]error{
			"Put, new": errOf(s.Put(ctx, other)), "Put": errOf(s.Put(ctx, Next(r))), "Fetch": errOf(s.Fetch(ctx, r.Key)),
			"List": errOf(s.List(ctx, ledger.ListOpen, time.Time{}, ledger.Place{}, 10)),
			"Page": errOf(s.Page(ctx, "", "", 10)), "Page of a payer": errOf(s.Page(ctx, "exercise|", "", 10)),
		} {
			if !errors.Is(err, want) {
				t.Errorf("%s = %v, want %v", verb, err, want)
			}
		}
	}
	checkMissing(t, s, other.Key)
	Holds(t, s, r)
}

// reportsCorrupt checks records that cannot be read. Every Fetch of such a record, and every
// Put under its key, must fail with ErrCorrupt. No list must contain such a record, but a page
// must name its key. All other records must still be listed.
func reportsCorrupt(t *testing.T, s Planter) {
	sound := First("exercise|corrupt")
	other := First("exercise|another key")
	MustPut(t, s, sound)
	another, _, err := ledger.Marshal(other)
	must(t, err)
	docs := map[string]string{
		"empty": "", "null": "null", "cut short": `{"key":"exercise|corrupt`, "no fields": "{}",
		"unknown kind":  `{"key":"KEY","version":1,"write_id":"w","state":"settled","kind":"debt"}`,
		"another type":  `{"key":"KEY","version":"1","write_id":"w","state":"settled"}`,
		"unknown state": `{"key":"KEY","version":1,"write_id":"w","state":"paid"}`,
		"no version":    `{"key":"KEY","write_id":"w","state":"settled"}`,
		"another key":   string(another),
		"not a time":    `{"key":"KEY","version":1,"write_id":"w","state":"settled","created_at":"now"}`,
	}
	for name, doc := range docs {
		key := "exercise|corrupt " + name
		must(t, s.Plant(t.Context(), key, []byte(strings.ReplaceAll(doc, "KEY", key))))
		wrong := First(key)
		wrong.Version = 9
		for range 2 { // the second round shows that the first changed nothing
			fetched, fetch := s.Fetch(t.Context(), key)
			existing, create := s.Put(t.Context(), First(key))
			other, replace := s.Put(t.Context(), wrong)
			for verb, err := range map[string]error{"Fetch": fetch, "Put": create, "Put of version 9": replace} {
				if !errors.Is(err, ledger.ErrCorrupt) || fetched != nil || existing != nil || other != nil {
					t.Errorf("%s: %s = %v, want ErrCorrupt; %+v, %+v", name, verb, err, fetched, existing)
				}
			}
		}
	}
	model := &Memory{}
	MustPut(t, model, sound)
	for _, limit := range []int{1, 3, 100} {
		checkLists(t, model, s, time.Time{}, limit)
		if _, named := rows(t, s, "exercise|corrupt ", limit); len(named) != len(docs) {
			t.Errorf("pages of %d: corrupt are %q", limit, named)
		}
	}
}

// indexBefore checks the argument latest of List. List must leave out a record whose lease
// ends after that time, even if only by less than a millisecond. If a record was written after
// its lease ended, the time of that write counts instead.
func indexBefore(t *testing.T, s Planter) {
	at := noon()
	for key, c := range map[string]struct{ lease, updated time.Time }{
		"exercise|1 leased":  {at, at.Add(-time.Minute)},
		"exercise|2 fine":    {at.Add(300 * time.Nanosecond), at.Add(-time.Minute)},
		"exercise|3 written": {at.Add(-time.Hour), at.Add(time.Minute)}, // written after its lease ended
	} {
		r := First(key)
		r.LeaseUntil = c.lease
		r.UpdatedAt = c.updated
		MustPut(t, s, r)
	}
	keys := []string{"exercise|1 leased", "exercise|2 fine", "exercise|3 written"}
	for before, n := range map[time.Time]int{
		at.Add(-time.Nanosecond): 0, at.Add(-time.Millisecond): 0, at: 1, at.Add(200 * time.Nanosecond): 1,
		at.Add(time.Millisecond): 2, at.Add(time.Minute - time.Millisecond): 2,
		at.Add(time.Minute): 3, at.Add(time.Minute).In(time.FixedZone("", 3600)): 3,
	} {
		places, err := s.List(t.Context(), ledger.ListOpen, before, ledger.Place{}, 10)
		if got := keysOf(places); !slices.Equal(got, keys[:n]) || err != nil {
			t.Errorf("before noon%+v = %q, %v; want %q", before.Sub(at), got, err, keys[:n])
		}
	}
}

// indexTies checks that a list sorts records with the same time by their keys. The order must
// be the same for any page size.
func indexTies(t *testing.T, s Planter) {
	model := &Memory{}
	for i := range 90 { // enough for a few records in each partition of a store
		r := First(fmt.Sprintf("exercise|%d", i))
		r.State = []ledger.State{ledger.Settling, ledger.Settled}[i%2]
		r.LeaseUntil = time.Time{}
		r.UpdatedAt = noon().Add(time.Duration(i/60) * time.Second)
		MustPut(t, s, r)
		MustPut(t, model, r)
	}
	for _, limit := range []int{1, 2, 7, 44, 45} {
		checkLists(t, model, s, time.Time{}, limit)
	}
}

// writersAtOnce checks concurrent writers. First, many writers create the same record at once:
// one of them must succeed, and the others must get its record. Then each writer reads a
// count, adds one, and tries again after a conflict: no addition must be lost.
func writersAtOnce(t *testing.T, s Planter) {
	const n, each = 50, 2
	var sent [n]ledger.Payment
	var current [n]ledger.Record
	var writers errgroup.Group
	for i := range n {
		writers.Go(func() (err error) {
			sent[i] = First("exercise|race")
			current[i], err = s.Put(t.Context(), sent[i])
			return err
		})
	}
	must(t, writers.Wait())
	winner := slices.IndexFunc(sent[:], func(r ledger.Payment) bool { return r.WriteID == current[0].Head().WriteID })
	for _, r := range current {
		checkSame(t, sent[winner], r)
	}
	for range n {
		writers.Go(func() error { return addOften(t.Context(), s, sent[0].Key, each) })
	}
	must(t, writers.Wait())
	if got := Payment(t, s, sent[0].Key); got.Lookups != n*each || got.Version != n*each+1 {
		t.Errorf("%+v; want a count of %d", got, n*each)
	}
}

// addOften adds one to the count in a record the given number of times. After a conflict it
// tries again.
func addOften(ctx context.Context, s Planter, key string, times int) error {
	for tries := 0; times > 0; tries++ {
		r, err := s.Fetch(ctx, key)
		if err != nil || tries == 1000 { // each conflict means that another writer succeeded, and all writers together make far fewer than 1,000 writes
			return errors.Join(errors.New("there is no end of conflicts"), err)
		}
		before, _ := r.(ledger.Payment)
		next := Next(before)
		next.Lookups++
		held, err := s.Put(ctx, next)
		if err != nil {
			return err
		}
		if held.Head().WriteID == next.WriteID {
			times--
		}
	}
	return nil
}

func errOf[T any](_ T, err error) error { return err }
