package x402_test

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fallback"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// harness is a Gate with fakes around it, inside a synctest bubble. Time in the bubble is
// fake, and passes only while every goroutine waits.
type harness struct {
	t      *testing.T
	store  *ledgertest.Faulty
	offer  *x402.Offer
	wallet *x402test.Wallet

	requestTime     time.Duration   // how much time a request has; 0 means 27 s
	keys            []string        // values of the header Idempotency-Key
	window          time.Duration   // x402.Request.Window
	noImplicitRetry bool            // x402.Job.NoImplicitRetry: each request is a separate purchase
	maxRuns         int             // x402.Job.MostRuns
	endpoint        string          // x402.Job.Endpoint
	check           func() error    // x402.Job.Check; nil means that the job has no Check
	clientCtx       context.Context // context of the requests; nil means one that does not end

	// These set fields of the Gate: pair becomes its Settler, and chain plays its Evidence.
	meter    x402.Meter
	slots    x402.Slots
	receipts x402.Receipts
	payees   *ledger.Payees
	pair     *fallback.Pair
	chain    func() x402.Finding

	// These decide how the facilitators reply. n is the number of the call of Settle, from 1.
	settle, fallback       func(ctx context.Context, n int) x402.Settlement
	verify, fallbackVerify x402.Verification
	onVerify               func() // called while a signature is verified
	// These are the arguments of all calls of Settle, and the payloads of all calls of Verify.
	settlePayloads, verifyPayloads []x402.Payload
	settleTerms                    []x402.Requirements
	questions                      []x402.Question // the questions to the chain
	callLetters                    string          // who was called, one letter per call: "p" the primary or only facilitator, "f" the fallback, "c" the chain
	timeLeft                       []time.Duration // how much time each of these calls had

	// These say what the work does in its nth run, and count how often it ran.
	work  func(ctx context.Context, n int) ([]byte, error)
	reply func(n int32) (x402.Reply, error) // replaces work, for bundles
	runs  atomic.Int32
	ids   atomic.Int64 // how many ids of writes were drawn; the next id has the next number
	mu    sync.Mutex
}

const tx = "0x89c91c789e57059b17285e7ba1716a1f5ff4c5dace0ea5a5135f26158d0421b9"

func moved() x402.Settlement { return x402.Settlement{Class: x402.Moved, Transaction: tx} }

const primaryName, fallbackName = "primary.example", "fallback.example/x402"

// facilitator is the primary or the fallback of a harness.
type facilitator struct {
	*harness
	name string
}

func (f facilitator) Settle(ctx context.Context, p x402.Payload, r x402.Requirements) x402.Settlement {
	f.recordCall(ctx, f.name)
	f.mu.Lock()
	f.settlePayloads, f.settleTerms = append(f.settlePayloads, p), append(f.settleTerms, r)
	n := len(f.settleTerms)
	f.mu.Unlock()
	if a := p.Payload.Authorization; f.pair != nil {
		r := ledgertest.Payment(f.t, f.store, recordKey(strings.ToLower(a.From), a.Nonce))
		if !slices.Contains(r.Asked, f.name) || r.State != ledger.Settling {
			f.t.Errorf("%s is asked, and the record, %s, names %v", f.name, r.State, r.Asked)
		}
	}
	if f.name == fallbackName {
		return f.fallback(ctx, n)
	}
	return f.settle(ctx, n)
}

func (f facilitator) Verify(ctx context.Context, p x402.Payload, _ x402.Requirements) x402.Verification {
	f.recordCall(ctx, f.name)
	f.mu.Lock()
	f.verifyPayloads = append(f.verifyPayloads, p)
	f.mu.Unlock()
	if f.onVerify != nil {
		f.onVerify()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.name == fallbackName {
		return f.fallbackVerify
	}
	return f.verify
}

// Find implements x402.Evidence. The harness also plays the chain.
func (b *harness) Find(ctx context.Context, q x402.Question) x402.Finding {
	b.recordCall(ctx, "chain")
	b.questions = append(b.questions, q)
	return b.chain()
}

// recordCall records a call, and the time until its deadline.
func (b *harness) recordCall(ctx context.Context, who string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.callLetters += who[:1]
	until, _ := ctx.Deadline()
	b.timeLeft = append(b.timeLeft, time.Until(until))
}

// takeCallLetters returns callLetters, and clears it for the next step of a test.
func (b *harness) takeCallLetters() string {
	asked := b.callLetters
	b.callLetters = ""
	return asked
}

// withFallback gives the Gate two facilitators. If node is nil, there is no node.
func (b *harness) withFallback(node func() x402.Finding) {
	b.chain, b.fallback = node, settleWith(moved())
	b.restart()
}

// restart replaces the Pair. The new Pair knows of no earlier failures.
func (b *harness) restart() {
	b.pair = &fallback.Pair{
		Primary: fallback.Member{Facilitator: facilitator{b, primaryName}, Name: primaryName},
		Second:  fallback.Member{Facilitator: facilitator{b, fallbackName}, Name: fallbackName},
		Now:     time.Now,
	}
}

// chainShowing returns the answer of a chain that shows the same fate for every payment.
func chainShowing(v x402.Fate) func() x402.Finding {
	return func() x402.Finding { return x402.Finding{Fate: v, Transaction: tx, Reason: "cancelled"} }
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

// withHarness runs a test with a harness in a synctest bubble.
func withHarness(t *testing.T, decide ledgertest.Decide, test func(t *testing.T, b *harness)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		wallet := must(x402test.NewWallet(rand.Reader))
		b := &harness{
			t: t, wallet: wallet, offer: offer(t, terms(), "5000", "Oslo"),
			settle: func(context.Context, int) x402.Settlement { return moved() },
			work:   func(context.Context, int) ([]byte, error) { return []byte(`{"ok":true}`), nil },
			store:  ledgertest.NewFaulty(t, &ledgertest.Memory{}, decide),
		}
		test(t, b)
	})
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
	gate := &x402.Gate{
		Ledger:  ledger.New(b.store, time.Now, func() string { return fmt.Sprint("w", b.ids.Add(1)) }),
		Settler: x402.One(facilitator{b, primaryName}), Slots: b.slots, Receipts: b.receipts, Payees: b.payees, Now: time.Now, Log: slog.New(slog.DiscardHandler),
	}
	if b.pair != nil {
		gate.Settler = b.pair
	}
	if b.chain != nil {
		gate.Evidence = b
	}
	return gate.Serve(cmp.Or(b.clientCtx, context.Background()), x402.Request{
		Signature: header, Offer: b.offer, Meter: b.meter, Arrived: time.Now(), Deadline: time.Now().Add(cmp.Or(b.requestTime, 27*time.Second)), Keys: b.keys, Window: b.window,
		Prepare: func() (x402.Job, error) {
			if invalid != nil {
				return x402.Job{}, invalid
			}
			job := x402.Job{
				Fingerprint: path, Endpoint: b.endpoint, Budget: 8 * time.Second, Timeout: lookup.Info(lookup.DNSTimeout), NoImplicitRetry: b.noImplicitRetry, MostRuns: b.maxRuns,
				Run: func(ctx context.Context) (x402.Reply, error) {
					if b.reply != nil {
						return b.reply(b.runs.Add(1))
					}
					body, err := b.work(ctx, int(b.runs.Add(1)))
					return x402.Reply{Body: body}, err
				},
			}
			if b.check != nil {
				job.Check = func(context.Context) error { return b.check() }
			}
			return job, nil
		},
		Error: func(f *fault.Error, s x402.PaymentStatus) []byte {
			body, _ := json.Marshal(map[string]any{"code": f.Code, "charged": s.Charged, "retryable": s.Retryable})
			return body
		},
	})
}

// expected holds the values that an outcome must have.
type expected struct {
	status    int
	code      fault.Code
	charged   string // "true", "false" or "null"
	retryable bool
	receipt   bool // whether there is a PAYMENT-RESPONSE of a successful settlement
}

// answered returns the expected outcome of a charged payment with an answer.
func answered() expected { return expected{status: 200, charged: "true", receipt: true} }

// uncertain returns the expected outcome while nobody knows whether the money has moved.
func uncertain() expected {
	return expected{status: 503, code: fault.SettlementUncertain, charged: "null", retryable: true}
}

// expect compares an outcome with the expected one.
func (b *harness) expect(what string, got x402.Outcome, want expected) {
	b.t.Helper()
	v := expected{status: got.Status, charged: "null", retryable: got.Payment.Retryable, receipt: got.Receipt != nil && got.Receipt.Success}
	if got.Fault != nil {
		v.code = got.Fault.Code
	}
	if c := got.Payment.Charged; c != nil {
		v.charged = fmt.Sprint(*c)
	}
	if v != want {
		b.t.Errorf("%s: got %+v, want %+v (%v, cause %v)", what, v, want, got.Fault, got.Trace.Cause)
	}
}

func (b *harness) expectCalls(what string, settles, runs int) {
	b.t.Helper()
	if len(b.settleTerms) != settles || int(b.runs.Load()) != runs {
		b.t.Errorf("%s: %d settles and %d lookups, want %d and %d", what, len(b.settleTerms), b.runs.Load(), settles, runs)
	}
}

func contractPayer(d *x402test.Draft) {
	d.Payload.Payload.Authorization.From = "0x2222222222222222222222222222222222222222"
}

// copyWithoutToken returns the same authorization with another signature and without the retry
// token. Somebody who copied the authorization from the chain cannot send the token, because
// the chain does not show it.
func copyWithoutToken(t *testing.T, d x402test.Draft) string {
	t.Helper()
	d.Payload.Extensions = maps.Clone(d.Payload.Extensions)
	delete(d.Payload.Extensions, "retry-token")
	return copyResigned(t, d)
}

// copyResigned returns the same authorization with another signature of a contract wallet.
func copyResigned(t *testing.T, d x402test.Draft) string {
	t.Helper()
	d.Payload.Payload.Signature = "0x" + strings.Repeat("ab", 100)
	return must(x402.EncodeHeader(d.Payload))
}

// settleWith returns a function that answers the nth settlement with the nth result. When the
// results are used up, it repeats the last one.
func settleWith(all ...x402.Settlement) func(context.Context, int) x402.Settlement {
	return func(_ context.Context, n int) x402.Settlement { return all[min(n, len(all))-1] }
}

// lookUpWith returns a function whose nth call fails with the nth code. If this code is empty,
// the call gives an answer. When the codes are used up, the last code is repeated.
func lookUpWith(codes ...fault.Code) func(context.Context, int) ([]byte, error) {
	return func(_ context.Context, n int) ([]byte, error) {
		if code := codes[min(n, len(codes))-1]; code != "" {
			return nil, lookup.Fault(code, nil)
		}
		return []byte("{}"), nil
	}
}

// storedPayment returns the record of a payment.
func (b *harness) storedPayment(header string) ledger.Payment {
	b.t.Helper()
	r := ledgertest.Payment(b.t, b.store, b.key(header))
	if r == nil {
		b.t.Fatal("there is no record of the payment")
	}
	return *r
}

// countedSlots counts the slots taken and released. Acquire waits for delay, and then returns
// acquireErr or, if that is nil, a slot. Release calls release and returns releaseErr.
type countedSlots struct {
	delay                  time.Duration
	acquireErr, releaseErr error
	release                func()
	taken, released        int
}

func (r *countedSlots) Acquire(context.Context, string, time.Time) (x402.Slot, error) {
	if time.Sleep(r.delay); r.acquireErr != nil {
		return nil, r.acquireErr
	}
	r.taken++
	return r, nil
}

func (r *countedSlots) Release(context.Context) error {
	if r.release != nil {
		r.release()
	}
	r.released++
	return r.releaseErr
}

// key returns the key under which the ledger keeps a payment.
func (b *harness) key(header string) string {
	p := must(x402.DecodePayment(header))
	return recordKey(p.From.String(), fmt.Sprintf("0x%x", p.Nonce))
}

func recordKey(payer, nonce string) string {
	return ledger.Key(terms().Network, strings.ToLower(terms().Asset), payer, nonce)
}

// rewrite changes a stored record directly, without applying the rules of the ledger.
func (b *harness) rewrite(header string, change func(r *ledger.Payment)) {
	b.t.Helper()
	r := b.storedPayment(header)
	r.Version, r.WriteID = r.Version+1, fmt.Sprint("rewritten ", r.Key, r.Version+1)
	change(&r)
	ledgertest.MustPut(b.t, b.store, r)
}

// writes returns how many writes the store has been asked for.
func (b *harness) writes() int {
	return b.store.Calls(ledgertest.Create) + b.store.Calls(ledgertest.Replace)
}

// must returns v, or panics on an error, which can only mean that the test itself is wrong.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// infoOf returns the Info of a code of package fault or package lookup.
func infoOf(code fault.Code) fault.Info {
	all := slices.Concat(fault.All(), lookup.Codes())
	return all[slices.IndexFunc(all, func(i fault.Info) bool { return i.Code == code })]
}
