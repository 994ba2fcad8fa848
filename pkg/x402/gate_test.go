package x402_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

func TestPaidOnce(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, b *harness) {
		h := b.sign(nil)
		first := b.ask(h, "GET /a")
		b.expect("first", first, answered())
		if string(first.Body) != `{"ok":true}` || first.Replayed {
			t.Errorf("answer %s, replayed %v", first.Body, first.Replayed)
		}
		if want := []ledger.State{ledger.Settling, ledger.Settled, ledger.Redeemed}; !reflect.DeepEqual(first.Trace.States, want) {
			t.Errorf("states %v, want %v", first.Trace.States, want)
		}
		if c, r, f := b.store.Calls(ledgertest.Create), b.store.Calls(ledgertest.Replace), b.store.Calls(ledgertest.Fetch); c != 2 || r != 2 || f != 0 {
			t.Errorf("happy path: %d creates, %d replaces, %d reads; want 4 writes and no read", c, r, f)
		}
		again := b.ask(h, "GET /a")
		b.expect("again", again, answered())
		if string(again.Body) != string(first.Body) || !again.Replayed || *again.Receipt != *first.Receipt {
			t.Errorf("the repeat is another answer: %+v", again)
		}
		b.expect("elsewhere", b.ask(h, "GET /b"), expected{status: 402, code: fault.PaymentRequired, charged: "true", receipt: true})
		b.expectCalls("in all", 1, 1)
		time.Sleep(24 * time.Hour)
		b.expect("just within a day", b.ask(h, "GET /a"), answered())
		time.Sleep(time.Nanosecond)
		spent := b.ask(h, "GET /a")
		b.expect("after a day", spent, expected{status: 402, code: fault.PaymentRequired, charged: "true", receipt: true})
		b.expectCalls("in the end", 1, 1)
	})
}

// TestRefusedAtTheDoor checks that nothing is written or sent for an invalid payment, or for a
// payment that does not match the offer. If the refusal cannot depend on a record, the test
// also checks that no record is read.
func TestRefusedAtTheDoor(t *testing.T) {
	accepts := func(old, now string) func(*x402test.Draft) {
		return func(d *x402test.Draft) {
			d.Payload.Accepted = json.RawMessage(strings.Replace(string(d.Payload.Accepted), old, now, 1))
		}
	}
	for says, c := range map[string]struct {
		change func(*x402test.Draft)
		edit   func(header string) string
		reads  int
	}{
		"base64":           {edit: func(string) string { return "garbage!" }},
		"accepted.network": {change: accepts("eip155:8453", "eip155:1")},
		"accepted.asset":   {change: accepts("A02913", "A02914")},
		"signature: v is 2": {edit: func(header string) string {
			p := must(base64.StdEncoding.DecodeString(header))
			return base64.StdEncoding.EncodeToString(regexp.MustCompile(`("signature":"[^"]*)1[bc]"`).ReplaceAll(p, []byte(`${1}02"`)))
		}},
		"authorization.to": {change: func(d *x402test.Draft) {
			d.Payload.Payload.Authorization.To = d.Payload.Payload.Authorization.From
		}, reads: 1},
		"extension_echo_mismatch": {change: func(d *x402test.Draft) {
			d.Payload.Extensions = map[string]json.RawMessage{"bazaar": json.RawMessage(`{"info":{"city":"Rome"}}`)}
		}, reads: 1},
		"more than 24 hours": {change: func(d *x402test.Draft) { // without this limit, the record of the payment would be kept for ever
			d.Payload.Payload.Authorization.ValidBefore = "115792089237316195423570985008687907853269984665640564039457584007913129639935"
		}, reads: 1},
	} {
		withHarness(t, nil, func(t *testing.T, b *harness) {
			header := b.sign(c.change)
			if c.edit != nil {
				header = c.edit(header)
			}
			out := b.ask(header, "GET /a")
			b.expect(says, out, expected{status: 402, code: fault.PaymentRequired, charged: "false"})
			if !strings.Contains(out.Fault.Public(), says) {
				t.Errorf("%q does not say %q", out.Fault.Public(), says)
			}
			if reads := b.store.Calls(ledgertest.Fetch); reads != c.reads || b.writes()+len(b.verifyPayloads)+len(b.settleTerms) != 0 {
				t.Errorf("%s: %d reads, %d writes, %d verifies, %d settles", says, reads, b.writes(), len(b.verifyPayloads), len(b.settleTerms))
			}
		})
	}
}

// TestOwed checks that an answer is owed until a lookup gives one. After errors, including our
// own bugs, the lookup can be repeated at growing intervals, and the payer is charged once.
// Without a limit on lookups, the payer can always try again. With a limit, every reply after
// the last lookup says that a refund is due, and does not ask the payer to try again.
func TestOwed(t *testing.T) {
	spaced := []time.Duration{time.Second, 10 * time.Second, time.Minute, 10 * time.Minute, 20 * time.Minute, 40 * time.Minute, time.Hour, time.Hour}
	for most, waits := range map[int][]time.Duration{0: spaced, 3: {time.Second, 10 * time.Second, 0, 0}} {
		testOwed(t, most, waits)
	}
}

func testOwed(t *testing.T, most int, waits []time.Duration) {
	t.Helper()
	for code, fails := range map[fault.Code]func(context.Context, int) ([]byte, error){
		lookup.DNSTimeout:   lookUpWith(lookup.DNSTimeout),
		fault.InternalError: func(context.Context, int) ([]byte, error) { panic("bug") },
	} {
		withHarness(t, nil, func(t *testing.T, b *harness) {
			b.work = fails
			b.maxRuns = most
			h := b.sign(nil)
			for i, wait := range waits {
				runs := i + 1
				if most > 0 {
					runs = min(runs, most)
				}
				b.expectOwed(h, code, wait, runs)
				b.expectOwed(h, code, wait, runs) // too early for the next lookup
				time.Sleep(max(wait, time.Second))
			}
		})
	}
}

// expectOwed sends a payment, and expects the fault of its last lookup. runs is the number of
// lookups so far. wait is the time until the next lookup, or 0 if there is none.
func (b *harness) expectOwed(h string, code fault.Code, wait time.Duration, runs int) {
	b.t.Helper()
	what := fmt.Sprint(code, " after ", runs, " runs")
	info := infoOf(code)
	out := b.ask(h, "GET /a")
	b.expect(what, out, expected{status: info.Status, code: code, charged: "true", retryable: wait > 0, receipt: true})
	if out.Fault.Wait() != wait {
		b.t.Errorf("%s: Retry-After %s, want %s", what, out.Fault.Wait(), wait)
	}
	said := out.Fault.Public()
	refund := strings.HasSuffix(said, "a refund is due.")
	if refund != (wait == 0) || refund && strings.Contains(said, "retry") {
		b.t.Errorf("%s: %q", what, said)
	}
	b.expectCalls(what, 1, runs)
}

// TestSilence checks that the silence of the target becomes the answer after five silent
// lookups, or after a day in which no lookup failed in another way. This answer is stored
// once, is final, and leads to no refund. Until then, an answer is owed.
func TestSilence(t *testing.T) {
	quiet := lookup.Fault(lookup.SSLTimeout, nil).Silence()
	ours := lookup.Fault(lookup.SSLTimeout, nil)
	for name, c := range map[string]struct {
		lookups []*fault.Error
		answer  bool // whether the silence becomes the stored answer
	}{
		"five":              {[]*fault.Error{quiet, quiet, quiet, quiet, quiet}, true},
		"five, and ours":    {[]*fault.Error{ours, quiet, quiet, ours, quiet, quiet, quiet}, true},
		"four":              {[]*fault.Error{ours, quiet, quiet, quiet, quiet}, false},
		"a day":             {[]*fault.Error{quiet, quiet}, true},
		"a day, ours first": {[]*fault.Error{ours, quiet}, false},
		"a day, ours last":  {[]*fault.Error{quiet, ours}, false},
		"a day, one lookup": {[]*fault.Error{quiet}, true},
	} {
		t.Run(name, func(t *testing.T) {
			withHarness(t, nil, func(t *testing.T, b *harness) {
				b.window = 30 * time.Hour
				b.work = func(_ context.Context, n int) ([]byte, error) { return nil, c.lookups[n-1] }
				h := b.sign(nil)
				for range c.lookups {
					b.ask(h, "GET /a")
					time.Sleep(time.Hour)
				}
				if len(c.lookups) < ledger.MostSilent {
					time.Sleep(ledger.OwedFor)
				}
				runs := len(c.lookups)
				if c.answer {
					b.expectSilence(h)
				} else {
					b.work = lookUpWith(lookup.UpstreamUnavailable)
					b.expect("then", b.ask(h, "GET /a"), expected{status: 503, code: lookup.UpstreamUnavailable, charged: "true", retryable: true, receipt: true})
					runs++
				}
				b.expectCalls("in all", 1, runs)
				if r := b.storedPayment(h); (r.State == ledger.Redeemed) != c.answer {
					t.Errorf("stored %s", r.State)
				}
			})
		})
	}
}

// expectSilence checks that a purchase has the target's silence as its stored answer.
func (b *harness) expectSilence(h string) {
	b.t.Helper()
	first, again := b.ask(h, "GET /a"), b.ask(b.sign(nil), "GET /a")
	for what, out := range map[string]x402.Outcome{"then": first, "signed again": again} {
		b.expect(what, out, expected{status: 504, charged: "true", receipt: true})
		if !out.Replayed {
			b.t.Errorf("%s: not replayed: %v", what, out.Fault)
		}
	}
	if string(first.Body) != string(again.Body) {
		b.t.Errorf("%s, then %s", first.Body, again.Body)
	}
}

// TestClientGoesAway checks that a request continues when its client disconnects, and that its
// answer is stored.
func TestClientGoesAway(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, b *harness) {
		var cancel context.CancelFunc
		b.clientCtx, cancel = context.WithCancel(t.Context())
		b.settle = func(ctx context.Context, _ int) x402.Settlement {
			cancel()
			if ctx.Err() != nil {
				t.Error("the settlement is cancelled with the client")
			}
			return moved()
		}
		b.work = func(ctx context.Context, _ int) ([]byte, error) { return []byte("{}"), ctx.Err() }
		h := b.sign(nil)
		b.ask(h, "GET /a")
		if out := b.ask(h, "GET /a"); out.Status != 200 || !out.Replayed {
			t.Errorf("comes back: %d %v", out.Status, out.Fault)
		}
	})
}

// TestLargeAnswers checks that every answer that the store can keep is replayed. An answer
// that is too large to keep is looked up again, at intervals, but at most ledger.MostUnkept
// times in all. Such a payment is not a debt.
func TestLargeAnswers(t *testing.T) {
	noise := make([]byte, 600<<10)
	_, _ = rand.Read(noise) // Read never fails
	withHarness(t, nil, func(t *testing.T, b *harness) {
		b.work = func(context.Context, int) ([]byte, error) { return noise, nil }
		h := b.sign(nil)
		b.expect("first", b.ask(h, "GET /a"), answered())
		for range 2 * ledger.MostUnkept {
			out := b.ask(h, "GET /a")
			b.expect("again", out, answered())
			if !out.Replayed || !bytes.Equal(out.Body, noise) {
				t.Error("not replayed")
			}
			time.Sleep(time.Hour)
		}
		b.expectCalls("in all", 1, 1)
	})
	withHarness(t, nil, func(t *testing.T, b *harness) {
		b.store = ledgertest.NewFaulty(t, &ledgertest.Memory{Keep: ledger.LeastKept}, nil)
		b.work = func(context.Context, int) ([]byte, error) { return noise, nil }
		h := b.sign(nil)
		b.expect("first", b.ask(h, "GET /a"), answered())
		b.expect("at once", b.ask(h, "GET /a"), expected{status: 409, code: fault.PaymentInProgress, charged: "true", retryable: true, receipt: true})
		for range ledger.MostUnkept - 1 {
			time.Sleep(11 * time.Minute)
			out := b.ask(h, "GET /a")
			b.expect("again", out, answered())
			if out.Replayed || !bytes.Equal(out.Body, noise) {
				t.Error("not looked up")
			}
		}
		if r := b.storedPayment(h); r.Owed() {
			t.Errorf("a debt: %+v", r)
		}
		time.Sleep(11 * time.Minute)
		b.expect("no lookup left", b.ask(h, "GET /a"), expected{status: 402, code: fault.PaymentRequired, charged: "true", receipt: true})
		b.expectCalls("in all", 1, ledger.MostUnkept)
	})
}

// TestRefusedIsSpaced checks how soon a refused payment is sent again: 1 second after the
// first refusal, 10 seconds after the second, and 60 seconds after each later one. Between
// these times its payer gets the recorded reason. If a payment was not sent because of an error
// on our side, it may be sent again at once.
func TestRefusedIsSpaced(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, b *harness) {
		no := x402.Settlement{Class: x402.Refused, Reason: "invalid_exact_evm_insufficient_balance"}
		b.settle = settleWith(no)
		h := b.sign(nil)
		var asked []time.Duration
		begun := time.Now()
		for range 4 * 192 {
			sent, wrote := len(b.settleTerms), b.store.Calls(ledgertest.Replace)
			out := b.ask(h, "GET /a")
			b.expect("refused", out, expected{status: 402, code: fault.PaymentRequired, charged: "false"})
			if out.Receipt == nil || out.Receipt.ErrorReason != no.Reason {
				t.Fatalf("%+v", out)
			}
			if len(b.settleTerms) > sent {
				asked = append(asked, time.Since(begun))
			} else if b.store.Calls(ledgertest.Replace) != wrote {
				t.Fatal("a repeat that is answered from the record is written")
			}
			time.Sleep(time.Second / 4)
		}
		if got := fmt.Sprint(asked); got != "[0s 1s 11s 1m11s 2m11s 3m11s]" {
			t.Errorf("asked after %s", got)
		}
	})
	withHarness(t, nil, func(t *testing.T, b *harness) {
		h := b.sign(nil)
		for _, s := range []x402.Settlement{
			{Class: x402.NotSent, Code: fault.FacilitatorUnavailable}, {Class: x402.TurnedAway, Code: fault.FacilitatorUnauthorized},
			{Class: x402.Refused, Reason: "no"},
		} {
			b.settle = settleWith(s)
			b.ask(h, "GET /a")
		}
		b.expectCalls("ours, ours, the payer's", 3, 0)
		time.Sleep(time.Second)
		b.settle = settleWith(x402.Settlement{Class: x402.NotSent, Code: fault.FacilitatorUnavailable})
		b.ask(h, "GET /a")
		b.settle = settleWith(moved())
		b.expect("not sent, and again at once", b.ask(h, "GET /a"), answered())
	})
}

// TestNoTimeToLookUp plays a lookup that has no time left because a settlement or a slot took
// too long. The lookup must not begin, and a write must take it off the count of lookups. If
// that write fails, the lookup stays counted: a failing write must not give the payer an extra
// lookup. The result of the previous lookup must be kept.
func TestNoTimeToLookUp(t *testing.T) {
	for before, delay := range map[int]time.Duration{0: 20 * time.Second, 1: 28 * time.Second, mostTries - 1: 20 * time.Second} {
		for how, name := range map[ledgertest.Fault]string{
			ledgertest.None:       "written",
			ledgertest.FailBefore: "not written",
			ledgertest.FailAfter:  "written, and the reply is lost",
		} {
			t.Run(fmt.Sprint(before, " before, ", name), func(t *testing.T) {
				lookUpTooLate(t, before, delay, how)
			})
		}
	}
}

// mostTries is the number of lookups that the seller allows in TestNoTimeToLookUp.
const mostTries = 5

// lookUpTooLate sends a payment whose first lookups fail; failures is their number. Then the
// settlement or the slot takes so long (delay) that the next lookup has no time left. A write
// therefore takes that lookup off the count. writeFault is the fault of this write.
func lookUpTooLate(t *testing.T, failures int, delay time.Duration, writeFault ledgertest.Fault) {
	t.Helper()
	armed := failures == 0
	withHarness(t, func(op ledgertest.Op, n int, r ledger.Record) ledgertest.Fault {
		p, ok := r.(ledger.Payment)
		if armed && op == ledgertest.Replace && (failures == 0 && n == 1 || failures > 0 && ok && p.LeaseUntil.IsZero()) {
			return writeFault
		}
		return ledgertest.None
	}, func(t *testing.T, b *harness) {
		slots := &countedSlots{}
		b.slots = slots
		b.work = lookUpWith(lookup.UpstreamUnavailable)
		b.maxRuns = mostTries
		h := b.sign(nil)
		b.askOften(h, failures, 0, 11*time.Minute)
		armed = true
		if failures == 0 {
			b.settle = func(context.Context, int) x402.Settlement { time.Sleep(delay); return moved() }
		} else {
			slots.delay = delay
		}
		b.expect("no time", b.ask(h, "GET /a"), expected{status: 504, code: lookup.DNSTimeout, charged: "true", retryable: true, receipt: true})
		b.expectCalls("no time", 1, failures)
		armed, slots.delay = false, 0
		if r := b.storedPayment(h); failures > 0 && writeFault != ledgertest.FailBefore && (r.Lookups != failures || r.LastFault.Code != string(lookup.UpstreamUnavailable)) {
			t.Errorf("%d lookups before, %+v", failures, r)
		}
		b.askOften(h, mostTries+2, 11*time.Minute, 0)
		had := mostTries
		if failures > 0 && writeFault == ledgertest.FailBefore {
			had-- // the lookup that did not begin remained on the count
		}
		b.expectCalls("in all", 1, had)
	})
}

// askOften sends a payment several times. It pauses before and after each request.
func (b *harness) askOften(h string, times int, before, after time.Duration) {
	for range times {
		time.Sleep(before)
		b.ask(h, "GET /a")
		time.Sleep(after)
	}
}
