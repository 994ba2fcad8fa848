package ledgertest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// Whole is a store with every view of it.
type Whole interface {
	ledger.Store
	ledger.Index
	ledger.Payers
	ledger.Rows
}

// Planter is a Whole that can be made to hold what it would never write.
type Planter interface {
	Whole
	// Plant stores doc as the JSON form of the record under key, version 1,
	// whatever doc is.
	Plant(ctx context.Context, key string, doc []byte) error
}

// Exercise runs the contracts of ledger.Store and of its views against a store. open
// returns an empty one, once for every case, with an index that is up to date when a
// write returns; the cases run in parallel.
func Exercise(t *testing.T, open func(t *testing.T) Planter) {
	for name, run := range map[string]func(*testing.T, Planter){
		"any calls, first": walk(1), "any calls, second": walk(2),
		"round trip":                         roundTrip,
		"shares no memory":                   noAliasing,
		"odd keys":                           oddKeys,
		"impossible keys":                    impossibleKeys,
		"unreadable records are not written": refuseUnreadable,
		"large answers":                      large,
		"ended context":                      endedContext,
		"corrupt records":                    corrupt,
		"50 creates of one key":              raceCreate,
		"no lost update":                     raceCount,
		"none whose lease ends later":        indexBefore,
		"nobody else's":                      payersOthers,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, open(t))
		})
	}
}

// roundTrip: what was written comes back, from a fetch whole, and in a page without
// the body of its answer.
func roundTrip(t *testing.T, s Planter) {
	bare := ledger.Record{
		Key: "exercise|bare", Version: 1, WriteID: "w", State: ledger.Settling,
		Terms: []byte("{}"), // an absent one would come back as null
	}
	noBody := Full("exercise|no body")
	noBody.Answer.Body, noBody.Answer.Stored = nil, false
	manyBytes := Full("exercise|bytes")
	for b := range 256 {
		manyBytes.Answer.Body = append(manyBytes.Answer.Body, byte(b))
	}
	zone := Full("exercise|zone")
	zone.ExpiresAt = zone.ExpiresAt.In(time.FixedZone("", 5*3600+1800))
	later := Full("exercise|version")
	later.Version = 1<<63 - 1
	all := map[string]ledger.Record{}
	for _, r := range []ledger.Record{bare, noBody, manyBytes, zone, later, Full("exercise|full")} {
		MustCreate(t, s, r)
		Holds(t, s, r)
		all[r.Key] = r.Bodiless()
	}
	if diff := cmp.Diff(all, rows(t, s, 10)); diff != "" {
		t.Errorf("pages (-want +got):\n%s", diff)
	}
}

func noAliasing(t *testing.T, s Planter) {
	r, want := Full("exercise|alias"), Full("exercise|alias")
	want.WriteID = r.WriteID
	MustCreate(t, s, r)
	fetched, err := s.Fetch(t.Context(), r.Key)
	must(t, err)
	existing, err := s.Create(t.Context(), First(r.Key))
	must(t, err)
	for _, r := range []*ledger.Record{&r, fetched, existing} {
		r.Answer.Body[0], r.Terms[0], r.Receipt.Payer = 'X', 'X', "X"
		Holds(t, s, want)
	}
}

// oddKeys: keys are bytes, and each is another one.
func oddKeys(t *testing.T, s Planter) {
	m := model{}
	for i, k := range []string{
		"", " ", "\x00", "\x00\x00", "\n", `"`, `\`, "%00", "é", "e\u0301", "\u2028", "\U0001f4b8", "\ufffd", "\x7f",
		"eip155:8453|0xA|0xb|0x01", "eip155:8453|0xa|0xb|0x01", strings.Repeat("k", maxKey-len("exercise|")),
	} {
		r := First("exercise|" + k)
		r.UpdatedAt = r.UpdatedAt.Add(time.Duration(i) * time.Hour)
		MustCreate(t, s, r)
		m[r.Key] = r
	}
	for _, r := range m {
		Holds(t, s, r)
	}
	m.lists(t, s, never(), 1000)
}

func impossibleKeys(t *testing.T, s Planter) {
	for _, key := range []string{"", "exercise|\xff", strings.Repeat("k", maxKey+1)} {
		r := First(key)
		_, create := s.Create(t.Context(), r)
		_, fetch := s.Fetch(t.Context(), key)
		for verb, err := range map[string]error{"Create": create, "Replace": s.Replace(t.Context(), Next(r)), "Fetch": fetch} {
			if err == nil {
				t.Errorf("%s of key %.20q without an error", verb, key)
			}
		}
	}
}

func refuseUnreadable(t *testing.T, s Planter) {
	for name, spoil := range map[string]func(*ledger.Record){
		"no write id":     func(r *ledger.Record) { r.WriteID = "" },
		"no state":        func(r *ledger.Record) { r.State = "" },
		"unknown state":   func(r *ledger.Record) { r.State = "paid" },
		"no version":      func(r *ledger.Record) { r.Version = 0 },
		"terms not JSON":  func(r *ledger.Record) { r.Terms = []byte("{") },
		"impossible time": func(r *ledger.Record) { r.UpdatedAt = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) },
	} {
		r := First("exercise|unreadable " + name)
		spoil(&r)
		if _, err := s.Create(t.Context(), r); err == nil || errors.Is(err, ledger.ErrCorrupt) {
			t.Errorf("%s: Create = %v, want an error other than ErrCorrupt: nothing stored is corrupt", name, err)
		}
		holdsNothing(t, s, r.Key)
	}
}

func large(t *testing.T, s Planter) {
	r := Full("exercise|large")
	r.Answer.Body = noise(300 << 10)
	MustCreate(t, s, r)
	Holds(t, s, r)
	r = Next(r)
	r.Answer = &ledger.Answer{Stored: true, Body: noise(300 << 10)}
	MustReplace(t, s, r)
	Holds(t, s, r)
	tooLarge := Next(Full(r.Key))
	tooLarge.Version, tooLarge.Answer.Body = r.Version+1, noise(400<<10)
	if err := s.Replace(t.Context(), tooLarge); err == nil || errors.Is(err, ledger.ErrConflict) {
		t.Errorf("Replace with more than 400 KB = %v, want another error", err)
	}
	Holds(t, s, r)
}

func endedContext(t *testing.T, s Planter) {
	r, other := First("exercise|context"), First("exercise|context other")
	MustCreate(t, s, r)
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	for want, ctx := range map[error]context.Context{context.Canceled: cancelled, context.DeadlineExceeded: late} {
		_, create := s.Create(ctx, other)
		_, fetch := s.Fetch(ctx, r.Key)
		open, errOpen := s.Open(ctx, never(), 10)
		owed, errOwed := s.Owed(ctx, 10)
		paid, errPaid := s.ByPayer(ctx, "exercise|", 10)
		page, errPage := s.Page(ctx, "", 10)
		for verb, err := range map[string]error{
			"Create": create, "Replace": s.Replace(ctx, Next(r)), "Fetch": fetch,
			"Open": errOpen, "Owed": errOwed, "ByPayer": errPaid, "Page": errPage,
		} {
			if !errors.Is(err, want) {
				t.Errorf("%s = %v, want %v", verb, err, want)
			}
		}
		if len(open)+len(owed)+len(paid)+len(page.Records) > 0 {
			t.Errorf("lists of an ended context: %q, %q, %q, %+v", open, owed, paid, page)
		}
	}
	holdsNothing(t, s, other.Key)
	Holds(t, s, r)
}

// corrupt: what cannot be read is an error, however often it is asked for, is in no
// list, is named in its page, and hides no other record.
func corrupt(t *testing.T, s Planter) {
	sound, other := First("exercise|corrupt"), First("exercise|another key")
	MustCreate(t, s, sound)
	another, _, err := other.Marshal()
	must(t, err)
	docs := map[string]string{
		"empty": "", "null": "null", "cut short": `{"key":"exercise|corrupt`, "no fields": "{}",
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
		for range 2 { // the first round changed nothing
			fetched, fetch := s.Fetch(t.Context(), key)
			existing, create := s.Create(t.Context(), First(key))
			for verb, err := range map[string]error{"Fetch": fetch, "Create": create, "Replace": s.Replace(t.Context(), wrong)} {
				if !errors.Is(err, ledger.ErrCorrupt) || fetched != nil || existing != nil {
					t.Errorf("%s: %s = %v, want ErrCorrupt; %+v, %+v", name, verb, err, fetched, existing)
				}
			}
		}
	}
	m := model{sound.Key: sound}
	for _, limit := range []int{1, 3, 100} {
		var named []string
		for _, p := range pages(t, s, limit) {
			named = append(named, p.Corrupt...)
		}
		if got := rows(t, s, limit); len(named) != len(docs) || len(got) != 1 || got[sound.Key].WriteID != sound.WriteID {
			t.Errorf("pages of %d: corrupt are %q, records %v", limit, named, got)
		}
	}
	checkKeys(t, "Open", m.open(never()), 100)(s.Open(t.Context(), never(), 100))
	checkKeys(t, "Owed", nil, 100)(s.Owed(t.Context(), 100))
}

// never is later than any lease of this suite.
func never() time.Time { return time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC) }

// indexBefore: a lease that still runs is not listed as ended, whatever part of a
// millisecond is left.
func indexBefore(t *testing.T, s Planter) {
	at := noon()
	for key, c := range map[string]struct{ lease, updated time.Time }{
		"exercise|1 leased":  {at, at.Add(-time.Minute)},
		"exercise|2 fine":    {at.Add(300 * time.Nanosecond), at.Add(-time.Minute)},
		"exercise|3 written": {at.Add(-time.Hour), at.Add(time.Minute)}, // over, and then somebody wrote
	} {
		r := First(key)
		r.LeaseUntil, r.UpdatedAt = c.lease, c.updated
		MustCreate(t, s, r)
	}
	keys := []string{"exercise|1 leased", "exercise|2 fine", "exercise|3 written"}
	for before, n := range map[time.Time]int{
		at.Add(-time.Nanosecond): 0, at.Add(-time.Millisecond): 0, at: 1, at.Add(200 * time.Nanosecond): 1,
		at.Add(time.Millisecond): 2, at.Add(time.Minute - time.Millisecond): 2,
		at.Add(time.Minute): 3, at.Add(time.Minute).In(time.FixedZone("", 3600)): 3,
	} {
		checkKeys(t, fmt.Sprintf("Open before noon%+v", before.Sub(at)), keys[:n], 10)(s.Open(t.Context(), before, 10))
	}
}

// payersOthers: a prefix is bytes, whatever they mean elsewhere.
func payersOthers(t *testing.T, s Planter) {
	m := model{}
	for _, key := range []string{
		"exercise|a", "exercise|a|", "exercise|a|1", "exercise|a|1|0xtx", "exercise|a|\U0001f4b8", "exercise|aa|1", "exercise|A|1", "exercise|b|1",
		"exercise|%|1", "exercise|_|1", "exercise|*|1", "cursor|exercise|a|1", "id|exercise|a|1", "x exercise|a|1",
	} {
		m[key] = First(key)
		MustCreate(t, s, m[key])
	}
	for _, prefix := range []string{"exercise|a|", "exercise|%|", "exercise|_|", "exercise|*|", "exercise|c|"} {
		m.payer(t, s, prefix, 1000)
	}
}
