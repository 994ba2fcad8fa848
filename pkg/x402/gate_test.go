package x402_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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

func TestPaidOnce(t *testing.T) {
	within(t, nil, func(t *testing.T, b *harness) {
		h := b.sign(nil)
		first := b.ask(h, "GET /a")
		b.expect("first", first, 200, "", "true", false, true)
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
		b.expect("again", again, 200, "", "true", false, true)
		if string(again.Body) != string(first.Body) || !again.Replayed || *again.Receipt != *first.Receipt {
			t.Errorf("the repeat is another answer: %+v", again)
		}
		b.expect("elsewhere", b.ask(h, "GET /b"), 402, fault.PaymentRequired, "true", false, true)
		b.expectCalls("in all", 1, 1)
		time.Sleep(24*time.Hour - time.Minute)
		b.expect("just within a day", b.ask(h, "GET /a"), 200, "", "true", false, true)
		time.Sleep(2 * time.Minute)
		spent := b.ask(h, "GET /a")
		b.expect("after a day", spent, 402, fault.PaymentRequired, "true", false, true)
		b.expectCalls("in the end", 1, 1)
	})
}

func TestManyCopiesAtOnce(t *testing.T) {
	within(t, nil, func(t *testing.T, b *harness) {
		h := b.sign(nil)
		b.settle = func(ctx context.Context, _ int) x402.Settlement { time.Sleep(time.Second); return moved() }
		var wg sync.WaitGroup
		var answers, inFlight atomic.Int32
		for range 200 {
			wg.Go(func() {
				switch out := b.ask(h, "GET /a"); out.Status {
				case 200:
					answers.Add(1)
				case 409:
					inFlight.Add(1)
				default:
					t.Errorf("status %d", out.Status)
				}
			})
		}
		wg.Wait()
		if answers.Load() != 1 || inFlight.Load() != 199 {
			t.Errorf("%d answers, %d in progress", answers.Load(), inFlight.Load())
		}
		b.expectCalls("200 copies", 1, 1)
	})
}

// Nothing is written and nothing is sent for a payment that is not in order.
func TestRefusedAtTheDoor(t *testing.T) {
	within(t, nil, func(t *testing.T, b *harness) {
		refuse := func(name, header, says string) {
			t.Helper()
			out := b.ask(header, "GET /a")
			b.expect(name, out, 402, fault.PaymentRequired, "false", false, false)
			if !strings.Contains(out.Fault.Public(), says) {
				t.Errorf("%s: %q does not say %q", name, out.Fault.Public(), says)
			}
		}
		refuse("garbage", "garbage!", "base64")
		refuse("oversized", strings.Repeat("A", 64<<10), "longer than")
		auth := func(change func(a *x402.Authorization)) string {
			return b.sign(func(d *x402test.Draft) { change(&d.Payload.Payload.Authorization) })
		}
		refuse("payee", auth(func(a *x402.Authorization) { a.To = a.From }), "authorization.to")
		refuse("value", auth(func(a *x402.Authorization) { a.Value = "4999" }), "authorization.value")
		refuse("more than the price", auth(func(a *x402.Authorization) { a.Value = "5001" }), "authorization.value")
		refuse("expired", auth(func(a *x402.Authorization) { a.ValidBefore = fmt.Sprint(time.Now().Unix() + 5) }), "validBefore")
		refuse("far ahead", auth(func(a *x402.Authorization) { a.ValidBefore = fmt.Sprint(time.Now().Unix() + 86401) }), "24 hours")
		refuse("not yet", auth(func(a *x402.Authorization) { a.ValidAfter = fmt.Sprint(time.Now().Unix() + 60) }), "validAfter")
		refuse("echo", b.sign(func(d *x402test.Draft) {
			d.Payload.Extensions = map[string]json.RawMessage{"bazaar": json.RawMessage(`{"info":{"city":"Rome"}}`)}
		}), "extension_echo_mismatch")
		if n := b.writes(); n != 0 {
			t.Errorf("%d writes", n)
		}
		b.expectCalls("all refused", 0, 0)
		if b.verifys != 0 {
			t.Errorf("%d verifies", b.verifys)
		}
	})
}

// A fact about the target uses the payment up and is stored like a result.
func TestAnswersAboutTheTarget(t *testing.T) {
	for _, code := range []fault.Code{fault.NXDomain, fault.NotFound, fault.RDAPUnavailable, fault.BlockedAddress, fault.ConnectFailed, fault.HandshakeFailed, fault.HTTPFailed} {
		within(t, nil, func(t *testing.T, b *harness) {
			b.work = looksUp(code)
			info, _ := fault.Of(code)
			h := b.sign(nil)
			first := b.ask(h, "GET /a")
			b.expect(string(code), first, info.Status, code, "true", false, true)
			again := b.ask(h, "GET /a")
			if again.Status != info.Status || string(again.Body) != string(first.Body) || !again.Replayed {
				t.Errorf("%s: the repeat is another answer: %+v", code, again)
			}
			b.expectCalls(string(code), 1, 1)
		})
	}
}

// What is not an answer stays owed: five lookups, spaced, one charge.
func TestOwed(t *testing.T) {
	within(t, nil, func(t *testing.T, b *harness) {
		b.work = looksUp(fault.DNSTimeout)
		h := b.sign(nil)
		for i, wait := range []time.Duration{time.Second, 10 * time.Second, time.Minute, 10 * time.Minute} {
			out := b.ask(h, "GET /a")
			b.expect(fmt.Sprint("lookup ", i+1), out, 504, fault.DNSTimeout, "true", true, true)
			if out.Fault.Wait() != wait {
				t.Errorf("lookup %d: Retry-After %s, want %s", i+1, out.Fault.Wait(), wait)
			}
			early := b.ask(h, "GET /a")
			b.expect(fmt.Sprint("too early after ", i+1), early, 504, fault.DNSTimeout, "true", true, true)
			b.expectCalls("an early retry uses none up", 1, i+1)
			time.Sleep(wait)
		}
		for _, what := range []string{"the fifth", "after the fifth"} {
			out := b.ask(h, "GET /a")
			b.expect(what, out, 504, fault.DNSTimeout, "true", false, true)
			if out.Fault.Wait() != 0 {
				t.Errorf("%s: Retry-After %s on what may not be asked again", what, out.Fault.Wait())
			}
			time.Sleep(time.Hour)
		}
		b.expectCalls("in the end", 1, 5)
	})
	within(t, nil, func(t *testing.T, b *harness) {
		b.work = func(_ context.Context, n int) ([]byte, error) {
			if n == 1 {
				panic("bug")
			}
			return []byte("{}"), nil
		}
		h := b.sign(nil)
		b.expect("a bug of ours", b.ask(h, "GET /a"), 500, fault.InternalError, "true", true, true)
		time.Sleep(time.Second)
		b.expect("mended", b.ask(h, "GET /a"), 200, "", "true", false, true)
		b.expectCalls("a bug", 1, 2)
	})
}

// A foreign error never reaches the client as text.
func TestForeignErrorsAreHidden(t *testing.T) {
	within(t, nil, func(t *testing.T, b *harness) {
		b.work = func(context.Context, int) ([]byte, error) { return nil, errors.New("secret detail") }
		out := b.ask(b.sign(nil), "GET /a")
		b.expect("foreign", out, 500, fault.InternalError, "true", true, true)
		if strings.Contains(out.Fault.Public(), "secret") {
			t.Error("the text of a foreign error is public")
		}
	})
}

// A payment that the ledger knows survives the window, a price change, a
// change of payee and of the extension text. One that moved nothing does not.
func TestKnownPaymentsSurviveADeploy(t *testing.T) {
	within(t, nil, func(t *testing.T, b *harness) {
		b.work = looksUp(fault.DNSTimeout, "")
		owed, refused, fresh := b.sign(nil), b.sign(nil), b.sign(nil)
		b.expect("owed", b.ask(owed, "GET /a"), 504, fault.DNSTimeout, "true", true, true)
		b.settle = settles(x402.Settlement{Class: x402.Refused, Reason: "no"})
		b.expect("refused", b.ask(refused, "GET /c"), 402, fault.PaymentRequired, "false", false, false)
		time.Sleep(time.Hour) // past the window
		other := terms()
		other.PayTo = "0x1111111111111111111111111111111111111111"
		b.offer = offer(t, other, "7000", "Rome")
		b.expect("owed, after the deploy", b.ask(owed, "GET /a"), 200, "", "true", false, true)
		b.expect("replayed, after the deploy", b.ask(owed, "GET /a"), 200, "", "true", false, true)
		out := b.ask(refused, "GET /c")
		b.expect("refused one, after the deploy", out, 402, fault.PaymentRequired, "false", false, false)
		if out.Receipt == nil || out.Receipt.Success || out.Receipt.ErrorReason != "no" {
			t.Errorf("a payment known to have moved nothing gets the receipt %+v", out.Receipt)
		}
		out = b.ask(fresh, "GET /a")
		b.expect("one never seen", out, 402, fault.PaymentRequired, "false", false, false)
		if out.Receipt != nil {
			t.Errorf("a payment never seen gets the receipt %+v", out.Receipt)
		}
		b.expectCalls("in all", 2, 2)
	})
}

// An uncertain payment is settled under the terms that it was offered, not
// under today's.
func TestUncertainKeepsItsTerms(t *testing.T) {
	within(t, nil, func(t *testing.T, b *harness) {
		b.settle = settles(x402.Settlement{Class: x402.Unknown}, moved())
		h := b.sign(nil)
		b.expect("unknown", b.ask(h, "GET /a"), 503, fault.SettlementUncertain, "null", true, false)
		b.offer = offer(t, terms(), "7000", "Oslo")
		b.expect("after the price change", b.ask(h, "GET /a"), 200, "", "true", false, true)
		if b.settles[0] != b.settles[1] {
			t.Errorf("settled under %+v, then %+v", b.settles[0], b.settles[1])
		}
	})
}

// A settlement gets the time that the lookup leaves. A lookup for which too little
// time is left is not begun: the answer stays owed, and no lookup is counted.
func TestBudgets(t *testing.T) {
	within(t, nil, func(t *testing.T, b *harness) {
		b.settle = func(ctx context.Context, _ int) x402.Settlement {
			deadline, _ := ctx.Deadline()
			if left := time.Until(deadline); left != 15*time.Second {
				t.Errorf("a settlement has %s, want 15 s", left)
			}
			return moved()
		}
		b.work = func(ctx context.Context, _ int) ([]byte, error) {
			deadline, _ := ctx.Deadline()
			if left := time.Until(deadline); left != 8*time.Second {
				t.Errorf("a lookup has %s, want 8 s", left)
			}
			return []byte("{}"), nil
		}
		b.expect("in time", b.ask(b.sign(nil), "GET /a"), 200, "", "true", false, true)
	})
	within(t, nil, func(t *testing.T, b *harness) {
		b.settle = func(context.Context, int) x402.Settlement { time.Sleep(20 * time.Second); return moved() }
		h := b.sign(nil)
		b.expect("settled late", b.ask(h, "GET /a"), 504, fault.DNSTimeout, "true", true, true)
		b.expectCalls("settled late", 1, 0)
		time.Sleep(time.Second)
		b.expect("then", b.ask(h, "GET /a"), 200, "", "true", false, true)
		b.expectCalls("then", 1, 1)
	})
}

// A request whose client disconnects is continued, and its answer is stored.
func TestClientGoesAway(t *testing.T) {
	within(t, nil, func(t *testing.T, b *harness) {
		h := b.sign(nil)
		ctx, cancel := context.WithCancel(context.Background())
		b.settle = func(ctx context.Context, _ int) x402.Settlement {
			cancel()
			if ctx.Err() != nil {
				t.Error("settlement is cancelled with the client")
			}
			return moved()
		}
		_ = b.gate.Serve(ctx, x402.Request{
			Signature: h, Offer: b.offer, Deadline: time.Now().Add(27 * time.Second),
			Prepare: func() (x402.Job, error) {
				return x402.Job{Fingerprint: "GET /a", Run: func(ctx context.Context) (x402.Reply, error) { return x402.Reply{Body: []byte("{}")}, ctx.Err() }, Budget: time.Second}, nil
			},
			Error: func(*fault.Error, x402.Standing) []byte { return nil },
		})
		b.expect("comes back", b.ask(h, "GET /a"), 200, "", "true", false, true)
	})
}
