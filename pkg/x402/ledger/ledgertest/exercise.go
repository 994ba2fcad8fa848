package ledgertest

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// Planter is a store that can be made to hold what it would never write. A
// store given to Exercise that is not one skips the cases that need it.
type Planter interface {
	// Plant stores doc as the JSON form of the record under key, version 1,
	// whatever doc is.
	Plant(ctx context.Context, key string, doc []byte) error
}

// Whole is a store with every view of it.
type Whole interface {
	ledger.Store
	ledger.Index
	ledger.Payers
	ledger.Rows
}

// Exercise runs the contracts of ledger.Store and of its views against a store, and
// the rules of purchases over it. open returns an empty store, once for every case,
// with an index that is up to date when a write returns; the cases run in parallel.
func Exercise(t *testing.T, open func(t *testing.T) Whole) {
	for group, cases := range map[string]cases{
		"store": storeCases(), "index": indexCases(), "payers": payersCases(), "rows": rowsCases(),
	} {
		t.Run(group, func(t *testing.T) {
			t.Parallel()
			for name, run := range cases {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					run(t, open(t))
				})
			}
		})
	}
	t.Run("purchases", func(t *testing.T) {
		t.Parallel()
		ExercisePurchases(t, func(t *testing.T) ledger.Store { return open(t) })
	})
}

// cases are parts of a contract by their names.
type cases map[string]func(*testing.T, Whole)

func storeCases() cases {
	return cases{
		"fetch of a missing record":          fetchMissing,
		"create":                             create,
		"create of a taken key":              createTaken,
		"create sent twice":                  createResent,
		"replace":                            replace,
		"replace of a missing record":        replaceMissing,
		"replace of another version":         replaceConflict,
		"replace sent twice":                 replaceResent,
		"fetch sees every write":             fetchFresh,
		"round trip":                         roundTrip,
		"shares no memory":                   noAliasing,
		"odd keys":                           oddKeys,
		"impossible keys":                    impossibleKeys,
		"unreadable records are not written": refuseUnreadable,
		"large answer":                       largeAnswer,
		"too large":                          tooLarge,
		"ended context":                      endedContext,
		"corrupt records":                    corrupt,
		"50 creates of one key":              raceCreate,
		"replaces from one version":          raceReplace,
		"no lost update":                     raceCount,
	}
}

func fetchMissing(t *testing.T, s Whole) {
	if r, err := s.Fetch(t.Context(), "exercise|missing"); r != nil || err != nil {
		t.Errorf("Fetch = %+v, %v; want nothing", r, err)
	}
}

func create(t *testing.T, s Whole) {
	r := First("exercise|create")
	MustCreate(t, s, r)
	Holds(t, s, r)
}

func createTaken(t *testing.T, s Whole) {
	first := Full("exercise|taken")
	MustCreate(t, s, first)
	inTheWay(t, s, First(first.Key), first)
	Holds(t, s, first)
}

func createResent(t *testing.T, s Whole) {
	r := First("exercise|create resent")
	MustCreate(t, s, r)
	MustCreate(t, s, r)
	Holds(t, s, r)

	next := Next(r)
	MustReplace(t, s, next)
	inTheWay(t, s, r, next)
	Holds(t, s, next)
}

func replace(t *testing.T, s Whole) {
	r := Full("exercise|replace")
	MustCreate(t, s, r)
	for _, state := range ledger.States() {
		r = Next(r)
		r.State = state
		MustReplace(t, s, r)
		Holds(t, s, r)
	}
	// The whole record is replaced: what the new one lacks is gone.
	bare := First(r.Key)
	bare.Version = r.Version + 1
	MustReplace(t, s, bare)
	Holds(t, s, bare)
}

func replaceMissing(t *testing.T, s Whole) {
	r := Next(First("exercise|replace missing"))
	if err := s.Replace(t.Context(), r); !errors.Is(err, ledger.ErrConflict) {
		t.Errorf("Replace = %v, want ErrConflict", err)
	}
	holdsNothing(t, s, r.Key)
}

func replaceConflict(t *testing.T, s Whole) {
	r := First("exercise|conflict")
	MustCreate(t, s, r)
	r = Next(r)
	MustReplace(t, s, r)
	for _, version := range []int64{1, 2, 4, 1 << 53, 1<<63 - 1} { // 3 would be right
		wrong := First(r.Key)
		wrong.Version = version
		if err := s.Replace(t.Context(), wrong); !errors.Is(err, ledger.ErrConflict) {
			t.Errorf("Replace with version %d over 2 = %v, want ErrConflict", version, err)
		}
	}
	Holds(t, s, r)
}

func replaceResent(t *testing.T, s Whole) {
	first := First("exercise|replace resent")
	MustCreate(t, s, first)
	second := Next(first)
	MustReplace(t, s, second)
	MustReplace(t, s, second)
	Holds(t, s, second)

	third := Next(second)
	MustReplace(t, s, third)
	if err := s.Replace(t.Context(), second); !errors.Is(err, ledger.ErrConflict) {
		t.Errorf("Replace sent again after the next one = %v, want ErrConflict", err)
	}
	Holds(t, s, third)
}

func fetchFresh(t *testing.T, s Whole) {
	a, b := First("exercise|fresh a"), First("exercise|fresh b")
	MustCreate(t, s, a)
	MustCreate(t, s, b)
	for range 20 {
		a = Next(a)
		MustReplace(t, s, a)
		Holds(t, s, a)
		Holds(t, s, b)
	}
}

func roundTrip(t *testing.T, s Whole) {
	bare := ledger.Record{
		Key: "exercise|bare", Version: 1, WriteID: "w", State: ledger.Settling,
		Terms: []byte("{}"), // an absent one would come back as null
	}
	noBody := Full("exercise|no body")
	noBody.Answer.Body, noBody.Answer.Stored = nil, false
	manyBytes := Full("exercise|bytes")
	manyBytes.Answer.Body = nil
	for b := range 256 {
		manyBytes.Answer.Body = append(manyBytes.Answer.Body, byte(b))
	}
	zone := Full("exercise|zone")
	zone.ExpiresAt = zone.ExpiresAt.In(time.FixedZone("", 5*3600+1800))
	later := Full("exercise|version")
	later.Version = 1<<63 - 1
	for _, r := range []ledger.Record{bare, noBody, manyBytes, zone, later, Full("exercise|full")} {
		MustCreate(t, s, r)
		Holds(t, s, r)
	}
}

func noAliasing(t *testing.T, s Whole) {
	r, want := Full("exercise|alias"), Full("exercise|alias")
	want.WriteID = r.WriteID
	MustCreate(t, s, r)
	spoil := func(r *ledger.Record) {
		r.Answer.Body[0], r.Terms[0], r.Receipt.Payer = 'X', 'X', "X"
	}
	spoil(&r)
	Holds(t, s, want)
	fetched, err := s.Fetch(t.Context(), r.Key)
	must(t, err)
	spoil(fetched)
	Holds(t, s, want)
	spoil(inTheWay(t, s, First(r.Key), want))
	Holds(t, s, want)
}

func oddKeys(t *testing.T, s Whole) {
	var all []ledger.Record
	for _, k := range []string{
		"", " ", "\x00", "\x00\x00", "\n", `"`, `\`, "%00", "é", "e\u0301", "\u2028", "\U0001f4b8", "\ufffd", "\x7f",
		"eip155:8453|0xA|0xb|0x01", "eip155:8453|0xa|0xb|0x01", strings.Repeat("k", maxKey-len("exercise|")),
	} {
		r := First("exercise|" + k)
		MustCreate(t, s, r)
		all = append(all, r)
	}
	for _, r := range all {
		Holds(t, s, r)
	}
}

func impossibleKeys(t *testing.T, s Whole) {
	for _, key := range []string{"", "exercise|\xff", strings.Repeat("k", maxKey+1)} {
		r := First(key)
		if existing, err := s.Create(t.Context(), r); err == nil {
			t.Errorf("Create of key %.20q = %v without an error", key, existing)
		}
		if err := s.Replace(t.Context(), Next(r)); err == nil {
			t.Errorf("Replace of key %.20q without an error", key)
		}
		if r, err := s.Fetch(t.Context(), key); err == nil {
			t.Errorf("Fetch of key %.20q = %v without an error", key, r)
		}
	}
}

func refuseUnreadable(t *testing.T, s Whole) {
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

func largeAnswer(t *testing.T, s Whole) {
	r := Full("exercise|large")
	r.Answer.Body = noise(300 << 10)
	MustCreate(t, s, r)
	Holds(t, s, r)
	r = Next(r)
	r.Answer.Body = noise(300 << 10)
	MustReplace(t, s, r)
	Holds(t, s, r)
	inTheWay(t, s, First(r.Key), r)
}

func tooLarge(t *testing.T, s Whole) {
	r := First("exercise|too large")
	MustCreate(t, s, r)
	big := Next(Full(r.Key))
	big.Answer.Body = noise(400 << 10)
	if err := s.Replace(t.Context(), big); err == nil || errors.Is(err, ledger.ErrConflict) {
		t.Errorf("Replace with more than 400 KB = %v, want another error", err)
	}
	Holds(t, s, r)
}

func endedContext(t *testing.T, s Whole) {
	r := First("exercise|context")
	MustCreate(t, s, r)
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	for want, ctx := range map[error]context.Context{context.Canceled: cancelled, context.DeadlineExceeded: late} {
		other := First("exercise|context other")
		if _, err := s.Create(ctx, other); !errors.Is(err, want) {
			t.Errorf("Create = %v, want %v", err, want)
		}
		if err := s.Replace(ctx, Next(r)); !errors.Is(err, want) {
			t.Errorf("Replace = %v, want %v", err, want)
		}
		if got, err := s.Fetch(ctx, r.Key); !errors.Is(err, want) {
			t.Errorf("Fetch = %v, %v, want %v", got, err, want)
		}
		holdsNothing(t, s, other.Key)
	}
	Holds(t, s, r)
}

func corrupt(t *testing.T, s Whole) {
	p, ok := s.(Planter)
	if !ok {
		t.Skip("the store cannot be made to hold a corrupt record")
	}
	other, _, err := First("exercise|another key").Marshal()
	must(t, err)
	for name, doc := range map[string]string{
		"empty": "", "null": "null", "cut short": `{"key":"exercise|corrupt`, "no fields": "{}",
		"another type":  `{"key":"KEY","version":"1","write_id":"w","state":"settled"}`,
		"unknown state": `{"key":"KEY","version":1,"write_id":"w","state":"paid"}`,
		"no version":    `{"key":"KEY","write_id":"w","state":"settled"}`,
		"another key":   string(other),
		"not a time":    `{"key":"KEY","version":1,"write_id":"w","state":"settled","created_at":"now"}`,
	} {
		key := "exercise|corrupt " + name
		must(t, p.Plant(t.Context(), key, []byte(strings.ReplaceAll(doc, "KEY", key))))
		for range 2 { // the first round changed nothing
			if r, err := s.Fetch(t.Context(), key); !errors.Is(err, ledger.ErrCorrupt) || r != nil {
				t.Errorf("%s: Fetch = %+v, %v; want ErrCorrupt", name, r, err)
			}
			if r, err := s.Create(t.Context(), First(key)); !errors.Is(err, ledger.ErrCorrupt) || r != nil {
				t.Errorf("%s: Create = %+v, %v; want ErrCorrupt", name, r, err)
			}
			wrong := First(key)
			wrong.Version = 9
			if err := s.Replace(t.Context(), wrong); !errors.Is(err, ledger.ErrCorrupt) {
				t.Errorf("%s: Replace = %v, want ErrCorrupt", name, err)
			}
		}
	}
}
