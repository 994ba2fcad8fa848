package x402_test

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// harness is a Gate with fakes of its parts, inside a synctest bubble: time is
// fake and passes only when everybody waits.
type harness struct {
	t      *testing.T
	gate   *x402.Gate
	store  *ledgertest.Faulty
	offer  *x402.Offer
	wallet *x402test.Wallet

	given  time.Duration   // to the request; 0 is 27 s
	keys   []string        // Idempotency-Key
	window time.Duration   // x402.Request.Window
	anew   bool            // x402.Job.NoImplicitRetry: each request is another purchase
	client context.Context // of the requests; nil does not end
	// meter counts the requests; nil counts nothing.
	meter x402.Meter

	// What the facilitator does, and what it saw.
	settle  func(ctx context.Context, n int) x402.Settlement
	verify  x402.Verification
	settles []x402.Requirements
	// sent are the payments that it was sent to settle, and shown those to verify.
	sent, shown []x402.Payload
	// settling and verifying are what its calls had left.
	settling, verifying []time.Duration
	// onVerify is called while the facilitator looks at a signature.
	onVerify func()
	// What the work does, and how often it ran.
	work  func(ctx context.Context, n int) ([]byte, error)
	reply func(n int32) (x402.Reply, error) // replaces work, for a bundle
	runs  atomic.Int32
	ids   atomic.Int64 // of writes
	mu    sync.Mutex
}

const tx = "0x89c91c789e57059b17285e7ba1716a1f5ff4c5dace0ea5a5135f26158d0421b9"

func moved() x402.Settlement { return x402.Settlement{Class: x402.Moved, Transaction: tx} }

func (b *harness) Settle(ctx context.Context, p x402.Payload, r x402.Requirements) x402.Settlement {
	b.mu.Lock()
	b.sent, b.settling = append(b.sent, p), append(b.settling, left(ctx))
	b.settles = append(b.settles, r)
	n := len(b.settles)
	b.mu.Unlock()
	return b.settle(ctx, n)
}

func (b *harness) Verify(ctx context.Context, p x402.Payload, _ x402.Requirements) x402.Verification {
	b.mu.Lock()
	b.shown, b.verifying = append(b.shown, p), append(b.verifying, left(ctx))
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
func within(t *testing.T, decide ledgertest.Decide, test func(t *testing.T, b *harness)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		wallet := must(x402test.NewWallet(rand.Reader))
		b := &harness{
			t: t, wallet: wallet, offer: offer(t, terms(), "5000", "Oslo"),
			settle: func(context.Context, int) x402.Settlement { return moved() },
			work:   func(context.Context, int) ([]byte, error) { return []byte(`{"ok":true}`), nil },
			store:  ledgertest.NewFaulty(t, &ledgertest.Memory{}, decide),
		}
		b.build(func(*x402.Gate) {})
		test(t, b)
	})
}

// build makes the Gate anew, of the harness and what change sets.
func (b *harness) build(change func(*x402.Gate)) {
	b.gate = &x402.Gate{
		Ledger:      ledger.New(b.store, time.Now, func() string { return fmt.Sprint("w", b.ids.Add(1)) }),
		Facilitator: b, Now: time.Now, Log: slog.New(slog.DiscardHandler),
	}
	change(b.gate)
}

func (b *harness) sign(change func(d *x402test.Draft)) string {
	b.t.Helper()
	d := must(b.wallet.Draft(b.offer.Required(""), time.Now()))
	d.Payload.Extensions = maps.Clone(d.Payload.Extensions)
	d.Payload.Extensions["retry-token"] = json.RawMessage(`{"info":{"token":"` + rand.Text() + `"}}`)
	if change != nil {
		change(&d)
	}
	return must(b.wallet.Seal(d))
}

// ask sends a signed request for a path.
func (b *harness) ask(header, path string) x402.Outcome {
	b.t.Helper()
	return b.askWith(header, path, nil)
}

func (b *harness) askWith(header, path string, invalid error) x402.Outcome {
	return b.gate.Serve(cmp.Or(b.client, context.Background()), x402.Request{
		Signature: header, Offer: b.offer, Meter: b.meter, Arrived: time.Now(), Deadline: time.Now().Add(cmp.Or(b.given, 27*time.Second)), Keys: b.keys, Window: b.window,
		Prepare: func() (x402.Job, error) {
			if invalid != nil {
				return x402.Job{}, invalid
			}
			return x402.Job{
				Fingerprint: path, Budget: 8 * time.Second, Timeout: lookup.Info(lookup.DNSTimeout), NoImplicitRetry: b.anew,
				Run: func(ctx context.Context) (x402.Reply, error) {
					if b.reply != nil {
						return b.reply(b.runs.Add(1))
					}
					body, err := b.work(ctx, int(b.runs.Add(1)))
					return x402.Reply{Body: body}, err
				},
			}, nil
		},
		Error: func(f *fault.Error, s x402.PaymentStatus) []byte {
			body, _ := json.Marshal(map[string]any{"code": f.Code, "charged": s.Charged, "retryable": s.Retryable})
			return body
		},
	})
}

// expect compares what matters of an outcome: status, code, charged,
// retryable, whether a receipt came along.
func (b *harness) expect(what string, got x402.Outcome, status int, code fault.Code, charged string, retryable, receipt bool) {
	b.t.Helper()
	type view struct {
		Status    int
		Code      fault.Code
		Charged   string
		Retryable bool
		Receipt   bool
	}
	v := view{Status: got.Status, Charged: "null", Retryable: got.Payment.Retryable, Receipt: got.Receipt != nil && got.Receipt.Success}
	if got.Fault != nil {
		v.Code = got.Fault.Code
	}
	if c := got.Payment.Charged; c != nil {
		v.Charged = fmt.Sprint(*c)
	}
	if want := (view{status, code, charged, retryable, receipt}); v != want {
		b.t.Errorf("%s: got %+v, want %+v (%v, cause %v)", what, v, want, got.Fault, got.Trace.Cause)
	}
}

func (b *harness) expectCalls(what string, settles, runs int) {
	b.t.Helper()
	if len(b.settles) != settles || int(b.runs.Load()) != runs {
		b.t.Errorf("%s: %d settles and %d lookups, want %d and %d", what, len(b.settles), b.runs.Load(), settles, runs)
	}
}

func contractPayer(d *x402test.Draft) {
	d.Payload.Payload.Authorization.From = "0x2222222222222222222222222222222222222222"
}

// another is the same authorization with another signature, as somebody sends it
// who copied it from the chain, where the retry token is not.
func another(t *testing.T, d x402test.Draft) string {
	t.Helper()
	d.Payload.Extensions = maps.Clone(d.Payload.Extensions)
	delete(d.Payload.Extensions, "retry-token")
	return resigned(t, d)
}

// resigned is the same authorization with another signature of a contract wallet.
func resigned(t *testing.T, d x402test.Draft) string {
	t.Helper()
	d.Payload.Payload.Signature = "0x" + strings.Repeat("ab", 100)
	return must(x402.EncodeHeader(d.Payload))
}

// settles answers the nth settlement with the nth of all, and later ones with the
// last.
func settles(all ...x402.Settlement) func(context.Context, int) x402.Settlement {
	return func(_ context.Context, n int) x402.Settlement { return all[min(n, len(all))-1] }
}

// looksUp lets the nth lookup fail with the nth code, and later ones with the last.
// An empty code is an answer.
func looksUp(codes ...fault.Code) func(context.Context, int) ([]byte, error) {
	return func(_ context.Context, n int) ([]byte, error) {
		if code := codes[min(n, len(codes))-1]; code != "" {
			return nil, lookup.Fault(code, nil)
		}
		return []byte("{}"), nil
	}
}

// silent makes every lookup fail by the silence of its target.
func (b *harness) silent() {
	b.work = func(context.Context, int) ([]byte, error) { return nil, lookup.Fault(lookup.SSLTimeout, nil).Silence() }
}

// stored is the record of a payment.
func (b *harness) stored(header string) ledger.Record {
	b.t.Helper()
	r, err := b.store.Fetch(context.Background(), b.key(header))
	if err != nil || r == nil {
		b.t.Fatal(r, err)
	}
	return *r
}

// takeOver makes another attempt hold a payment, as one does whose clock runs
// ahead, or after a freeze.
func (b *harness) takeOver(header string) {
	b.t.Helper()
	b.rewrite(header, func(r *ledger.Record) {
		r.WriteID, r.Attempt, r.LeaseUntil = "other", r.Attempt+1, time.Now().Add(30*time.Second)
	})
}

// countedSlots are slots that are free, after some time, unless full is set. They
// count what is taken and released.
type countedSlots struct {
	late            time.Duration
	full, broken    error
	release         func()
	taken, released int
}

func (r *countedSlots) Acquire(context.Context, string, time.Time) (x402.Slot, error) {
	if time.Sleep(r.late); r.full != nil {
		return nil, r.full
	}
	r.taken++
	return r, nil
}

func (r *countedSlots) Release(context.Context) error {
	if r.release != nil {
		r.release()
	}
	r.released++
	return r.broken
}

// fakeEvidence is chain evidence with a fixed answer. It records the questions.
type fakeEvidence struct {
	f     x402.Finding
	late  time.Duration // that it takes to answer
	asked []x402.Question
	left  []time.Duration // that each question had
}

func (s *fakeEvidence) Find(ctx context.Context, q x402.Question) x402.Finding {
	s.asked, s.left = append(s.asked, q), append(s.left, left(ctx))
	time.Sleep(s.late)
	return s.f
}

// left is the time until the deadline of a call.
func left(ctx context.Context) time.Duration {
	d, ok := ctx.Deadline()
	if !ok {
		return 1000 * time.Hour
	}
	return time.Until(d)
}

// withParts builds the Gate with slots and chain evidence; nil is none.
func (b *harness) withParts(s x402.Slots, e x402.Evidence) {
	b.build(func(c *x402.Gate) { c.Slots, c.Evidence = s, e })
}

// key is where the ledger keeps a payment.
func (b *harness) key(header string) string {
	p := must(x402.DecodePayment(header))
	return ledger.Key("eip155:8453", "0x833589fcd6edb6e08f4c7c32d4f71b54bda02913", p.From.String(), fmt.Sprintf("0x%x", p.Nonce))
}

// rewrite changes a stored record without the ledger.
func (b *harness) rewrite(header string, change func(r *ledger.Record)) {
	b.t.Helper()
	r := b.stored(header)
	r.Version, r.WriteID = r.Version+1, fmt.Sprint("rewritten ", r.Version+1)
	change(&r)
	ledgertest.MustPut(b.t, b.store, r)
}

// writes counts what the store was asked to write.
func (b *harness) writes() int {
	return b.store.Calls(ledgertest.Create) + b.store.Calls(ledgertest.Replace)
}

// must is for set-up that cannot fail unless the test is wrong: an error panics.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
