package chain

import (
	"context"
	"crypto/rand"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/infra/chaintest"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// secret stands for a provider's key; it must appear in no cause.
const secret = "s3cr3tk3y"

// price is what the tests pay, and window what they have to pay in.
const (
	price  = 5000
	window = 300 * time.Second
)

// patience bounds a Find that is meant to end by itself on a busy machine. It
// is below the client's own ceiling.
const patience = 9 * time.Second

// world is a chain with Base's pace, a payer who has money, and a client that
// asks through a proxy.
type world struct {
	*chaintest.Node
	proxy        *proxy
	client       *Client
	payer        *x402test.Wallet
	payee, other x402.Address
	ahead        time.Duration // our clock before the node's
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{Node: chaintest.Start(t)}
	w.SetBlockInterval(t, 2*time.Second)
	w.payer = wallet(t)
	w.payee, w.other = account(t, 3), account(t, 4)
	w.Mint(t, w.payer.Address(), 1_000_000)
	w.proxy = startProxy(t, w.URL)
	w.client = w.newClient(t, Config{})
	return w
}

func account(t testing.TB, i int) x402.Address {
	t.Helper()
	a, err := x402.ParseAddress(chaintest.Account(i))
	must(t, err)
	return a
}

func wallet(t testing.TB) *x402test.Wallet {
	t.Helper()
	w, err := x402test.NewWallet(rand.Reader)
	must(t, err)
	return w
}

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

// newClient returns a client that has asked for the chain id already.
func (w *world) newClient(t testing.TB, c Config) *Client {
	t.Helper()
	client := w.coldClient(t, c)
	must(t, client.Probe(t.Context()))
	w.proxy.reset(nil)
	return client
}

func (w *world) coldClient(t testing.TB, c Config) *Client {
	t.Helper()
	c.URL, c.Network, c.Asset = w.proxy.url(), chaintest.Network, chaintest.USDC
	c.Now = func() time.Time { return w.Now(t).Add(w.ahead) }
	client, err := New(c)
	must(t, err)
	return client
}

// authorize drafts a payment of the price to the payee.
func (w *world) authorize(t testing.TB) x402.Authorization {
	t.Helper()
	return chaintest.Authorization(w.payer, w.payee, price, w.Now(t).Add(window))
}

// again is a second authorization with the nonce of the first.
func again(a x402.Authorization, to x402.Address, value string) x402.Authorization {
	a.To, a.Value = to.Checksum(), value
	return a
}

// pay has an authorization's transfer made.
func (w *world) pay(t testing.TB, a x402.Authorization) chaintest.Receipt {
	t.Helper()
	return w.Transfer(t, chaintest.Sign(t, w.payer, a))
}

// payCall is the call with which a contract has the transfer made.
func (w *world) payCall(t testing.TB, a x402.Authorization) []byte {
	t.Helper()
	return chaintest.TransferCall(t, chaintest.Sign(t, w.payer, a))
}

// tryPay is pay for a transfer that may fail.
func (w *world) tryPay(t testing.TB, a x402.Authorization) chaintest.Receipt {
	t.Helper()
	return w.TryTransfer(t, chaintest.Sign(t, w.payer, a))
}

// claimed is a payment that was first claimed now, and the question about it.
func (w *world) claimed(t testing.TB) (x402.Authorization, x402.Question) {
	t.Helper()
	a := w.authorize(t)
	return a, w.question(t, a)
}

// question asks about an authorization that was first claimed now.
func (w *world) question(t testing.TB, a x402.Authorization) x402.Question {
	t.Helper()
	until, ok := new(big.Int).SetString(a.ValidBefore, 10)
	if !ok {
		t.Fatalf("validBefore %q", a.ValidBefore)
	}
	return x402.Question{
		Payer: w.payer.Address(), Payee: w.payee, Value: big.NewInt(price),
		Nonce: chaintest.Nonce(t, a.Nonce), ValidBefore: time.Unix(until.Int64(), 0), Since: w.Now(t),
	}
}

// settled is an authorization whose transfer is on the chain, the question about it,
// and the transaction.
func (w *world) settled(t testing.TB) (x402.Authorization, x402.Question, chaintest.Receipt) {
	t.Helper()
	a, q := w.claimed(t) // before the transfer
	return a, q, w.pay(t, a)
}

func (w *world) find(t testing.TB, q x402.Question) x402.Finding {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	f := w.client.Find(ctx, q)
	check(t, f)
	return f
}

// check holds what is true of every finding.
func check(t testing.TB, f x402.Finding) {
	t.Helper()
	switch {
	case (f.Verdict == x402.CannotTell) != (f.Cause != nil):
		t.Errorf("verdict %s with cause %v", f.Verdict, f.Cause)
	case (f.Verdict == x402.Paid) != (f.Transaction != ""):
		t.Errorf("verdict %s with transaction %q", f.Verdict, f.Transaction)
	case f.Verdict == x402.NeverPaid && f.Reason == "":
		t.Error("a refusal without a reason")
	case f.Cause != nil && strings.Contains(f.Cause.Error(), secret):
		t.Errorf("the cause tells the URL's secret: %v", f.Cause)
	}
}

// The calls of each way to an answer, as the package comment lists them.
var (
	callsHint      = []string{"eth_getTransactionReceipt", "eth_getBlockByNumber"}
	callsSearch    = []string{"eth_call", "eth_getBlockByNumber", "eth_getLogs", "eth_getTransactionReceipt", "eth_getBlockByNumber"}
	callsCancelled = []string{"eth_call", "eth_getBlockByNumber", "eth_getLogs"}
	callsEarlier   = []string{"eth_call", "eth_getBlockByNumber", "eth_getLogs", "eth_getBlockByNumber", "eth_call"}
	callsOpen      = []string{"eth_call", "eth_getBlockByNumber"}
	callsNotSafe   = []string{"eth_call", "eth_getBlockByNumber", "eth_getBlockByNumber"}
	callsExpired   = []string{"eth_call", "eth_getBlockByNumber", "eth_getBlockByNumber", "eth_call"}
)

// expect asks and compares the answer, and the calls that it took.
func (w *world) expect(t *testing.T, q x402.Question, want x402.Finding, calls []string) {
	t.Helper()
	w.proxy.reset(w.proxy.rule)
	got := w.find(t, q)
	if got.Cause != nil {
		t.Logf("cause: %v", got.Cause)
	}
	got.Cause = nil
	equal(t, "finding", want, got)
	equal(t, "calls", calls, w.proxy.methods())
}

// expectBoth asks without the transaction and then with it, which takes its receipt,
// its block and, for a refusal, the latest block.
func (w *world) expectBoth(t *testing.T, q x402.Question, tx string, want x402.Finding, calls []string) {
	t.Helper()
	w.expect(t, q, want, calls)
	w.expectHinted(t, q, tx, want)
}

func (w *world) expectHinted(t *testing.T, q x402.Question, tx string, want x402.Finding) {
	t.Helper()
	q.Transaction = tx
	calls := callsHint
	if want.Verdict == x402.NeverPaid {
		calls = slices.Concat(callsHint, callsHint[1:])
	}
	w.expect(t, q, want, calls)
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
