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
	d := newTestLedger(t, nil)
	h := d.settled(t)
	fail := ledger.Failure{Code: "dns_timeout", Message: "timed out"}
	for i, wait := range []time.Duration{time.Second, 10 * time.Second, time.Minute, 10 * time.Minute} {
		d.clock.pass(2 * time.Second) // the lookup
		must(t, h.Release(t.Context(), fail))
		if got := ledger.NextLookup(h.Record()); got != wait || ledger.Spent(h.Record(), d.clock.now()) {
			t.Fatalf("after %d lookups: wait %s, want %s; spent %+v", i+1, got, wait, h.Record())
		}
		d.clock.pass(wait - time.Millisecond)
		if c := d.claim(t, ledger.Waiting); c.Wait != time.Millisecond || *c.Record.LastFault != fail {
			t.Fatalf("too early by 1 ms: %+v", c)
		}
		d.clock.pass(time.Millisecond)
		h = d.hold(t)
		if h.Record().State != ledger.Settled || h.Record().Lookups != i+2 {
			t.Fatalf("lookup %d: %+v", i+2, h.Record())
		}
	}
	must(t, h.Release(t.Context(), fail))
	if !ledger.Spent(h.Record(), d.clock.now()) {
		t.Errorf("after the last lookup: %+v", h.Record())
	}
	d.clock.pass(time.Hour)
	if c := d.claim(t, ledger.Exhausted); !ledger.Spent(c.Record, d.clock.now()) || *c.Record.LastFault != fail {
		t.Errorf("%+v", c)
	}
}

func TestOwedForADay(t *testing.T) {
	d := newTestLedger(t, nil)
	h := d.settled(t)
	must(t, h.Release(t.Context(), ledger.Failure{Code: "dns_timeout"}))
	d.clock.pass(24 * time.Hour)
	back := d.hold(t)
	must(t, back.Return(t.Context()))
	d.clock.pass(time.Second)
	d.claim(t, ledger.Exhausted)
}

// A lookup that never began uses none up and does not move the spacing.
func TestReturn(t *testing.T) {
	d := newTestLedger(t, nil)
	h := d.settled(t)
	must(t, h.Release(t.Context(), ledger.Failure{Code: "dns_timeout"}))
	for range 20 {
		d.clock.pass(time.Second)
		must(t, d.hold(t).Return(t.Context()))
	}
	if s := d.state(t); s.Lookups != 1 || s.LastFault == nil {
		t.Errorf("%+v", s)
	}
}

// A settlement whose lookup did not begin leaves no lease and no lookup.
func TestSettledWithoutLookup(t *testing.T) {
	d := newTestLedger(t, nil)
	h := d.hold(t)
	must(t, h.Settled(t.Context(), receipt(), false))
	if s := d.state(t); !s.LeaseUntil.IsZero() || s.Lookups != 0 || !h.Released() {
		t.Errorf("%+v", s)
	}
	if c := d.claim(t, ledger.Held); c.Record.Lookups != 1 {
		t.Errorf("%+v", c.Record)
	}
}

func TestAnswerWithoutBody(t *testing.T) {
	d := newTestLedger(t, nil)
	h := d.settled(t)
	noise := make([]byte, 400<<10)
	rand.Read(noise)
	a, err := ledger.NewAnswer(200, noise)
	must(t, err)
	if a.Stored || a.Body != nil {
		t.Fatal("an answer that does not compress below 300 KB is stored")
	}
	must(t, h.Redeem(t.Context(), a))
	d.clock.pass(time.Minute)
	again := d.claim(t, ledger.Held)
	if again.Record.State != ledger.Redeemed || again.Record.Lookups != 2 {
		t.Fatalf("%+v", again.Record)
	}
	d.claim(t, ledger.InFlight)
	must(t, again.Hold.Redeem(t.Context(), answer(t, "small")))
	d.claim(t, ledger.Answered)
}

func TestAnswerRoundTrip(t *testing.T) {
	for _, body := range [][]byte{nil, []byte("{}"), bytes.Repeat([]byte("x"), 1<<20)} {
		a, err := ledger.NewAnswer(404, body)
		must(t, err)
		got, err := a.Plain()
		if err != nil || !bytes.Equal(got, body) {
			t.Errorf("%d bytes came back as %d, %v", len(body), len(got), err)
		}
	}
	if got, err := (ledger.Answer{Stored: true, Body: []byte("as it is")}).Plain(); err != nil || string(got) != "as it is" {
		t.Errorf("an answer that is not compressed: %q, %v", got, err)
	}
	whole, err := ledger.NewAnswer(200, []byte("cut short"))
	must(t, err)
	whole.Body = whole.Body[:len(whole.Body)-4]
	for _, bad := range []ledger.Answer{{}, whole, {Stored: true, Encoding: "gzip", Body: []byte("junk")}} {
		if _, err := bad.Plain(); err == nil {
			t.Errorf("%+v has no error", bad)
		}
	}
}

// A row that outlived its retention is treated as absent: stores delete late.
func TestExpired(t *testing.T) {
	d := newTestLedger(t, nil)
	h := d.hold(t)
	must(t, h.Refused(t.Context(), "no"))
	key := d.payment().Key
	d.clock.pass(35*24*time.Hour + 10*time.Minute)
	if r, err := d.Fetch(t.Context(), key); r != nil || err != nil {
		t.Errorf("an expired row is seen: %+v, %v", r, err)
	}
	if c := d.claim(t, ledger.Held); c.Record.Attempt != 1 || c.Record.Doubt || c.Record.Version != 3 {
		t.Errorf("%+v", c.Record)
	}
}
