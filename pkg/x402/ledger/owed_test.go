package ledger_test

import (
	"bytes"
	"crypto/rand"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// Five lookups in all, spaced, within a day of the settlement.
func TestOwedLookups(t *testing.T) {
	d := newTestLedger(t)
	h := d.settled(t)
	for i, wait := range []time.Duration{time.Second, 10 * time.Second, time.Minute, 10 * time.Minute} {
		d.pass(2 * time.Second) // the lookup
		must(t, h.Release(t.Context(), timedOut()))
		if got := ledger.NextLookup(h.Record()); got != wait || ledger.Spent(h.Record(), d.at) {
			t.Fatalf("after %d lookups: wait %s, want %s; spent %+v", i+1, got, wait, h.Record())
		}
		d.pass(wait - time.Millisecond)
		if c := d.claim(t, ledger.Waiting); c.Wait != time.Millisecond || *c.Record.LastFault != timedOut() {
			t.Fatalf("too early by 1 ms: %+v", c)
		}
		d.pass(time.Millisecond)
		h = d.hold(t)
		if h.Record().State != ledger.Settled || h.Record().Lookups != i+2 {
			t.Fatalf("lookup %d: %+v", i+2, h.Record())
		}
	}
	must(t, h.Release(t.Context(), timedOut()))
	for range 2 { // after the last lookup, and an hour later
		if c := d.claim(t, ledger.Exhausted); !ledger.Spent(c.Record, d.at) || *c.Record.LastFault != timedOut() {
			t.Errorf("%+v", c)
		}
		d.pass(time.Hour)
	}
}

// A lookup that never began uses none up and does not move the spacing, until the day
// is over.
func TestReturn(t *testing.T) {
	d := newTestLedger(t)
	h := d.settled(t)
	must(t, h.Release(t.Context(), timedOut()))
	d.pass(time.Second)
	for range 20 {
		must(t, d.hold(t).Return(t.Context()))
	}
	if s := d.state(t); s.Lookups != 1 || s.LastFault == nil {
		t.Errorf("%+v", s)
	}
	d.pass(day - time.Second)
	must(t, d.hold(t).Return(t.Context()))
	d.pass(time.Second)
	d.claim(t, ledger.Exhausted)

	// A settlement whose lookup did not begin leaves no lease and no lookup, and a
	// lease that was given back already is not given back again.
	d = newTestLedger(t)
	h = d.hold(t)
	must(t, h.Settled(t.Context(), receipt(), false))
	before := d.state(t)
	must(t, h.Return(t.Context()))
	if s := d.state(t); !s.LeaseUntil.IsZero() || s.Lookups != 0 || !h.Released() || s.Version != before.Version {
		t.Errorf("%+v after %+v", s, before)
	}
	if c := d.claim(t, ledger.Held); c.Record.Lookups != 1 {
		t.Errorf("%+v", c.Record)
	}
}

// An answer that is too large to keep is looked up again, spaced, for a day.
func TestAnswerWithoutBody(t *testing.T) {
	d := newTestLedger(t)
	h := d.settled(t)
	noise := make([]byte, 2*ledger.MaxStored)
	rand.Read(noise)
	a, err := ledger.NewAnswer(200, noise)
	must(t, err)
	if a.Stored || a.Body != nil {
		t.Fatal("an answer that does not compress to 32 KB is stored")
	}
	must(t, h.Redeem(t.Context(), a))
	d.claim(t, ledger.Waiting)
	d.pass(time.Minute)
	again := d.claim(t, ledger.Held)
	if again.Record.State != ledger.Redeemed || again.Record.Lookups != 2 {
		t.Fatalf("%+v", again.Record)
	}
	d.claim(t, ledger.InFlight)
	d.pass(day)
	d.claim(t, ledger.Answered)
	must(t, again.Hold.Redeem(t.Context(), answer(t, "small")))
	d.claim(t, ledger.Answered)
}

func TestAnswerRoundTrip(t *testing.T) {
	for _, body := range [][]byte{nil, []byte("{}"), bytes.Repeat([]byte("x"), 1<<20)} {
		a, err := ledger.NewAnswer(404, body)
		must(t, err)
		if got, err := a.Plain(); err != nil || !bytes.Equal(got, body) {
			t.Errorf("%d bytes came back as %d, %v", len(body), len(got), err)
		}
	}
	if got, err := (ledger.Answer{Stored: true, Body: []byte("as it is")}).Plain(); err != nil || string(got) != "as it is" {
		t.Errorf("an answer that is not compressed: %q, %v", got, err)
	}
	whole := answer(t, "cut short")
	whole.Body = whole.Body[:len(whole.Body)-4]
	for _, bad := range []ledger.Answer{{}, whole, {Stored: true, Encoding: "gzip", Body: []byte("junk")}} {
		if _, err := bad.Plain(); err == nil {
			t.Errorf("%+v has no error", bad)
		}
	}
}

// A bundle with parts that are owed can be claimed again, spaced, and answers
// meanwhile; an attempt that brought nothing better leaves the answer.
func TestPartsOwed(t *testing.T) {
	d := newTestLedger(t)
	h := d.settled(t)
	owes := answer(t, "one")
	owes.Owed = []string{"whois"}
	must(t, h.RedeemUnused(t.Context(), owes))
	if r := d.state(t); r.Lookups != 0 || r.Owed() {
		t.Errorf("unused: %+v", r)
	}
	d.claim(t, ledger.Answered)
	d.pass(10 * time.Second)
	h = d.hold(t)
	d.claim(t, ledger.Answered) // beside the one that looks up
	must(t, h.Keep(t.Context(), false))
	d.pass(10*time.Second - 1)
	d.claim(t, ledger.Answered)
	d.pass(1)
	h = d.hold(t)
	must(t, h.Redeem(t.Context(), answer(t, "two")))
	if r := d.state(t); !r.AnsweredAt.Equal(d.at) {
		t.Errorf("the complete answer is kept from %v on, and is of %v", r.AnsweredAt, d.at)
	}
	d.pass(time.Hour)
	if c := d.claim(t, ledger.Answered); c.Record.Lookups != 2 || len(c.Record.Answer.Owed) != 0 {
		t.Errorf("%+v", c.Record)
	}
}
