package x402_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

const duplicateWindow = 45 * time.Second

// shop gives the bench a duplicate window, and a view of the chain if any.
func (b *bench) shop(e x402.Evidence) { b.sell(e, nil) }

// sell gives it somebody who signs receipts, too.
func (b *bench) sell(e x402.Evidence, r x402.Receipts) {
	var ids atomic.Int64
	b.gate = x402.NewGate(x402.GateConfig{
		Ledger:      ledger.New(b.store, time.Now, func() string { return fmt.Sprint("s", ids.Add(1)) }),
		Facilitator: b, Evidence: e, Receipts: r, Window: duplicateWindow, Now: time.Now, Log: slog.New(slog.DiscardHandler),
	})
}

// isReplay holds an answer to being the one that an earlier payment bought.
func (b *bench) isReplay(what string, first, again x402.Outcome) {
	b.t.Helper()
	b.expect(what, again, first.Status, "", "true", false, true)
	if !again.Replayed || string(again.Body) != string(first.Body) || !reflect.DeepEqual(again.Receipt, first.Receipt) {
		b.t.Errorf("%s: %+v is no replay of %+v", what, again, first)
	}
}

// A payer who signs anew for the same question is charged once, until the
// duplicate window ends; with a key, until a day after. Another question, another
// payer, another key are purchases of their own.
func TestOnePurchaseOneCharge(t *testing.T) {
	within(t, nil, func(t *testing.T, b *bench) {
		b.shop(nil)
		var n atomic.Int32
		b.work = func(context.Context, int) ([]byte, error) { return fmt.Appendf(nil, `{"n":%d}`, n.Add(1)), nil }
		first := b.ask(b.sign(nil), "GET /a")
		b.expect("first", first, 200, "", "true", false, true)
		time.Sleep(duplicateWindow - time.Nanosecond)
		second := b.sign(nil)
		b.isReplay("second signature", first, b.ask(second, "GET /a"))
		if r := b.stored(second); r.State != ledger.Superseded || r.Sent || r.Payload != nil {
			t.Errorf("second signature: %+v", r)
		}
		b.counts("two signatures", 1, 1)
		time.Sleep(time.Nanosecond)
		b.expect("after the window", b.ask(b.sign(nil), "GET /a"), 200, "", "true", false, true)
		b.counts("after the window", 2, 2)
		b.isReplay("the superseded one, after the window", x402.Outcome{Status: 200, Body: []byte(`{"n":2}`), Receipt: first.Receipt}, b.ask(second, "GET /a"))
		b.expect("another question", b.ask(b.sign(nil), "GET /b"), 200, "", "true", false, true)
		b.counts("another question", 3, 3)

		b.keys = []string{"order-7"}
		keyed := b.ask(b.sign(nil), "GET /a")
		b.expect("a key", keyed, 200, "", "true", false, true)
		b.counts("a key", 4, 4)
		time.Sleep(ledger.KeptFor - time.Nanosecond)
		b.isReplay("the same key", keyed, b.ask(b.sign(nil), "GET /a"))
		b.expect("the same key, elsewhere", b.ask(b.sign(nil), "GET /b"), 409, fault.IdempotencyConflict, "false", false, false)
		b.keys = []string{`"order-7"`}
		b.isReplay("the same key in quotes", keyed, b.ask(b.sign(nil), "GET /a"))
		time.Sleep(time.Nanosecond)
		b.expect("the same key, a day later", b.ask(b.sign(nil), "GET /a"), 200, "", "true", false, true)
		b.keys = []string{"order-8"}
		b.expect("another key", b.ask(b.sign(nil), "GET /a"), 200, "", "true", false, true)
		b.counts("in all", 6, 6)

		wallet, err := x402test.NewWallet(strings.NewReader(strings.Repeat("another payer has another key...", 9)))
		if err != nil {
			t.Fatal(err)
		}
		b.wallet = wallet
		b.expect("another payer, the same key", b.ask(b.sign(nil), "GET /a"), 200, "", "true", false, true)
		b.counts("another payer", 7, 7)
	})
}

// What the payment that owns a purchase has come to, and what a new signature for
// the same purchase gets: the rows of design §13's table.
func TestOwnerOfAPurchase(t *testing.T) {
	never := x402.Finding{Verdict: x402.NeverPaid, Reason: "authorization was cancelled"}
	open := x402.Finding{Verdict: x402.StillOpen}
	unknown := x402.Settlement{Class: x402.Unknown, Reason: "timeout"}
	no := x402.Settlement{Class: x402.Refused, Reason: "invalid_exact_evm_insufficient_balance"}
	door := x402.Settlement{Class: x402.TurnedAway, Code: fault.FacilitatorUnauthorized, Reason: "unauthorized"}
	none := x402.Settlement{Class: x402.NotSent, Code: fault.FacilitatorUnavailable, Reason: "refused"}
	failing := func(b *bench) {
		b.work = func(context.Context, int) ([]byte, error) { return nil, fault.New(fault.DNSTimeout, nil) }
	}
	working := func(b *bench) {
		b.work = func(context.Context, int) ([]byte, error) { return []byte("{}"), nil }
	}
	spend := func(b *bench, h string) {
		for _, wait := range []time.Duration{time.Second, 10 * time.Second, time.Minute, 10 * time.Minute} {
			time.Sleep(wait)
			b.ask(h, "GET /a")
		}
		working(b)
	}
	for _, c := range []struct {
		name   string
		chain  *x402.Finding // when the first is sent, and
		later  *x402.Finding // when the second comes; nil is no view of it
		first  x402.Settlement
		before func(b *bench)           // the first
		after  func(b *bench, h string) // it
		wait   time.Duration
		keyed  bool
		second x402.Settlement
		status int
		code   fault.Code
		charge string
		retry  bool
		// What the facilitator was sent in all, and how many lookups ran.
		sent, runs int
		own        ledger.State // what becomes of the second payment
		owner      ledger.State // and of the first
	}{
		{name: "in doubt, and it moves", first: unknown, second: moved(), status: 200, charge: "true", sent: 2, runs: 1, own: ledger.Superseded, owner: ledger.Redeemed},
		{name: "in doubt, and still in doubt", first: unknown, second: unknown, status: 503, code: fault.SettlementUncertain, charge: "null", retry: true, sent: 2, own: ledger.Refused, owner: ledger.Uncertain},
		{name: "in doubt, the chain saw it move", chain: &x402.Finding{}, later: &x402.Finding{Verdict: x402.Paid, Transaction: tx}, first: unknown, second: unknown, status: 200, charge: "true", sent: 2, runs: 1, own: ledger.Superseded, owner: ledger.Redeemed},
		{name: "in doubt, proven dead", chain: &x402.Finding{}, later: &never, first: unknown, second: unknown, status: 402, code: fault.PaymentRequired, charge: "false", sent: 3, own: ledger.Refused, owner: ledger.Superseded},
		{name: "in doubt past its window, open", chain: &x402.Finding{}, later: &open, first: unknown, wait: 5 * time.Minute, second: moved(), status: 503, code: fault.SettlementUncertain, charge: "null", retry: true, sent: 1, own: ledger.Refused, owner: ledger.Uncertain},
		{name: "in doubt past its window, dead", chain: &x402.Finding{}, later: &never, first: unknown, wait: 5 * time.Minute, second: moved(), status: 200, charge: "true", sent: 2, runs: 1, own: ledger.Redeemed, owner: ledger.Superseded},
		{name: "in doubt past its window, nobody sees it", first: unknown, wait: time.Hour, second: moved(), status: 503, code: fault.SettlementUncertain, charge: "null", retry: true, sent: 1, own: ledger.Refused, owner: ledger.Uncertain},

		{name: "refused, and refused again", first: no, wait: time.Second, second: no, status: 402, code: fault.PaymentRequired, charge: "false", sent: 2, own: ledger.Refused, owner: ledger.Refused},
		{name: "refused a moment ago", first: no, second: moved(), status: 200, charge: "true", sent: 2, runs: 1, own: ledger.Superseded, owner: ledger.Redeemed},
		{name: "refused twice, the last time a moment ago", first: no, after: func(b *bench, h string) { time.Sleep(time.Second); b.ask(h, "GET /a") }, second: moved(), status: 402, code: fault.PaymentRequired, charge: "false", sent: 2, own: ledger.Refused, owner: ledger.Refused},
		{name: "refused, and it moves now", first: no, wait: time.Second, second: moved(), status: 200, charge: "true", sent: 2, runs: 1, own: ledger.Superseded, owner: ledger.Redeemed},
		{name: "refused, and in doubt now", first: no, wait: time.Second, second: unknown, status: 503, code: fault.SettlementUncertain, charge: "null", retry: true, sent: 2, own: ledger.Refused, owner: ledger.Uncertain},
		{name: "refused past its window, blind, early", first: no, wait: 15 * time.Minute, second: moved(), status: 503, code: fault.SettlementUncertain, charge: "null", retry: true, sent: 1, own: ledger.Refused, owner: ledger.Refused},
		{name: "refused past its window, blind", first: no, wait: 15*time.Minute + time.Second, second: moved(), status: 200, charge: "true", sent: 2, runs: 1, own: ledger.Redeemed, owner: ledger.Superseded},
		{name: "refused past its window, the chain says open", chain: &x402.Finding{}, later: &open, first: no, wait: time.Hour, second: moved(), status: 503, code: fault.SettlementUncertain, charge: "null", retry: true, sent: 1, own: ledger.Refused, owner: ledger.Refused},
		{name: "turned away, and turned away again", first: door, second: door, status: 503, code: fault.FacilitatorUnauthorized, charge: "false", retry: true, sent: 2, own: ledger.Refused, owner: ledger.Refused},
		{name: "turned away, and it moves now", first: door, second: moved(), status: 200, charge: "true", sent: 2, runs: 1, own: ledger.Superseded, owner: ledger.Redeemed},
		{name: "never sent", first: none, second: moved(), status: 200, charge: "true", sent: 2, runs: 1, own: ledger.Redeemed, owner: ledger.Superseded},

		{name: "owed", before: failing, after: func(b *bench, _ string) { working(b); time.Sleep(time.Second) }, first: moved(), second: moved(), status: 200, charge: "true", sent: 1, runs: 2, own: ledger.Superseded, owner: ledger.Redeemed},
		{name: "owed, too early", before: failing, after: func(b *bench, _ string) { working(b) }, first: moved(), second: moved(), status: 504, code: fault.DNSTimeout, charge: "true", retry: true, sent: 1, runs: 1, own: ledger.Superseded, owner: ledger.Settled},
		{name: "owed, no lookup left", before: failing, after: spend, first: moved(), second: moved(), status: 200, charge: "true", sent: 2, runs: 6, own: ledger.Redeemed, owner: ledger.Settled},
		{name: "owed, no lookup left, with a key", keyed: true, before: failing, after: spend, first: moved(), second: moved(), status: 504, code: fault.DNSTimeout, charge: "true", sent: 1, runs: 5, own: ledger.Superseded, owner: ledger.Settled},
		{name: "owed, no lookup left, with a key, a day later", keyed: true, before: failing, after: spend, wait: 24 * time.Hour, first: moved(), second: moved(), status: 200, charge: "true", sent: 2, runs: 6, own: ledger.Redeemed, owner: ledger.Settled},

		{name: "its record is gone", first: moved(), wait: 36 * 24 * time.Hour, keyed: true, second: moved(), status: 200, charge: "true", sent: 2, runs: 2, own: ledger.Redeemed},
	} {
		t.Run(c.name, func(t *testing.T) {
			within(t, nil, func(t *testing.T, b *bench) {
				seen := &fakeEvidence{}
				b.shop(nil)
				if c.chain != nil {
					seen.f = *c.chain
					b.shop(seen)
				}
				if c.keyed {
					b.keys = []string{"key"}
				}
				if c.before != nil {
					c.before(b)
				}
				var payloads []x402.Payload
				b.onSettle = func(p x402.Payload) { payloads = append(payloads, p) }
				b.settle = settles(c.first)
				first := b.sign(nil)
				b.ask(first, "GET /a")
				if c.after != nil {
					c.after(b, first)
				}
				time.Sleep(c.wait)
				if c.later != nil {
					seen.f = *c.later
				}
				b.settle = settles(c.second)
				second := b.sign(nil)
				out := b.ask(second, "GET /a")
				b.expect("second", out, c.status, c.code, c.charge, c.retry, c.charge == "true")
				b.counts("second", c.sent, c.runs)
				if r := b.stored(second); r.State != c.own {
					t.Errorf("the second is %s, want %s (%s)", r.State, c.own, r.Reason)
				}
				if c.owner != "" && b.stored(first).State != c.owner {
					t.Errorf("the first is %s, want %s", b.stored(first).State, c.owner)
				}
				// Whatever was sent for the first is the same bytes.
				for _, p := range payloads {
					if p.Payload.Authorization.Nonce == payloads[0].Payload.Authorization.Nonce && !reflect.DeepEqual(p, payloads[0]) {
						t.Errorf("sent %+v, then %+v", payloads[0], p)
					}
				}
				if out.Fault != nil && out.Fault.Code == fault.SettlementUncertain {
					b.saysWhatToDo(out, c.chain != nil)
				}
			})
		})
	}
}

// saysWhatToDo holds a doubt about another payment to its message.
func (b *bench) saysWhatToDo(out x402.Outcome, until bool) {
	b.t.Helper()
	said := out.Fault.Public()
	if !strings.Contains(said, "Idempotency-Key") || strings.Contains(said, "after 20") != until {
		b.t.Errorf("says %q; until when: %t", said, until)
	}
}

// Payments of one purchase that come at once: one is sent, the others wait for its
// answer, or are told that it is in progress. None is used up.
func TestPurchasesAtOnce(t *testing.T) {
	for takes, want := range map[time.Duration]int{3 * time.Second: 200, 9 * time.Second: 409} {
		within(t, nil, func(t *testing.T, b *bench) {
			b.shop(nil)
			b.settle = func(context.Context, int) x402.Settlement { time.Sleep(takes); return moved() }
			first := b.sign(nil)
			var all sync.WaitGroup
			all.Go(func() { b.expect("first", b.ask(first, "GET /a"), 200, "", "true", false, true) })
			time.Sleep(time.Millisecond)
			others := make([]string, 20)
			for i := range others {
				others[i] = b.sign(nil)
				all.Go(func() {
					begun := time.Now()
					out := b.ask(others[i], "GET /a")
					if out.Status != want || out.Replayed != (want == 200) || want == 409 && !out.Standing.Retryable {
						t.Errorf("after %s: %d %v", time.Since(begun), out.Status, out.Fault)
					}
				})
			}
			all.Wait()
			b.counts("at once", 1, 1)
			time.Sleep(time.Second)
			for _, h := range others {
				if out := b.ask(h, "GET /a"); out.Status != 200 || !out.Replayed {
					t.Errorf("sent again: %d %v", out.Status, out.Fault)
				}
			}
			b.counts("sent again", 1, 1)
		})
	}
}

// A process that freezes while it sends, for longer than its lease, has its payment
// sent once more by whoever signs anew, the same authorization, and not another.
func TestThawsAfterItsLease(t *testing.T) {
	within(t, nil, func(t *testing.T, b *bench) {
		b.shop(&fakeEvidence{f: x402.Finding{Verdict: x402.Paid, Transaction: tx}})
		var nonces []string
		b.onSettle = func(p x402.Payload) { nonces = append(nonces, p.Payload.Authorization.Nonce) }
		b.settle = func(_ context.Context, n int) x402.Settlement {
			if n > 1 {
				return moved()
			}
			time.Sleep(time.Minute)
			return x402.Settlement{Class: x402.Refused, Reason: x402.ReasonNonceUsed, NonceUsed: true}
		}
		frozen, second := b.sign(nil), b.sign(nil)
		var all sync.WaitGroup
		all.Go(func() {
			if out := b.ask(frozen, "GET /a"); out.Status == 402 {
				t.Errorf("the frozen one, once it thaws: %d %v", out.Status, out.Fault)
			}
		})
		time.Sleep(31 * time.Second)
		first := b.ask(second, "GET /a")
		b.expect("another", first, 200, "", "true", false, true)
		all.Wait()
		b.isReplay("the frozen one, again", first, b.ask(frozen, "GET /a"))
		if len(nonces) != 2 || nonces[0] != nonces[1] {
			t.Errorf("sent %v", nonces)
		}
	})
}

// A process that ends between the two writes of a takeover, or after either: the
// next payment goes on from there, and the one that was closed is never sent.
func TestTakeOverCutShort(t *testing.T) {
	for _, fails := range []struct {
		name string
		op   func(ledger.Record) bool
	}{
		{"closing the owner", func(r ledger.Record) bool { return r.State == ledger.Superseded }},
		{"swapping the purchase", func(r ledger.Record) bool { return r.State == ledger.Bought }},
	} {
		for _, how := range []ledgertest.Fault{ledgertest.FailBefore, ledgertest.FailAfter} {
			armed := false
			within(t, func(op ledgertest.Op, _ int, r ledger.Record) ledgertest.Fault {
				if armed && op == ledgertest.Replace && fails.op(r) {
					armed = false
					return how
				}
				return ledgertest.None
			}, func(t *testing.T, b *bench) {
				b.shop(nil)
				b.settle = settles(x402.Settlement{Class: x402.NotSent, Code: fault.FacilitatorUnavailable})
				first, second, third := b.sign(nil), b.sign(nil), b.sign(nil)
				b.expect("never sent", b.ask(first, "GET /a"), 503, fault.FacilitatorUnavailable, "false", true, false)
				b.settle = settles(moved())
				armed = true
				b.expect(fails.name, b.ask(second, "GET /a"), 503, fault.LedgerUnavailable, "null", true, false)
				b.expect("third", b.ask(third, "GET /a"), 200, "", "true", false, true)
				for _, h := range []string{first, second} {
					if out := b.ask(h, "GET /a"); out.Status != 200 || !out.Replayed {
						t.Errorf("%s: %d %v", fails.name, out.Status, out.Fault)
					}
				}
				b.counts(fails.name, 2, 1)
			})
		}
	}
}

// A superseded payment is never sent. Once the purchase has no answer any more
// its payer signs anew; proof that its own money moved all the same makes it a
// refund, since another payment has answered the purchase.
func TestSuperseded(t *testing.T) {
	within(t, nil, func(t *testing.T, b *bench) {
		b.shop(nil)
		first, second := b.sign(nil), b.sign(nil)
		b.expect("first", b.ask(first, "GET /a"), 200, "", "true", false, true)
		b.expect("second", b.ask(second, "GET /a"), 200, "", "true", false, true)
		time.Sleep(24*time.Hour + time.Second)
		out := b.ask(second, "GET /a")
		b.expect("a day later", out, 402, fault.PaymentRequired, "false", false, false)
		if !strings.Contains(out.Fault.Public(), "sign a new one") {
			t.Errorf("says %q", out.Fault.Public())
		}
		b.counts("a day later", 1, 1)
		l := ledger.New(b.store, time.Now, func() string { return "witness" })
		r := b.stored(second)
		got, err := l.Testify(t.Context(), ledger.Witness{
			Key: r.Key, Receipt: ledger.Receipt{Transaction: "0xdouble"}, At: time.Now(), Of: func(ledger.Record) bool { return true },
		})
		if err != nil || got != ledger.RefundDue {
			t.Errorf("its money moved: %d, %v", got, err)
		}
	})
}

// Money of a payment that was taken over, found before the purchase has an answer,
// is owed an answer.
func TestTakenOverAndPaid(t *testing.T) {
	within(t, nil, func(t *testing.T, b *bench) {
		b.shop(nil)
		b.settle = settles(x402.Settlement{Class: x402.Refused, Reason: "no"})
		first := b.sign(nil)
		b.ask(first, "GET /a")
		time.Sleep(16 * time.Minute)
		b.ask(b.sign(nil), "GET /a") // refused, too
		r := b.stored(first)
		if r.State != ledger.Superseded {
			t.Fatalf("%+v", r)
		}
		l := ledger.New(b.store, time.Now, func() string { return "witness" })
		got, err := l.Testify(t.Context(), ledger.Witness{
			Key: r.Key, Receipt: ledger.Receipt{Transaction: "0xlied", Network: "eip155:8453"}, At: time.Now(), Of: func(ledger.Record) bool { return true },
		})
		if err != nil || got != ledger.Found {
			t.Errorf("%d, %v", got, err)
		}
		b.expect("first, again", b.ask(first, "GET /a"), 200, "", "true", false, true)
		b.counts("first, again", 2, 1)
	})
}

// What a settlement publishes opens nothing: a stranger who copies authorization
// and signature gets one and the same 402, whatever he asks, and costs no write,
// no lookup and no call; its payer, who has the token or the key, gets his answer.
func TestCopiedFromTheChain(t *testing.T) {
	for name, bring := range standings() {
		for _, keyed := range []bool{false, true} {
			within(t, nil, func(t *testing.T, b *bench) {
				if keyed {
					b.keys = []string{"a-key-that-nobody-can-guess"}
				}
				var draft x402test.Draft
				h := b.sign(func(d *x402test.Draft) {
					if keyed {
						delete(d.Payload.Extensions, "retry-token")
					}
					draft = *d
				})
				bring.bring(b, h)
				b.keys = nil
				draft.Payload.Extensions = maps.Clone(draft.Payload.Extensions)
				delete(draft.Payload.Extensions, "retry-token")
				bare, err := b.wallet.Seal(draft)
				if err != nil {
					t.Fatal(err)
				}
				draft.Payload.Extensions["retry-token"] = json.RawMessage(`{"info":{"token":"guess"}}`)
				guess, err := b.wallet.Seal(draft)
				if err != nil {
					t.Fatal(err)
				}
				writes, settles, runs := b.writes(), len(b.settles), b.runs.Load()
				said := map[string]bool{}
				for _, copied := range []string{bare, guess} {
					for _, path := range []string{"GET /a", "GET /b"} {
						for _, key := range [][]string{nil, {"a-key-that-was-guessed"}} {
							b.keys = key
							out := b.ask(copied, path)
							if out.Status != 402 || out.Receipt != nil || out.Replayed || out.Trace.Unrecorded {
								t.Errorf("%s, %s: %+v", name, path, out)
							}
							said[out.Fault.Public()] = true
						}
					}
				}
				if len(said) != 1 {
					t.Errorf("%s: a stranger can tell requests apart: %v", name, said)
				}
				// A repeat that is judged at its claim tries to create the record.
				if w := b.writes(); w > writes+8 || len(b.settles) != settles || b.runs.Load() != runs {
					t.Errorf("%s: %d writes, %d settles, %d lookups", name, w-writes, len(b.settles)-settles, b.runs.Load()-runs)
				}
				if r := b.stored(h); r.Attempt > 1 && name != "spent" && name != "owed" {
					t.Errorf("%s: %+v", name, r)
				}
			})
		}
	}
}

// writes counts what the store was asked to write.
func (b *bench) writes() int {
	return b.store.Calls(ledgertest.Create) + b.store.Calls(ledgertest.Replace)
}

// A client that echoes no token and sends no key may repeat its payment until it
// is known that its money moved. From then on it signs anew, and the purchase
// answers.
func TestWithoutToken(t *testing.T) {
	within(t, nil, func(t *testing.T, b *bench) {
		b.shop(nil)
		b.settle = settles(x402.Settlement{Class: x402.Unknown})
		plain := func(d *x402test.Draft) { delete(d.Payload.Extensions, "retry-token") }
		h := b.sign(plain)
		b.expect("in doubt", b.ask(h, "GET /a"), 503, fault.SettlementUncertain, "null", true, false)
		b.settle = settles(moved())
		first := b.ask(h, "GET /a")
		b.expect("again", first, 200, "", "true", false, true)
		b.expect("once it has moved", b.ask(h, "GET /a"), 402, fault.PaymentRequired, "true", false, false)
		b.isReplay("signed anew", first, b.ask(b.sign(plain), "GET /a"))
		b.counts("in all", 2, 1)
	})
}

// Every smoke test settles, because two of them share no answer; with a key they
// are one purchase.
func TestPingIsBoughtAnew(t *testing.T) {
	within(t, nil, func(t *testing.T, b *bench) {
		b.shop(nil)
		b.anew = true
		h := b.sign(nil)
		b.expect("ping", b.ask(h, "GET /ping"), 200, "", "true", false, true)
		if n := b.writes(); n != 3 {
			t.Errorf("%d writes, want 3", n)
		}
		b.expect("again", b.ask(h, "GET /ping"), 200, "", "true", false, true)
		b.expect("another", b.ask(b.sign(nil), "GET /ping"), 200, "", "true", false, true)
		b.counts("two pings", 2, 2)
		b.keys = []string{"k"}
		b.expect("with a key", b.ask(b.sign(nil), "GET /ping"), 200, "", "true", false, true)
		b.expect("with the same key", b.ask(b.sign(nil), "GET /ping"), 200, "", "true", false, true)
		b.counts("with a key", 3, 3)
	})
}

// Keys that are none are refused before anything is written, and nothing is
// charged.
func TestInvalidKeys(t *testing.T) {
	within(t, nil, func(t *testing.T, b *bench) {
		h := b.sign(nil)
		for _, keys := range [][]string{{""}, {`""`}, {"a b"}, {"\x7f"}, {"é"}, {strings.Repeat("k", 256)}, {"a", "a"}, {"a\tb"}} {
			b.keys = keys
			b.expect(fmt.Sprintf("%q", keys), b.ask(h, "GET /a"), 400, fault.InvalidIdempotencyKey, "false", false, false)
		}
		if b.writes() != 0 {
			t.Errorf("%d writes", b.writes())
		}
		for _, key := range []string{"k", `"`, `"a`, "a,b", "~!", strings.Repeat("k", 255), `"` + strings.Repeat("k", 255) + `"`} {
			b.keys = []string{key}
			b.expect(key, b.ask(b.sign(nil), "GET /a"), 200, "", "true", false, true)
		}
		b.keys = []string{"a b"}
		b.expect("charged before", b.ask(h, "GET /a"), 400, fault.InvalidIdempotencyKey, "false", false, false)
	})
}

// A payment whose first attempt died before it opened its purchase is in doubt.
// Once another payment has answered it, it is not sent any more either.
func TestInDoubtAndAnswered(t *testing.T) {
	var armed atomic.Bool
	within(t, func(op ledgertest.Op, _ int, r ledger.Record) ledgertest.Fault {
		if op == ledgertest.Create && r.State == ledger.Bought && armed.CompareAndSwap(true, false) {
			time.Sleep(35 * time.Second) // frozen, past its lease
			return ledgertest.FailBefore
		}
		return ledgertest.None
	}, func(t *testing.T, b *bench) {
		b.shop(nil)
		first, second := b.sign(nil), b.sign(nil)
		paid := b.ask(first, "GET /a")
		b.expect("first", paid, 200, "", "true", false, true)
		armed.Store(true)
		var all sync.WaitGroup
		all.Go(func() { b.ask(second, "GET /a") })
		time.Sleep(31 * time.Second)
		b.isReplay("second", paid, b.ask(second, "GET /a"))
		all.Wait()
		if r := b.stored(second); r.State != ledger.Uncertain || r.Owner != b.stored(first).Key {
			t.Errorf("%+v", r)
		}
		time.Sleep(time.Hour)
		b.isReplay("second, when the window is over", paid, b.ask(second, "GET /a"))
		time.Sleep(24 * time.Hour)
		b.counts("in all", 1, 1)
	})
}

// Another payment of the past is sent under the terms that it was offered, also
// when the one that asks has been signed under today's.
func TestOwnerKeepsItsTerms(t *testing.T) {
	within(t, nil, func(t *testing.T, b *bench) {
		b.shop(nil)
		b.settle = func(_ context.Context, n int) x402.Settlement {
			if n == 1 {
				return x402.Settlement{Class: x402.Unknown}
			}
			return moved()
		}
		var payloads []x402.Payload
		b.onSettle = func(p x402.Payload) { payloads = append(payloads, p) }
		b.expect("unknown", b.ask(b.sign(nil), "GET /a"), 503, fault.SettlementUncertain, "null", true, false)
		b.offer = offer(t, terms(), "7000", "Oslo")
		b.expect("signed after the price change", b.ask(b.sign(nil), "GET /a"), 200, "", "true", false, true)
		if len(payloads) != 2 || b.settles[0] != b.settles[1] || string(payloads[0].Accepted) != string(payloads[1].Accepted) {
			t.Errorf("settled under %+v", b.settles)
		}
	})
}

// How long an answer stands is counted from the write that stored it, whatever
// was written since.
func TestWindowBeginsWithTheAnswer(t *testing.T) {
	within(t, nil, func(t *testing.T, b *bench) {
		b.shop(nil)
		b.reply = func(int32) (x402.Reply, error) {
			return x402.Reply{Body: []byte("{}"), Owed: []string{"whois"}}, nil
		}
		h := b.sign(nil)
		b.expect("first", b.ask(h, "GET /bundle"), 200, "", "true", false, true)
		time.Sleep(duplicateWindow - time.Second)
		b.expect("its part is looked up again, in vain", b.ask(h, "GET /bundle"), 200, "", "true", false, true)
		b.counts("in the window", 1, 2)
		time.Sleep(time.Second)
		b.expect("after the window", b.ask(b.sign(nil), "GET /bundle"), 200, "", "true", false, true)
		b.counts("after the window", 2, 3)
	})
}
