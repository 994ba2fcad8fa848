package ledgertest

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// Planter is a store that can be made to hold what it would never write. A
// store given to Exercise that is not one skips the cases that need it.
type Planter interface {
	// Plant stores doc as the JSON form of the record under key, version 1,
	// whatever doc is.
	Plant(ctx context.Context, key string, doc []byte) error
}

// Exercise runs the contract of ledger.Store against a store. open returns an
// empty store, or one in which the keys of this suite ("exercise|...") are
// free, once for every case; the cases run in parallel.
func Exercise(t *testing.T, open func(t *testing.T) ledger.Store) {
	for _, c := range []struct {
		name string
		run  func(*testing.T, ledger.Store)
	}{
		{"fetch of a missing record", fetchMissing},
		{"create", create},
		{"create of a taken key", createTaken},
		{"create sent twice", createResent},
		{"replace", replace},
		{"replace of a missing record", replaceMissing},
		{"replace of another version", replaceConflict},
		{"replace sent twice", replaceResent},
		{"fetch sees every write", fetchFresh},
		{"round trip", roundTrip},
		{"shares no memory", noAliasing},
		{"odd keys", oddKeys},
		{"impossible keys", impossibleKeys},
		{"unreadable records are not written", refuseUnreadable},
		{"large answer", largeAnswer},
		{"too large", tooLarge},
		{"ended context", endedContext},
		{"corrupt records", corrupt},
		{"50 creates of one key", raceCreate},
		{"replaces from one version", raceReplace},
		{"no lost update", raceCount},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.run(t, open(t))
		})
	}
}

func fetchMissing(t *testing.T, s ledger.Store) {
	if r, err := s.Fetch(t.Context(), "exercise|missing"); r != nil || err != nil {
		t.Errorf("Fetch = %+v, %v; want nothing", r, err)
	}
}

func create(t *testing.T, s ledger.Store) {
	r := First("exercise|create")
	mustCreate(t, s, r)
	holds(t, s, r)
}

func createTaken(t *testing.T, s ledger.Store) {
	first := Full("exercise|taken")
	mustCreate(t, s, first)
	second := First(first.Key)
	existing, err := s.Create(t.Context(), second)
	if err != nil || existing == nil {
		t.Fatalf("second Create = %+v, %v; want the first record", existing, err)
	}
	same(t, first, *existing)
	holds(t, s, first)
}

func createResent(t *testing.T, s ledger.Store) {
	r := First("exercise|create resent")
	mustCreate(t, s, r)
	mustCreate(t, s, r)
	holds(t, s, r)

	next := Next(r)
	mustReplace(t, s, next)
	existing, err := s.Create(t.Context(), r)
	if err != nil || existing == nil {
		t.Fatalf("Create sent again after a Replace = %+v, %v; want the record", existing, err)
	}
	same(t, next, *existing)
	holds(t, s, next)
}

func replace(t *testing.T, s ledger.Store) {
	r := Full("exercise|replace")
	mustCreate(t, s, r)
	for _, state := range ledger.States() {
		r = Next(r)
		r.State = state
		mustReplace(t, s, r)
		holds(t, s, r)
	}
	// The whole record is replaced: what the new one lacks is gone.
	bare := First(r.Key)
	bare.Version = r.Version + 1
	mustReplace(t, s, bare)
	holds(t, s, bare)
}

func replaceMissing(t *testing.T, s ledger.Store) {
	r := Next(First("exercise|replace missing"))
	if err := s.Replace(t.Context(), r); !errors.Is(err, ledger.ErrConflict) {
		t.Errorf("Replace = %v, want ErrConflict", err)
	}
	holdsNothing(t, s, r.Key)
}

func replaceConflict(t *testing.T, s ledger.Store) {
	r := First("exercise|conflict")
	mustCreate(t, s, r)
	r = Next(r)
	mustReplace(t, s, r)
	for _, version := range []int64{1, 2, 4, 1 << 53, 1<<63 - 1} { // 3 would be right
		wrong := First(r.Key)
		wrong.Version = version
		if err := s.Replace(t.Context(), wrong); !errors.Is(err, ledger.ErrConflict) {
			t.Errorf("Replace with version %d over 2 = %v, want ErrConflict", version, err)
		}
	}
	holds(t, s, r)
}

func replaceResent(t *testing.T, s ledger.Store) {
	first := First("exercise|replace resent")
	mustCreate(t, s, first)
	second := Next(first)
	mustReplace(t, s, second)
	mustReplace(t, s, second)
	holds(t, s, second)

	third := Next(second)
	mustReplace(t, s, third)
	if err := s.Replace(t.Context(), second); !errors.Is(err, ledger.ErrConflict) {
		t.Errorf("Replace sent again after the next one = %v, want ErrConflict", err)
	}
	holds(t, s, third)
}

func fetchFresh(t *testing.T, s ledger.Store) {
	a, b := First("exercise|fresh a"), First("exercise|fresh b")
	mustCreate(t, s, a)
	mustCreate(t, s, b)
	for range 20 {
		a = Next(a)
		mustReplace(t, s, a)
		holds(t, s, a)
		holds(t, s, b)
	}
}

func roundTrip(t *testing.T, s ledger.Store) {
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
		mustCreate(t, s, r)
		holds(t, s, r)
	}
}

func noAliasing(t *testing.T, s ledger.Store) {
	r, want := Full("exercise|alias"), Full("exercise|alias")
	want.WriteID = r.WriteID
	mustCreate(t, s, r)
	spoil := func(r *ledger.Record) {
		r.Answer.Body[0], r.Terms[0], r.Receipt.Payer = 'X', 'X', "X"
	}
	spoil(&r)
	holds(t, s, want)
	fetched, err := s.Fetch(t.Context(), r.Key)
	if err != nil {
		t.Fatal(err)
	}
	spoil(fetched)
	holds(t, s, want)
	existing, err := s.Create(t.Context(), First(r.Key))
	if err != nil || existing == nil {
		t.Fatalf("Create = %v, %v", existing, err)
	}
	spoil(existing)
	holds(t, s, want)
}

func oddKeys(t *testing.T, s ledger.Store) {
	var all []ledger.Record
	for _, k := range []string{
		"", " ", "\x00", "\x00\x00", "\n", `"`, `\`, "%00", "é", "e\u0301", "\u2028", "\U0001f4b8", "\ufffd", "\x7f",
		"eip155:8453|0xA|0xb|0x01", "eip155:8453|0xa|0xb|0x01", strings.Repeat("k", maxKey-len("exercise|")),
	} {
		r := First("exercise|" + k)
		mustCreate(t, s, r)
		all = append(all, r)
	}
	for _, r := range all {
		holds(t, s, r)
	}
}

func impossibleKeys(t *testing.T, s ledger.Store) {
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

func refuseUnreadable(t *testing.T, s ledger.Store) {
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

func largeAnswer(t *testing.T, s ledger.Store) {
	r := Full("exercise|large")
	r.Answer.Body = noise(300 << 10)
	mustCreate(t, s, r)
	holds(t, s, r)
	r = Next(r)
	r.Answer.Body = noise(300 << 10)
	mustReplace(t, s, r)
	holds(t, s, r)
	existing, err := s.Create(t.Context(), First(r.Key))
	if err != nil || existing == nil {
		t.Fatalf("Create over a large record = %v, %v", existing, err)
	}
	same(t, r, *existing)
}

func tooLarge(t *testing.T, s ledger.Store) {
	r := First("exercise|too large")
	mustCreate(t, s, r)
	big := Next(Full(r.Key))
	big.Answer.Body = noise(400 << 10)
	if err := s.Replace(t.Context(), big); err == nil || errors.Is(err, ledger.ErrConflict) {
		t.Errorf("Replace with more than 400 KB = %v, want another error", err)
	}
	holds(t, s, r)
}

func endedContext(t *testing.T, s ledger.Store) {
	r := First("exercise|context")
	mustCreate(t, s, r)
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
	holds(t, s, r)
}

func corrupt(t *testing.T, s ledger.Store) {
	p, ok := s.(Planter)
	if !ok {
		t.Skip("the store cannot be made to hold a corrupt record")
	}
	other, _, err := First("exercise|another key").Marshal()
	if err != nil {
		t.Fatal(err)
	}
	for name, doc := range map[string]string{
		"empty": "", "null": "null", "cut short": `{"key":"exercise|corrupt`, "no fields": "{}",
		"another type":  `{"key":"KEY","version":"1","write_id":"w","state":"settled"}`,
		"unknown state": `{"key":"KEY","version":1,"write_id":"w","state":"paid"}`,
		"no version":    `{"key":"KEY","write_id":"w","state":"settled"}`,
		"another key":   string(other),
		"not a time":    `{"key":"KEY","version":1,"write_id":"w","state":"settled","created_at":"now"}`,
	} {
		key := "exercise|corrupt " + name
		if err := p.Plant(t.Context(), key, []byte(strings.ReplaceAll(doc, "KEY", key))); err != nil {
			t.Fatal(err)
		}
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

func mustCreate(t *testing.T, s ledger.Store, r ledger.Record) {
	t.Helper()
	if existing, err := s.Create(t.Context(), r); existing != nil || err != nil {
		t.Fatalf("Create of %q = %+v, %v; want success", r.Key, existing, err)
	}
}

func mustReplace(t *testing.T, s ledger.Store, r ledger.Record) {
	t.Helper()
	if err := s.Replace(t.Context(), r); err != nil {
		t.Fatalf("Replace of %q with version %d: %v", r.Key, r.Version, err)
	}
}

func holds(t *testing.T, s ledger.Store, want ledger.Record) {
	t.Helper()
	got, err := s.Fetch(t.Context(), want.Key)
	if err != nil || got == nil {
		t.Fatalf("Fetch of %q = %v, %v", want.Key, got, err)
	}
	same(t, want, *got)
}

func holdsNothing(t *testing.T, s ledger.Store, key string) {
	t.Helper()
	if r, err := s.Fetch(t.Context(), key); r != nil || err != nil {
		t.Errorf("Fetch of %q = %+v, %v; want nothing", key, r, err)
	}
}

// same compares all but the difference between no bytes and none.
func same(t *testing.T, want, got ledger.Record) {
	t.Helper()
	if want.Answer != nil && got.Answer != nil && !bytes.Equal(want.Answer.Body, got.Answer.Body) {
		t.Errorf("answer of %q: got %d bytes, want other %d bytes", want.Key, len(got.Answer.Body), len(want.Answer.Body))
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(ledger.Answer{}, "Body")); diff != "" {
		t.Errorf("record %q (-want +got):\n%s", want.Key, diff)
	}
}

// noise returns n bytes that do not compress.
func noise(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rand.Uint32())
	}
	return b
}
