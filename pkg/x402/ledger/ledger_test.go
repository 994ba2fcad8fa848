package ledger_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
)

// clock is time that the test moves.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// testLedger is a ledger with its surroundings.
type testLedger struct {
	*ledger.Ledger
	clock *clock
	store *ledgertest.Faulty
}

func newTestLedger(t *testing.T, decide ledgertest.Decide) testLedger {
	c := &clock{at: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)}
	s := ledgertest.NewFaulty(t, &ledgertest.Memory{}, decide)
	var ids atomic.Int64
	return testLedger{ledger.New(s, c.now, func() string { return fmt.Sprint("w", ids.Add(1)) }), c, s}
}

// newArmed is a ledger whose store fails as decided while it is armed.
func newArmed(t *testing.T, decide ledgertest.Decide) (d testLedger, armed *bool) {
	armed = new(bool)
	return newTestLedger(t, func(op ledgertest.Op, n int, r ledger.Record) ledgertest.Fault {
		if !*armed {
			return ledgertest.None
		}
		return decide(op, n, r)
	}), armed
}

func (d testLedger) payment() ledger.Payment {
	return ledger.Payment{
		Key: ledger.Key("eip155:8453", "0xa", "0xb", "0xc"), AuthDigest: "auth", SigDigest: "sig",
		Request: "GET /v1/tools/dns?domain=example.com&type=A", Terms: json.RawMessage(`{"amount":"5000"}`),
		ValidBefore: d.clock.now().Add(5 * time.Minute), Proof: ledger.Proof{Token: "token"},
	}
}

const lease = 30 * time.Second

func (d testLedger) claim(t *testing.T, want ledger.Standing) ledger.Claim {
	t.Helper()
	c, err := d.Claim(t.Context(), d.payment(), d.clock.now().Add(lease))
	if err != nil || c.Standing != want {
		t.Fatalf("claim: standing %d, %v; want %d (record %+v)", c.Standing, err, want, c.Record)
	}
	return c
}

// hold is a payment in hand.
func (d testLedger) hold(t *testing.T) *ledger.Hold {
	t.Helper()
	return d.claim(t, ledger.Held).Hold
}

// settled is a payment in hand that has been made, and whose lookup begins.
func (d testLedger) settled(t *testing.T) *ledger.Hold {
	t.Helper()
	h := d.hold(t)
	must(t, h.Settled(t.Context(), receipt(), true))
	return h
}

// overtaken is a hold whose lease ran out, and that of the claim that came next.
func (d testLedger) overtaken(t *testing.T) (old, taken *ledger.Hold) {
	t.Helper()
	old = d.hold(t)
	d.clock.pass(lease)
	return old, d.hold(t)
}

// wants compares an error with the one that it must be; nil is none.
func wants(t *testing.T, want, err error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("error %v, want %v", err, want)
	}
}

func receipt() ledger.Receipt {
	return ledger.Receipt{Transaction: "0x01", Payer: "0xb", Network: "eip155:8453"}
}

func (d testLedger) state(t *testing.T) ledger.Record {
	t.Helper()
	r, err := d.Fetch(t.Context(), d.payment().Key)
	if err != nil || r == nil {
		t.Fatalf("fetch: %v, %v", r, err)
	}
	return *r
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func answer(t *testing.T, body string) ledger.Answer {
	t.Helper()
	a, err := ledger.NewAnswer(200, []byte(body))
	must(t, err)
	return a
}

func TestHappyPath(t *testing.T) {
	d := newTestLedger(t, nil)
	c := d.claim(t, ledger.Held)
	if c.Record.State != ledger.Settling || c.Record.Attempt != 1 || ledger.Spent(c.Record, d.clock.now()) {
		t.Fatalf("claimed %+v", c.Record)
	}
	must(t, c.Hold.Settled(t.Context(), receipt(), true))
	must(t, c.Hold.Redeem(t.Context(), answer(t, `{"ok":true}`)))
	again := d.claim(t, ledger.Answered)
	body, err := again.Record.Answer.Plain()
	if err != nil || string(body) != `{"ok":true}` || again.Record.Answer.Status != 200 {
		t.Errorf("stored answer %q, %v", body, err)
	}
	if again.Record.Receipt.Transaction != "0x01" {
		t.Errorf("receipt %+v", again.Record.Receipt)
	}
	if c, r, f := d.store.Calls(ledgertest.Create), d.store.Calls(ledgertest.Replace), d.store.Calls(ledgertest.Fetch); c != 2 || r != 2 || f != 0 {
		t.Errorf("%d creates, %d replaces, %d fetches; want 3 writes and no read on the happy path, 1 create for the repeat", c, r, f)
	}
}

func TestOneClaimWins(t *testing.T) {
	d := newTestLedger(t, nil)
	var wg sync.WaitGroup
	var held, inFlight atomic.Int32
	for range 100 {
		wg.Go(func() {
			c, err := d.Claim(context.Background(), d.payment(), d.clock.now().Add(lease))
			switch {
			case err != nil:
				t.Error(err)
			case c.Standing == ledger.Held:
				held.Add(1)
			case c.Standing == ledger.InFlight:
				inFlight.Add(1)
			}
		})
	}
	wg.Wait()
	if held.Load() != 1 || inFlight.Load() != 99 {
		t.Errorf("%d held, %d in flight", held.Load(), inFlight.Load())
	}
}

func TestMismatches(t *testing.T) {
	d := newTestLedger(t, nil)
	d.claim(t, ledger.Held)
	other := d.payment()
	other.Request += "x"
	if c, err := d.Claim(t.Context(), other, d.clock.now().Add(lease)); err != nil || c.Standing != ledger.OtherRequest {
		t.Errorf("other request: %d, %v", c.Standing, err)
	}
	other.AuthDigest = "other"
	if c, err := d.Claim(t.Context(), other, d.clock.now().Add(lease)); err != nil || c.Standing != ledger.OtherAuthorization {
		t.Errorf("other authorization: %d, %v", c.Standing, err)
	}
}

func TestLease(t *testing.T) {
	d := newTestLedger(t, nil)
	old := d.hold(t)
	if c := d.claim(t, ledger.InFlight); c.Wait <= 0 || c.Wait > lease {
		t.Errorf("wait %s", c.Wait)
	}
	d.clock.pass(lease)
	taken := d.claim(t, ledger.Held)
	if !taken.Record.Doubt || taken.Record.Attempt != 2 {
		t.Errorf("takeover without doubt: %+v", taken.Record)
	}
	// The old holder comes back: every verdict but a receipt is lost.
	wants(t, ledger.ErrLost, old.Refused(t.Context(), "no"))
	wants(t, ledger.ErrLost, old.NotSent(t.Context(), "no"))
	wants(t, ledger.ErrLost, old.Uncertain(t.Context(), "?", ""))
	if s := d.state(t); s.State != ledger.Settling || s.Attempt != 2 {
		t.Errorf("the new holder was overwritten: %+v", s)
	}
}

func TestEvidenceBeatsTheLease(t *testing.T) {
	for _, c := range []struct {
		name  string
		other func(t *testing.T, h *ledger.Hold) error
	}{
		{"settling", func(*testing.T, *ledger.Hold) error { return nil }},
		{"uncertain", func(t *testing.T, h *ledger.Hold) error { return h.Uncertain(t.Context(), "?", "") }},
		{"refused", func(t *testing.T, h *ledger.Hold) error { return h.Disproved(t.Context(), "wrongly") }},
		{"settled", func(t *testing.T, h *ledger.Hold) error { return h.Settled(t.Context(), receipt(), true) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newTestLedger(t, nil)
			old, taken := d.overtaken(t)
			must(t, c.other(t, taken))
			wants(t, ledger.ErrLost, old.Settled(t.Context(), receipt(), true))
			s := d.state(t)
			if s.State != ledger.Settled || s.Receipt == nil {
				t.Fatalf("the receipt is not on record: %+v", s)
			}
			if c.name == "settled" {
				return // its holder looks up
			}
			if c.name == "settling" {
				// The live attempt keeps its lease, nobody runs beside it, and
				// a refusal of its own does not overwrite the receipt.
				d.claim(t, ledger.InFlight)
				wants(t, ledger.ErrLost, taken.Refused(t.Context(), "no"))
				d.clock.pass(lease)
				d.claim(t, ledger.Held)
				return
			}
			if !s.LeaseUntil.IsZero() {
				t.Errorf("the lease is not released: %+v", s)
			}
			if got := d.claim(t, ledger.Held); got.Record.State != ledger.Settled {
				t.Errorf("the retry is not owed: %+v", got.Record)
			}
		})
	}
}

// A receipt whose first write failed and came too late is recorded all the
// same when its holder goes on.
func TestLateReceiptIsEvidence(t *testing.T) {
	d := newTestLedger(t, ledgertest.Failing(ledgertest.Replace, ledgertest.FailBefore, 1))
	old := d.hold(t)
	wants(t, ledgertest.ErrInjected, old.Settled(t.Context(), receipt(), true))
	d.clock.pass(lease)
	d.hold(t)
	wants(t, ledger.ErrLost, old.Redeem(t.Context(), answer(t, "x")))
	if s := d.state(t); s.State != ledger.Settled || s.Receipt == nil {
		t.Errorf("the receipt is not on record: %+v", s)
	}
}

func TestDoubtTurnsRefusalsIntoUncertainty(t *testing.T) {
	d := newTestLedger(t, nil)
	must(t, d.hold(t).Uncertain(t.Context(), "timeout", "0x02"))
	if s := d.state(t); s.State != ledger.Uncertain || s.Transaction != "0x02" {
		t.Fatalf("%+v", s)
	}
	must(t, d.hold(t).Refused(t.Context(), "no"))
	if s := d.state(t); s.State != ledger.Uncertain || !s.Doubt || s.Transaction != "0x02" {
		t.Fatalf("a refusal cleared doubt: %+v", s)
	}
	must(t, d.hold(t).NotSent(t.Context(), "no"))
	if s := d.state(t); s.State != ledger.Uncertain {
		t.Fatalf("not sent cleared doubt: %+v", s)
	}
	must(t, d.hold(t).Disproved(t.Context(), "cancelled"))
	if s := d.state(t); s.State != ledger.Refused || s.Doubt {
		t.Fatalf("proof did not clear doubt: %+v", s)
	}
}

// Each write fails without being done, and is done but fails; the next one
// finds out which.
func TestWritesThatFail(t *testing.T) {
	for _, fault := range []ledgertest.Fault{ledgertest.FailBefore, ledgertest.FailAfter} {
		for n := 1; n <= 2; n++ {
			t.Run(fmt.Sprintf("replace %d, fault %d", n, fault), func(t *testing.T) {
				d := newTestLedger(t, ledgertest.Failing(ledgertest.Replace, fault, n))
				h := d.hold(t)
				first := h.Settled(t.Context(), receipt(), true)
				second := h.Redeem(t.Context(), answer(t, "x"))
				if failed := map[int]error{1: first, 2: second}[n]; !errors.Is(failed, ledgertest.ErrInjected) {
					t.Fatalf("%v, %v", first, second)
				}
				if n == 1 {
					must(t, second) // it confirmed the first
					d.claim(t, ledger.Answered)
					return
				}
				s := d.state(t)
				if want := map[ledgertest.Fault]ledger.State{ledgertest.FailBefore: ledger.Settled, ledgertest.FailAfter: ledger.Redeemed}[fault]; s.State != want {
					t.Errorf("state %s, want %s", s.State, want)
				}
			})
		}
	}
}

// A claim whose write failed sends nothing; whoever comes after the lease has
// doubt, because it cannot know.
func TestClaimThatFails(t *testing.T) {
	for _, fault := range []ledgertest.Fault{ledgertest.FailBefore, ledgertest.FailAfter} {
		d := newTestLedger(t, ledgertest.Failing(ledgertest.Create, fault, 1))
		_, err := d.Claim(t.Context(), d.payment(), d.clock.now().Add(lease))
		wants(t, ledgertest.ErrInjected, err)
		if fault == ledgertest.FailBefore {
			d.claim(t, ledger.Held)
			continue
		}
		d.claim(t, ledger.InFlight)
		d.clock.pass(lease)
		if c := d.claim(t, ledger.Held); !c.Record.Doubt {
			t.Error("takeover without doubt")
		}
	}
}

func TestCorruptFailsClosed(t *testing.T) {
	m := &ledgertest.Memory{}
	now := time.Now()
	l := ledger.New(m, func() time.Time { return now }, func() string { return "w" })
	p := ledger.Payment{Key: "k", AuthDigest: "a", Request: "r", ValidBefore: now.Add(time.Minute)}
	for _, doc := range []string{`{`, `{"key":"k","version":1,"write_id":"w","state":"paid"}`, `{"key":"k"}`, `[]`} {
		must(t, m.Plant(t.Context(), "k", []byte(doc)))
		if _, err := l.Claim(t.Context(), p, now.Add(lease)); !errors.Is(err, ledger.ErrCorrupt) {
			t.Errorf("%s: %v, want ErrCorrupt", doc, err)
		}
	}
}

func TestNewPanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	ledger.New(nil, nil, nil)
}
