package x402_test

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// bench is a Gate with its surroundings, inside a synctest bubble: time is
// fake and passes only when everybody waits.
type bench struct {
	t      *testing.T
	gate   *x402.Gate
	store  *ledgertest.Faulty
	offer  *x402.Offer
	wallet *x402test.Wallet

	budget time.Duration // of the work; 0 is 8 s
	keys   []string      // Idempotency-Key
	anew   bool          // what is asked for is bought anew every time
	// meter counts the requests; nil counts nothing.
	meter x402.Meter

	// What the facilitator does, and what it saw.
	settle   func(ctx context.Context, n int) x402.Settlement
	verify   x402.Verification
	settles  []x402.Requirements
	verifys  int
	onSettle func(x402.Payload) // is called with what the facilitator is sent
	// onVerify is called while the facilitator looks at a signature.
	onVerify func()
	// What the work does, and how often it ran.
	work  func(ctx context.Context, n int) ([]byte, error)
	reply func(n int32) (x402.Reply, error) // replaces work, for a bundle
	runs  atomic.Int32
	mu    sync.Mutex
}

const tx = "0x89c91c789e57059b17285e7ba1716a1f5ff4c5dace0ea5a5135f26158d0421b9"

func moved() x402.Settlement { return x402.Settlement{Class: x402.Moved, Transaction: tx} }

func (b *bench) Settle(ctx context.Context, p x402.Payload, r x402.Requirements) x402.Settlement {
	b.mu.Lock()
	if b.onSettle != nil {
		b.onSettle(p)
	}
	b.settles = append(b.settles, r)
	n := len(b.settles)
	b.mu.Unlock()
	return b.settle(ctx, n)
}

func (b *bench) Verify(context.Context, x402.Payload, x402.Requirements) x402.Verification {
	b.mu.Lock()
	b.verifys++
	b.mu.Unlock()
	if b.onVerify != nil {
		b.onVerify()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.verify
}

func terms() x402.Terms {
	return x402.Terms{
		Network: "eip155:8453", Asset: "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913",
		PayTo: "0x209693Bc6afc0C5328bA36FaF03C514EF312287C", Name: "USD Coin", Version: "2",
	}
}

func offer(t *testing.T, terms x402.Terms, amount, city string) *x402.Offer {
	t.Helper()
	o, err := x402.NewOffer(x402.PaymentRequired{
		X402Version: 2, Error: "Payment required", Resource: x402.Resource{URL: "https://api.example.com/v1/x"},
		Accepts:    []x402.Requirements{terms.Requirements(amount)},
		Extensions: map[string]json.RawMessage{"bazaar": json.RawMessage(`{"info":{"city":"` + city + `"}}`)},
	})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// within runs a test in a bubble.
func within(t *testing.T, decide ledgertest.Decide, test func(t *testing.T, b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		wallet, err := x402test.NewWallet(rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		b := &bench{
			t: t, wallet: wallet, offer: offer(t, terms(), "5000", "Oslo"),
			settle: func(context.Context, int) x402.Settlement { return moved() },
			work:   func(context.Context, int) ([]byte, error) { return []byte(`{"ok":true}`), nil },
			store:  ledgertest.NewFaulty(t, &ledgertest.Memory{}, decide),
		}
		var ids atomic.Int64
		b.gate = x402.NewGate(x402.GateConfig{
			Ledger:      ledger.New(b.store, time.Now, func() string { return fmt.Sprint("w", ids.Add(1)) }),
			Facilitator: b, Now: time.Now, Log: slog.New(slog.DiscardHandler),
		})
		test(t, b)
	})
}

func (b *bench) sign(change func(d *x402test.Draft)) string {
	b.t.Helper()
	d, err := b.wallet.Draft(b.offer.Required(""), time.Now())
	if err != nil {
		b.t.Fatal(err)
	}
	d.Payload.Extensions = maps.Clone(d.Payload.Extensions)
	d.Payload.Extensions["retry-token"] = json.RawMessage(`{"info":{"token":"` + rand.Text() + `"}}`)
	if change != nil {
		change(&d)
	}
	h, err := b.wallet.Seal(d)
	if err != nil {
		b.t.Fatal(err)
	}
	return h
}

// ask sends a signed request for a path.
func (b *bench) ask(header, path string) x402.Outcome {
	b.t.Helper()
	return b.askWith(header, path, nil)
}

func (b *bench) askWith(header, path string, invalid error) x402.Outcome {
	return b.gate.Serve(context.Background(), x402.Request{
		Signature: header, Offer: b.offer, Meter: b.meter, Arrived: time.Now(), Deadline: time.Now().Add(27 * time.Second), Keys: b.keys,
		Prepare: func() (x402.Job, error) {
			if invalid != nil {
				return x402.Job{}, invalid
			}
			return x402.Job{
				Fingerprint: path, Budget: cmp.Or(b.budget, 8*time.Second), Timeout: fault.DNSTimeout, Anew: b.anew,
				Run: func(ctx context.Context) (x402.Reply, error) {
					if b.reply != nil {
						return b.reply(b.runs.Add(1))
					}
					body, err := b.work(ctx, int(b.runs.Add(1)))
					return x402.Reply{Body: body}, err
				},
			}, nil
		},
		Error: func(f *fault.Error, s x402.Standing) []byte {
			body, _ := json.Marshal(map[string]any{"code": f.Code, "charged": s.Charged, "retryable": s.Retryable})
			return body
		},
	})
}

// expect compares what matters of an outcome: status, code, charged,
// retryable, whether a receipt came along.
func (b *bench) expect(what string, got x402.Outcome, status int, code fault.Code, charged string, retryable, receipt bool) {
	b.t.Helper()
	type view struct {
		Status    int
		Code      fault.Code
		Charged   string
		Retryable bool
		Receipt   bool
	}
	v := view{Status: got.Status, Charged: "null", Retryable: got.Standing.Retryable, Receipt: got.Receipt != nil && got.Receipt.Success}
	if got.Fault != nil {
		v.Code = got.Fault.Code
	}
	if c := got.Standing.Charged; c != nil {
		v.Charged = fmt.Sprint(*c)
	}
	if want := (view{status, code, charged, retryable, receipt}); v != want {
		b.t.Errorf("%s: got %+v, want %+v (%v, cause %v)", what, v, want, got.Fault, got.Trace.Cause)
	}
}

func (b *bench) counts(what string, settles, runs int) {
	b.t.Helper()
	if len(b.settles) != settles || int(b.runs.Load()) != runs {
		b.t.Errorf("%s: %d settles and %d lookups, want %d and %d", what, len(b.settles), b.runs.Load(), settles, runs)
	}
}

func TestPaidOnce(t *testing.T) {
	within(t, nil, func(t *testing.T, b *bench) {
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
		b.counts("in all", 1, 1)
		time.Sleep(24*time.Hour - time.Minute)
		b.expect("just within a day", b.ask(h, "GET /a"), 200, "", "true", false, true)
		time.Sleep(2 * time.Minute)
		spent := b.ask(h, "GET /a")
		b.expect("after a day", spent, 402, fault.PaymentRequired, "true", false, true)
		b.counts("in the end", 1, 1)
	})
}

func TestManyCopiesAtOnce(t *testing.T) {
	within(t, nil, func(t *testing.T, b *bench) {
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
		b.counts("200 copies", 1, 1)
	})
}

// Nothing is written and nothing is sent for a payment that is not in order.
func TestRefusedAtTheDoor(t *testing.T) {
	within(t, nil, func(t *testing.T, b *bench) {
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
		if n := b.store.Calls(ledgertest.Create) + b.store.Calls(ledgertest.Replace); n != 0 {
			t.Errorf("%d writes", n)
		}
		b.counts("all refused", 0, 0)
		if b.verifys != 0 {
			t.Errorf("%d verifies", b.verifys)
		}
	})
}

func TestInvalidParametersAreNotCharged(t *testing.T) {
	within(t, nil, func(t *testing.T, b *bench) {
		h := b.sign(nil)
		b.expect("invalid", b.askWith(h, "", fault.New(fault.InvalidDomain, nil)), 400, fault.InvalidDomain, "false", false, false)
		b.counts("invalid", 0, 0)
		if n := b.store.Calls(ledgertest.Create); n != 0 {
			t.Errorf("%d creates", n)
		}
		b.expect("corrected, same signature", b.ask(h, "GET /a"), 200, "", "true", false, true)
	})
}

// A fact about the target uses the payment up and is stored like a result.
func TestAnswersAboutTheTarget(t *testing.T) {
	for _, code := range []fault.Code{fault.NXDomain, fault.NotFound, fault.RDAPUnavailable, fault.BlockedAddress, fault.ConnectFailed, fault.HandshakeFailed, fault.HTTPFailed} {
		within(t, nil, func(t *testing.T, b *bench) {
			b.work = func(context.Context, int) ([]byte, error) { return nil, fault.New(code, nil) }
			info, _ := fault.Of(code)
			h := b.sign(nil)
			first := b.ask(h, "GET /a")
			b.expect(string(code), first, info.Status, code, "true", false, true)
			again := b.ask(h, "GET /a")
			if again.Status != info.Status || string(again.Body) != string(first.Body) || !again.Replayed {
				t.Errorf("%s: the repeat is another answer: %+v", code, again)
			}
			b.counts(string(code), 1, 1)
		})
	}
}

// What is not an answer stays owed: five lookups, spaced, one charge.
func TestOwed(t *testing.T) {
	within(t, nil, func(t *testing.T, b *bench) {
		b.work = func(context.Context, int) ([]byte, error) { return nil, fault.New(fault.DNSTimeout, nil) }
		h := b.sign(nil)
		for i, wait := range []time.Duration{time.Second, 10 * time.Second, time.Minute, 10 * time.Minute} {
			out := b.ask(h, "GET /a")
			b.expect(fmt.Sprint("lookup ", i+1), out, 504, fault.DNSTimeout, "true", true, true)
			if out.Fault.Wait() != wait {
				t.Errorf("lookup %d: Retry-After %s, want %s", i+1, out.Fault.Wait(), wait)
			}
			early := b.ask(h, "GET /a")
			b.expect(fmt.Sprint("too early after ", i+1), early, 504, fault.DNSTimeout, "true", true, true)
			b.counts("an early retry uses none up", 1, i+1)
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
		b.counts("in the end", 1, 5)
	})
	within(t, nil, func(t *testing.T, b *bench) {
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
		b.counts("a bug", 1, 2)
	})
}

// A foreign error never reaches the client as text.
func TestForeignErrorsAreHidden(t *testing.T) {
	within(t, nil, func(t *testing.T, b *bench) {
		b.work = func(context.Context, int) ([]byte, error) { return nil, errors.New("secret detail") }
		out := b.ask(b.sign(nil), "GET /a")
		b.expect("foreign", out, 500, fault.InternalError, "true", true, true)
		if strings.Contains(out.Fault.Public(), "secret") {
			t.Error("the text of a foreign error is public")
		}
	})
}

func TestSettlementOutcomes(t *testing.T) {
	for _, c := range []struct {
		name      string
		s         x402.Settlement
		status    int
		code      fault.Code
		charged   string
		retryable bool
		state     ledger.State
	}{
		{"refused", x402.Settlement{Class: x402.Refused, Reason: "invalid_exact_evm_insufficient_balance"}, 402, fault.PaymentRequired, "false", false, ledger.Refused},
		{"nonce used, first attempt", x402.Settlement{Class: x402.Refused, Reason: x402.ReasonNonceUsed, NonceUsed: true}, 402, fault.PaymentRequired, "false", false, ledger.Refused},
		{"unavailable", x402.Settlement{Class: x402.NotSent, Code: fault.FacilitatorUnavailable}, 503, fault.FacilitatorUnavailable, "false", true, ledger.Refused},
		{"misconfigured", x402.Settlement{Class: x402.NotSent, Code: fault.FacilitatorMisconfigured}, 503, fault.FacilitatorMisconfigured, "false", true, ledger.Refused},
		{"unauthorized", x402.Settlement{Class: x402.NotSent, Code: fault.FacilitatorUnauthorized}, 503, fault.FacilitatorUnauthorized, "false", true, ledger.Refused},
		{"unknown", x402.Settlement{Class: x402.Unknown, Reason: "timeout"}, 503, fault.SettlementUncertain, "null", true, ledger.Uncertain},
		{"forgotten class", x402.Settlement{}, 503, fault.SettlementUncertain, "null", true, ledger.Uncertain},
	} {
		t.Run(c.name, func(t *testing.T) {
			within(t, nil, func(t *testing.T, b *bench) {
				b.settle = func(_ context.Context, n int) x402.Settlement {
					if n == 1 {
						return c.s
					}
					return moved()
				}
				h := b.sign(nil)
				out := b.ask(h, "GET /a")
				b.expect("first", out, c.status, c.code, c.charged, c.retryable, false)
				if last := out.Trace.States[len(out.Trace.States)-1]; last != c.state {
					t.Errorf("state %s, want %s", last, c.state)
				}
				if failed := out.Receipt; (c.s.Class == x402.Refused) != (failed != nil) || (failed != nil && (failed.Success || failed.ErrorReason != c.s.Reason)) {
					t.Errorf("PAYMENT-RESPONSE of the failure: %+v", failed)
				}
				b.counts("first", 1, 0)
				time.Sleep(time.Second)
				b.expect("same signature again", b.ask(h, "GET /a"), 200, "", "true", false, true)
				b.counts("second", 2, 1)
			})
		})
	}
}

// In doubt, a refusal proves nothing, and a used nonce means paid.
func TestDoubt(t *testing.T) {
	within(t, nil, func(t *testing.T, b *bench) {
		script := []x402.Settlement{
			{Class: x402.Unknown, Reason: "timeout", Transaction: tx},
			{Class: x402.Refused, Reason: "invalid_exact_evm_insufficient_balance"},
			{Class: x402.NotSent, Code: fault.FacilitatorUnavailable},
			{Class: x402.Refused, Reason: x402.ReasonNonceUsed, NonceUsed: true},
		}
		b.settle = func(_ context.Context, n int) x402.Settlement { return script[n-1] }
		h := b.sign(nil)
		b.expect("unknown", b.ask(h, "GET /a"), 503, fault.SettlementUncertain, "null", true, false)
		b.expect("refused in doubt", b.ask(h, "GET /a"), 503, fault.SettlementUncertain, "null", true, false)
		b.expect("not sent in doubt", b.ask(h, "GET /a"), 503, fault.FacilitatorUnavailable, "null", true, false)
		out := b.ask(h, "GET /a")
		b.expect("nonce used in doubt", out, 200, "", "true", false, true)
		if out.Receipt.Transaction != tx {
			t.Errorf("the known transaction is not in the receipt: %+v", out.Receipt)
		}
	})
}

// Store down before sending: nothing is sent. Store down after settlement: the
// payer gets the answer, and the record catches up.
func TestStoreFaults(t *testing.T) {
	for _, f := range []ledgertest.Fault{ledgertest.FailBefore, ledgertest.FailAfter} {
		within(t, func(op ledgertest.Op, n int, _ ledger.Record) ledgertest.Fault {
			if op == ledgertest.Create && n == 1 {
				return f
			}
			return ledgertest.None
		}, func(t *testing.T, b *bench) {
			h := b.sign(nil)
			b.expect("store down", b.ask(h, "GET /a"), 503, fault.LedgerUnavailable, "null", true, false)
			b.counts("store down", 0, 0)
			time.Sleep(31 * time.Second)
			b.expect("store up", b.ask(h, "GET /a"), 200, "", "true", false, true)
			b.counts("store up", 1, 1)
		})
		for _, failing := range [][]int{{1}, {2}, {1, 2}} {
			within(t, func(op ledgertest.Op, n int, _ ledger.Record) ledgertest.Fault {
				for _, k := range failing {
					if op == ledgertest.Replace && n == k {
						return f
					}
				}
				return ledgertest.None
			}, func(t *testing.T, b *bench) {
				b.settle = func(_ context.Context, n int) x402.Settlement {
					if n == 1 {
						return moved()
					}
					return x402.Settlement{Class: x402.Refused, Reason: x402.ReasonNonceUsed, NonceUsed: true}
				}
				h := b.sign(nil)
				what := fmt.Sprintf("writes %v fail with %d", failing, f)
				b.expect(what, b.ask(h, "GET /a"), 200, "", "true", false, true)
				time.Sleep(31 * time.Second)
				b.expect(what+", again", b.ask(h, "GET /a"), 200, "", "true", false, true)
			})
		}
	}
}

// Wrong parameters with a payment that was used before do not hide what has
// become of it.
func TestInvalidAfterPayment(t *testing.T) {
	invalid := fault.New(fault.InvalidDomain, nil)
	within(t, nil, func(t *testing.T, b *bench) {
		b.work = func(context.Context, int) ([]byte, error) { return nil, fault.New(fault.DNSTimeout, nil) }
		h := b.sign(nil)
		b.expect("never seen", b.askWith(h, "GET /a", invalid), 400, fault.InvalidDomain, "false", false, false)
		b.expect("owed", b.ask(h, "GET /a"), 504, fault.DNSTimeout, "true", true, true)
		b.expect("owed, invalid", b.askWith(h, "GET /a", invalid), 400, fault.InvalidDomain, "true", false, true)
		time.Sleep(10 * time.Minute)
		b.expect("past the window", b.askWith(h, "GET /a", invalid), 400, fault.InvalidDomain, "true", false, true)
		b.counts("invalid", 1, 1)
	})
	within(t, nil, func(t *testing.T, b *bench) {
		b.settle = func(context.Context, int) x402.Settlement { return x402.Settlement{Class: x402.Unknown} }
		h := b.sign(nil)
		b.expect("in doubt", b.ask(h, "GET /a"), 503, fault.SettlementUncertain, "null", true, false)
		b.expect("in doubt, invalid", b.askWith(h, "GET /a", invalid), 400, fault.InvalidDomain, "null", false, false)
	})
	within(t, nil, func(t *testing.T, b *bench) {
		b.settle = func(context.Context, int) x402.Settlement { return x402.Settlement{Class: x402.Refused, Reason: "no"} }
		h := b.sign(nil)
		b.expect("refused", b.ask(h, "GET /a"), 402, fault.PaymentRequired, "false", false, false)
		b.expect("refused, invalid", b.askWith(h, "GET /a", invalid), 400, fault.InvalidDomain, "false", false, false)
	})
	within(t, func(op ledgertest.Op, _ int, _ ledger.Record) ledgertest.Fault {
		if op == ledgertest.Fetch {
			return ledgertest.FailBefore
		}
		return ledgertest.None
	}, func(t *testing.T, b *bench) {
		b.expect("no ledger", b.askWith(b.sign(nil), "GET /a", invalid), 400, fault.InvalidDomain, "null", false, false)
	})
}

// A verdict that the ledger does not take is told to the operator, whatever the
// payer is told; a request that is on record is not.
func TestUnrecorded(t *testing.T) {
	settles := func(s x402.Settlement) func(context.Context, int) x402.Settlement {
		return func(context.Context, int) x402.Settlement { return s }
	}
	refusal := x402.Settlement{Class: x402.Refused, Reason: "no"}
	for _, c := range []struct {
		name   string
		settle x402.Settlement
		fails  int // the write that fails, 0 for none
		work   error
		status int
	}{
		{"answered", moved(), 0, nil, 200},
		{"settlement", moved(), 1, nil, 200},
		{"answer", moved(), 2, nil, 200},
		{"owed lookup", moved(), 2, fault.New(fault.DNSTimeout, nil), 504},
		{"refusal", refusal, 1, nil, 503},
		{"refused", refusal, 0, nil, 402},
		{"given back", x402.Settlement{Class: x402.NotSent, Code: fault.FacilitatorUnavailable}, 1, nil, 503},
		{"doubt", x402.Settlement{Class: x402.Unknown}, 1, nil, 503},
		{"in doubt", x402.Settlement{Class: x402.Unknown}, 0, nil, 503},
	} {
		within(t, func(op ledgertest.Op, n int, _ ledger.Record) ledgertest.Fault {
			if op == ledgertest.Replace && n == c.fails {
				return ledgertest.FailBefore
			}
			return ledgertest.None
		}, func(t *testing.T, b *bench) {
			b.settle = settles(c.settle)
			b.work = func(context.Context, int) ([]byte, error) { return []byte("{}"), c.work }
			out := b.ask(b.sign(nil), "GET /a")
			if out.Status != c.status || out.Trace.Unrecorded != (c.fails > 0) {
				t.Errorf("%s, write %d fails: status %d, unrecorded %t", c.name, c.fails, out.Status, out.Trace.Unrecorded)
			}
		})
	}
}

// A payment that the ledger knows survives the window, a price change, a
// change of payee and of the extension text. One that moved nothing does not.
func TestKnownPaymentsSurviveADeploy(t *testing.T) {
	within(t, nil, func(t *testing.T, b *bench) {
		b.work = func(_ context.Context, n int) ([]byte, error) {
			if n == 1 {
				return nil, fault.New(fault.DNSTimeout, nil)
			}
			return []byte("{}"), nil
		}
		owed, refused, fresh := b.sign(nil), b.sign(nil), b.sign(nil)
		b.expect("owed", b.ask(owed, "GET /a"), 504, fault.DNSTimeout, "true", true, true)
		b.settle = func(context.Context, int) x402.Settlement { return x402.Settlement{Class: x402.Refused, Reason: "no"} }
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
		b.counts("in all", 2, 2)
	})
}

// An uncertain payment is settled under the terms that it was offered, not
// under today's.
func TestUncertainKeepsItsTerms(t *testing.T) {
	within(t, nil, func(t *testing.T, b *bench) {
		b.settle = func(_ context.Context, n int) x402.Settlement {
			if n == 1 {
				return x402.Settlement{Class: x402.Unknown}
			}
			return moved()
		}
		h := b.sign(nil)
		b.expect("unknown", b.ask(h, "GET /a"), 503, fault.SettlementUncertain, "null", true, false)
		b.offer = offer(t, terms(), "7000", "Oslo")
		b.expect("after the price change", b.ask(h, "GET /a"), 200, "", "true", false, true)
		if b.settles[0] != b.settles[1] {
			t.Errorf("settled under %+v, then %+v", b.settles[0], b.settles[1])
		}
	})
}

// Signatures that cannot be judged locally go to the facilitator's /verify,
// once; a payment that the ledger knows by the same signature does not.
func TestContractWallets(t *testing.T) {
	contract := func(d *x402test.Draft) {
		d.Payload.Payload.Authorization.From = "0x2222222222222222222222222222222222222222"
	}
	within(t, nil, func(t *testing.T, b *bench) {
		b.verify = x402.Verification{Valid: true}
		h := b.sign(contract)
		b.expect("valid", b.ask(h, "GET /a"), 200, "", "true", false, true)
		b.expect("replayed", b.ask(h, "GET /a"), 200, "", "true", false, true)
		if b.verifys != 1 {
			t.Errorf("%d verifies, want 1", b.verifys)
		}
		b.counts("contract wallet", 1, 1)
	})
	within(t, nil, func(t *testing.T, b *bench) {
		b.verify = x402.Verification{Reason: "invalid_exact_evm_signature"}
		out := b.ask(b.sign(contract), "GET /a")
		b.expect("invalid", out, 402, fault.PaymentRequired, "false", false, false)
		if !strings.Contains(out.Fault.Public(), "invalid_exact_evm_signature") {
			t.Errorf("reason %q", out.Fault.Public())
		}
		b.verify = x402.Verification{Fault: fault.New(fault.FacilitatorUnavailable, nil)}
		b.expect("no verdict", b.ask(b.sign(contract), "GET /a"), 503, fault.FacilitatorUnavailable, "false", true, false)
		b.counts("not verified", 0, 0)
		if n := b.store.Calls(ledgertest.Create); n != 0 {
			t.Errorf("%d writes for payments that were not verified", n)
		}
	})
	// Another signature for the same authorization is not vouched for by the
	// record.
	within(t, nil, func(t *testing.T, b *bench) {
		b.verify = x402.Verification{Valid: true}
		var sealed x402test.Draft
		h := b.sign(func(d *x402test.Draft) { contract(d); sealed = *d })
		b.expect("first", b.ask(h, "GET /a"), 200, "", "true", false, true)
		b.verify = x402.Verification{Reason: "invalid"}
		b.expect("forged", b.ask(another(t, sealed), "GET /a"), 402, fault.PaymentRequired, "true", false, false)
		sealed.Payload.Payload.Signature = "0x" + strings.Repeat("ab", 100)
		own, err := x402.EncodeHeader(sealed.Payload)
		if err != nil {
			t.Fatal(err)
		}
		b.expect("another, with the token", b.ask(own, "GET /a"), 200, "", "true", false, true)
	})
	// With the token another signature of the wallet stands for the first, and what
	// a stranger is told of the charge is what the record says.
	for _, c := range []struct {
		settle  x402.Settlement
		status  int
		code    fault.Code
		charged string
	}{
		{x402.Settlement{Class: x402.Unknown}, 503, fault.SettlementUncertain, "null"},
		{moved(), 200, "", "true"},
	} {
		within(t, nil, func(t *testing.T, b *bench) {
			b.verify = x402.Verification{Valid: true}
			b.settle = func(context.Context, int) x402.Settlement { return c.settle }
			var sealed x402test.Draft
			h := b.sign(func(d *x402test.Draft) { contract(d); sealed = *d })
			b.expect("first", b.ask(h, "GET /a"), c.status, c.code, c.charged, c.code != "", c.code == "")
			sealed.Payload.Payload.Signature = "0x" + strings.Repeat("ab", 100)
			other, err := x402.EncodeHeader(sealed.Payload)
			if err != nil {
				t.Fatal(err)
			}
			b.verify = x402.Verification{Fault: fault.New(fault.FacilitatorUnavailable, nil)}
			b.expect("other", b.ask(other, "GET /a"), c.status, c.code, c.charged, c.code != "", c.code == "")
			b.expect("a stranger's", b.ask(another(t, sealed), "GET /a"), 402, fault.PaymentRequired, c.charged, false, false)
		})
	}
}

// Time: settlement gets what the lookup leaves, and a lookup that cannot have
// its budget is not begun; the answer stays owed and none is used up.
func TestBudgets(t *testing.T) {
	within(t, nil, func(t *testing.T, b *bench) {
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
	within(t, nil, func(t *testing.T, b *bench) {
		b.settle = func(context.Context, int) x402.Settlement { time.Sleep(20 * time.Second); return moved() }
		h := b.sign(nil)
		b.expect("settled late", b.ask(h, "GET /a"), 504, fault.DNSTimeout, "true", true, true)
		b.counts("settled late", 1, 0)
		time.Sleep(time.Second)
		b.expect("then", b.ask(h, "GET /a"), 200, "", "true", false, true)
		b.counts("then", 1, 1)
	})
}

// The client that goes away does not take the answer with it.
func TestClientGoesAway(t *testing.T) {
	within(t, nil, func(t *testing.T, b *bench) {
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

// A payer's identifier is a purchase key: another payment under it is the same
// purchase, another request is a conflict, and it is no key to anybody else's.
func TestPaymentIdentifier(t *testing.T) {
	const id = "pay_7d5d747be160e280504c099d984bcfe0"
	within(t, nil, func(t *testing.T, b *bench) {
		required := b.offer.Required("")
		required.Extensions = map[string]json.RawMessage{x402.ExtensionIdentifier: json.RawMessage(`{"info":{"required":false},"schema":{}}`)}
		var err error
		if b.offer, err = x402.NewOffer(required); err != nil {
			t.Fatal(err)
		}
		named := func(id string) string {
			return b.sign(func(d *x402test.Draft) {
				d.Payload.Extensions[x402.ExtensionIdentifier] = json.RawMessage(`{"info":{"required":false,"id":` + id + `}}`)
			})
		}
		h := named(`"` + id + `"`)
		b.expect("first", b.ask(h, "GET /a"), 200, "", "true", false, true)
		if n := b.store.Calls(ledgertest.Create) + b.store.Calls(ledgertest.Replace); n != 4 {
			t.Errorf("%d writes, want as many as without an identifier", n)
		}
		again := b.ask(h, "GET /a")
		b.expect("same id, same payment", again, 200, "", "true", false, true)
		if !again.Replayed {
			t.Error("not replayed")
		}
		second := b.ask(named(`"`+id+`"`), "GET /a")
		b.expect("same id, other payment", second, 200, "", "true", false, true)
		if !second.Replayed || *second.Receipt != *again.Receipt {
			t.Errorf("same id, other payment: %+v", second)
		}
		b.expect("same id, other request", b.ask(named(`"`+id+`"`), "GET /b"), 409, fault.IdempotencyConflict, "false", false, false)
		b.counts("conflict", 1, 1)
		b.wallet, err = x402test.NewWallet(rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		other := b.ask(named(`"`+id+`"`), "GET /a")
		b.expect("same id, other payer", other, 200, "", "true", false, true)
		if other.Replayed {
			t.Error("an identifier opened another payer's answer")
		}
		for _, bad := range []string{`"short"`, `5`, `"pay_7d5d747be160e280504c099d984bcfe|"`, `"` + strings.Repeat("a", 129) + `"`} {
			b.expect("id "+bad, b.ask(named(bad), "GET /a"), 400, fault.InvalidIdempotencyKey, "false", false, false)
		}
		b.expect("no id", b.ask(b.sign(nil), "GET /a"), 200, "", "true", false, true)
	})
}
