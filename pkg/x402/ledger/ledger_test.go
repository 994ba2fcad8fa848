package ledger_test

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
)

// testLedger is a ledger whose clock the test moves, and whose store fails when the test
// demands it.
type testLedger struct {
	*ledger.Ledger
	memory *ledgertest.Memory
	store  *ledgertest.Faulty
	clock  time.Time
}

func newTestLedger(t *testing.T) *testLedger {
	d := &testLedger{clock: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC), memory: &ledgertest.Memory{}}
	d.store = ledgertest.NewFaulty(t, d.memory, nil)
	d.Ledger = ledger.New(d.store, func() time.Time { return d.clock }, rand.Text)
	return d
}

func (d *testLedger) advance(by time.Duration) { d.clock = d.clock.Add(by) }

// injectFault makes the next n calls of the kind op fail with the given fault.
func (d *testLedger) injectFault(op ledgertest.Op, how ledgertest.Fault, n int) {
	d.store.Decide = func(o ledgertest.Op, _ int, _ ledger.Record) ledgertest.Fault {
		if o != op || n == 0 {
			return ledgertest.None
		}
		n--
		return how
	}
}

// faults are the faults after which a caller does not know whether the call took effect.
var faults = []ledgertest.Fault{ledgertest.FailBefore, ledgertest.FailAfter}

func (d *testLedger) payment() ledger.Submission {
	return ledger.Submission{
		Key: ledger.Key("eip155:8453", "0xa", "0xb", "0xc"), AuthDigest: "auth", SigDigest: "sig",
		Request: "GET /v1/tools/dns?domain=example.com&type=A", Terms: json.RawMessage(`{"amount":"5000"}`),
		ValidBefore: d.clock.Add(5 * time.Minute), Token: "token",
	}
}

const (
	lease = 30 * time.Second
	day   = 24 * time.Hour
)

// claimPayment claims the payment p, and checks the result of the claim.
func (d *testLedger) claimPayment(t *testing.T, p ledger.Submission, want ledger.ClaimResult) ledger.Claim {
	t.Helper()
	c, err := d.Claim(t.Context(), p, d.clock.Add(lease))
	if err != nil || c.Result != want {
		t.Fatalf("claim: result %d, %v; want result %d (record %+v)", c.Result, err, want, c.Record)
	}
	return c
}

func (d *testLedger) claim(t *testing.T, want ledger.ClaimResult) ledger.Claim {
	t.Helper()
	return d.claimPayment(t, d.payment(), want)
}

// hold makes a claim that must succeed, and returns the hold.
func (d *testLedger) hold(t *testing.T) *ledger.Hold {
	t.Helper()
	return d.claim(t, ledger.Held).Hold
}

// settle claims a payment, settles it and begins its lookup.
func (d *testLedger) settle(t *testing.T) *ledger.Hold {
	t.Helper()
	h := d.hold(t)
	must(t, h.Settled(t.Context(), receipt(), true))
	return h
}

// overtake claims one payment twice. It returns the hold of the first attempt, whose lease has
// ended, and the hold of the next attempt.
func (d *testLedger) overtake(t *testing.T) (old, next *ledger.Hold) {
	t.Helper()
	old = d.hold(t)
	d.advance(lease)
	return old, d.hold(t)
}

// checkErr fails the test unless err is the wanted error. A nil want means that there must be
// no error.
func checkErr(t *testing.T, want, err error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("error %v, want %v", err, want)
	}
}

func errOf[T any](_ T, err error) error { return err }

func receipt() ledger.Receipt {
	return ledger.Receipt{Transaction: "0x01", Payer: "0xb", Network: "eip155:8453"}
}

func timedOut() ledger.Failure { return ledger.Failure{Code: "dns_timeout", Message: "timed out"} }

// record returns the record under a key.
func (d *testLedger) record(t *testing.T, key string) ledger.Payment {
	t.Helper()
	r, err := d.Fetch(t.Context(), key)
	if err != nil || r == nil {
		t.Fatalf("fetch: %v, %v", r, err)
	}
	return *r
}

func (d *testLedger) recorded(t *testing.T) ledger.Payment {
	t.Helper()
	return d.record(t, d.payment().Key)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func answer(t *testing.T, body string) ledger.Answer {
	t.Helper()
	a, err := ledger.New(&ledgertest.Memory{}, time.Now, rand.Text).NewAnswer(200, []byte(body))
	must(t, err)
	return a
}

// TestWritesThatFail plays writes that fail without effect, and writes that take effect but
// report a failure. If a write of a hold fails, the hold's next write must find out whether
// the failed one took effect. If the write of a claim fails, the claim must return an error,
// so that nothing is sent. If the claim's write took effect, the next claim after the end of
// the lease must find the payment in doubt, because the next claim cannot know that nothing
// was sent. Reclaim is the claim of the reconciler: if its write fails, Reclaim must return an
// error and no hold.
func TestWritesThatFail(t *testing.T) {
	for _, fault := range faults {
		d := newTestLedger(t)
		h := d.hold(t)
		d.injectFault(ledgertest.Replace, fault, 2)
		checkErr(t, ledgertest.ErrInjected, h.Settled(t.Context(), receipt(), true))
		checkErr(t, ledgertest.ErrInjected, h.Redeem(t.Context(), answer(t, "x"), 0, false)) // Redeem repeats the write of Settled, which fails a second time
		must(t, h.Redeem(t.Context(), answer(t, "x"), 0, false))                             // both the repeated write and that of Redeem succeed
		d.claim(t, ledger.Answered)

		d = newTestLedger(t)
		d.injectFault(ledgertest.Create, fault, 1)
		checkErr(t, ledgertest.ErrInjected, errOf(d.Claim(t.Context(), d.payment(), d.clock.Add(lease))))
		if fault == ledgertest.FailAfter {
			if c := d.claim(t, ledger.InFlight); c.Wait <= 0 || c.Wait > lease {
				t.Errorf("wait %s", c.Wait)
			}
			d.advance(lease)
		}
		c := d.claim(t, ledger.Held)
		if c.Record.Doubt != (fault == ledgertest.FailAfter) {
			t.Errorf("fault %d: %+v", fault, c.Record)
		}
		must(t, c.Hold.End(t.Context(), ledger.EventUncertain, "?", ""))
		d.injectFault(ledgertest.Replace, fault, 1)
		h, err := d.Reclaim(t.Context(), d.recorded(t), d.clock.Add(lease))
		if h != nil || !errors.Is(err, ledgertest.ErrInjected) {
			t.Errorf("%v, %v", h, err)
		}
	}
	// Once the lease is lost, a hold that repeats a failed write must get ErrLost.
	d := newTestLedger(t)
	old := d.hold(t)
	d.injectFault(ledgertest.Replace, ledgertest.FailBefore, 1)
	checkErr(t, ledgertest.ErrInjected, old.End(t.Context(), ledger.EventUncertain, "?", ""))
	d.advance(lease)
	d.hold(t)
	checkErr(t, ledger.ErrLost, old.End(t.Context(), ledger.EventUncertain, "?", ""))
	// An event that the record's state does not allow must never reach the store. So the next
	// write does not have to find out whether the store has it.
	d = newTestLedger(t)
	h := d.hold(t)
	d.advance(lease)
	checkErr(t, ledger.ErrIllegal, h.Ask(t.Context(), "fallback"))
	must(t, h.End(t.Context(), ledger.EventUncertain, "?", ""))
}

// TestReclaim checks that Reclaim takes the lease of a payment only if the payment is
// undecided, no attempt holds its lease, and its record has not changed since it was read.
func TestReclaim(t *testing.T) {
	d := newTestLedger(t)
	d.hold(t)
	live := d.recorded(t)
	d.advance(lease)
	h, err := d.Reclaim(t.Context(), live, d.clock.Add(lease))
	if err != nil || h.Record().Attempt != 2 || !h.Record().Doubt {
		t.Fatalf("%+v, %v", h, err)
	}
	must(t, h.End(t.Context(), ledger.EventDisproved, "no", ""))
	for what, r := range map[string]ledger.Payment{"of another version": live, "decided": d.recorded(t), "live": d.pay(t, "other").Record()} {
		if h, err := d.Reclaim(t.Context(), r, d.clock.Add(lease)); h != nil || err != nil {
			t.Errorf("%s: %+v, %v", what, h, err)
		}
	}
}
