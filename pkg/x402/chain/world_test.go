package chain

import (
	"context"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// price is what the tests pay, and window what they have to pay in.
const (
	price  = 5000
	window = 300 * time.Second
)

// patience bounds a Find that is meant to end by itself on a busy machine. It
// is below the client's own ceiling.
const patience = 9 * time.Second

// The methods that tests look at.
const (
	methodReceipt = "eth_getTransactionReceipt"
	methodHeader  = "eth_getBlockByNumber"
	methodState   = "eth_call"
	methodChain   = "eth_chainId"
)

// world is a chain with Base's pace, a payer who has money, and a client that
// asks through a proxy.
type world struct {
	*testbed.Chain
	proxy        *proxy
	client       *Client
	payer        *x402test.Wallet
	payee, other x402.Address  // accounts 3 and 4 of the node
	ahead        time.Duration // our clock before the node's
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{Chain: testbed.StartChain(t), payer: wallet(t)}
	w.payee, w.other = testbed.Address(t, testbed.Account(3)), testbed.Address(t, testbed.Account(4))
	w.SetBlockInterval(t, 2*time.Second)
	w.Mint(t, w.payer.Address(), 1_000_000)
	w.Mint(t, w.other, 1_000_000)
	w.proxy = startProxy(t, w.URL, nil)
	w.client = w.coldClient(t)
	must(t, w.client.Probe(t.Context())) // the chain id is known from now on
	w.proxy.reset(nil)
	return w
}

func wallet(t testing.TB) *x402test.Wallet { return testbed.NewClient(t, nil).Wallet }

// equal compares what there is with what there must be.
func equal(t testing.TB, what string, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// config is that of a client of the world's node, or of the proxy before it.
func (w *world) config(t testing.TB, url string) Config {
	return Config{
		URL: url, Network: testbed.BaseNetwork, Asset: testbed.BaseUSDC,
		Now: func() time.Time { return w.Now(t).Add(w.ahead) },
	}
}

// coldClient has not asked for the chain id.
func (w *world) coldClient(t testing.TB) *Client {
	t.Helper()
	client, err := New(w.config(t, w.proxy.url()))
	must(t, err)
	return client
}

// stopClock lets the client's clock go on without the node.
func (w *world) stopClock(t testing.TB) {
	t.Helper()
	now := w.Now(t)
	w.client.now = func() time.Time { return now }
}

// authorize drafts a payment of the price to the payee.
func (w *world) authorize(t testing.TB) x402.Authorization {
	return testbed.Authorization(w.payer, w.payee, price, w.Now(t).Add(window))
}

// again is a second authorization with the nonce of the first.
func again(a x402.Authorization, to x402.Address, value string) x402.Authorization {
	a.To, a.Value = to.Checksum(), value
	return a
}

// pay has an authorization's transfer made.
func (w *world) pay(t testing.TB, a x402.Authorization) testbed.ChainReceipt {
	return w.Transfer(t, testbed.SignTransfer(t, w.payer, a))
}

// payCall is the call with which a contract has the transfer made.
func (w *world) payCall(t testing.TB, a x402.Authorization) []byte {
	return testbed.TransferCall(t, testbed.SignTransfer(t, w.payer, a))
}

// failToPay is pay for a transfer that fails, because the token is paused meanwhile.
func (w *world) failToPay(t testing.TB, a x402.Authorization) testbed.ChainReceipt {
	t.Helper()
	w.Pause(t, true)
	r := w.TryTransfer(t, testbed.SignTransfer(t, w.payer, a))
	if r.Success {
		t.Fatal("a paused token moved money")
	}
	w.Pause(t, false)
	return r
}

// claimed is a payment that was first claimed now, and the question about it.
func (w *world) claimed(t testing.TB) (x402.Authorization, x402.Question) {
	a := w.authorize(t)
	return a, w.question(t, a)
}

// question asks about an authorization that was first claimed now.
func (w *world) question(t testing.TB, a x402.Authorization) x402.Question {
	t.Helper()
	until, _ := new(big.Int).SetString(a.ValidBefore, 10)
	return x402.Question{
		Payer: w.payer.Address(), Payee: w.payee, Value: big.NewInt(price),
		Nonce: testbed.NonceBytes(t, a.Nonce), ValidBefore: time.Unix(until.Int64(), 0), Since: w.Now(t),
	}
}

// settled is an authorization whose transfer is on the chain, the question about it,
// and the transaction.
func (w *world) settled(t testing.TB) (x402.Authorization, x402.Question, testbed.ChainReceipt) {
	t.Helper()
	a, q := w.claimed(t) // before the transfer
	return a, q, w.pay(t, a)
}

// expire lets an authorization's time pass, and a block after it become safe.
func (w *world) expire(t testing.TB) {
	t.Helper()
	w.IncreaseTime(t, window)
	w.Mine(t, safeDepth+1)
}

// find asks, and holds what is true of every finding.
func (w *world) find(t testing.TB, q x402.Question) x402.Finding {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	f := w.client.Find(ctx, q)
	check(t, f)
	return f
}

func check(t testing.TB, f x402.Finding) {
	t.Helper()
	switch {
	case (f.Verdict == x402.CannotTell) != (f.Cause != nil):
		t.Errorf("verdict %s with cause %v", f.Verdict, f.Cause)
	case f.Cause != nil && strings.Contains(f.Cause.Error(), secret):
		t.Errorf("the cause tells the URL's secret: %v", f.Cause)
	}
}

// The calls of each way to an answer, as the package comment lists them.
var (
	callsHint      = []string{methodReceipt, methodHeader}
	callsSearch    = []string{methodState, methodHeader, methodLogs, methodReceipt, methodHeader}
	callsCancelled = []string{methodState, methodHeader, methodLogs}
	callsEarlier   = []string{methodState, methodHeader, methodLogs, methodHeader, methodState}
	callsOpen      = []string{methodState, methodHeader}
	callsNotSafe   = []string{methodState, methodHeader, methodHeader}
	callsExpired   = []string{methodState, methodHeader, methodHeader, methodState}
)

// expect asks and compares the answer, and the calls that it took.
func (w *world) expect(t *testing.T, q x402.Question, want x402.Finding, calls ...[]string) {
	t.Helper()
	w.proxy.reset(w.proxy.rule)
	got := w.find(t, q)
	if got.Cause != nil {
		t.Logf("cause: %v", got.Cause)
	}
	got.Cause = nil
	equal(t, "finding", want, got)
	equal(t, "calls", slices.Concat(calls...), w.proxy.methods())
}

// expectHinted asks with the transaction, which takes its receipt, its block and, for
// a refusal, the latest block.
func (w *world) expectHinted(t *testing.T, q x402.Question, tx string, want x402.Finding) {
	t.Helper()
	q.Transaction = tx
	if want.Verdict == x402.NeverPaid {
		w.expect(t, q, want, callsHint, callsHint[1:])
	} else {
		w.expect(t, q, want, callsHint)
	}
}

func paid(tx string) x402.Finding { return x402.Finding{Verdict: x402.Paid, Transaction: tx} }
func never(reason string) x402.Finding {
	return x402.Finding{Verdict: x402.NeverPaid, Reason: reason}
}
func open(reason string) x402.Finding { return x402.Finding{Verdict: x402.StillOpen, Reason: reason} }

// expectNothing asks and wants no verdict, for a reason that says why.
func (w *world) expectNothing(t *testing.T, q x402.Question, why string) {
	t.Helper()
	got := w.find(t, q)
	if got.Verdict != x402.CannotTell || got.Cause == nil || !strings.Contains(got.Cause.Error(), why) {
		t.Errorf("finding = %s %s, cause %v; want cannot_tell because %q", got.Verdict, got.Reason, got.Cause, why)
	}
}
