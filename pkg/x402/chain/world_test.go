package chain

import (
	"context"
	"fmt"
	"math/big"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/reconcile"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

const (
	price  = 5000 // the amount that the tests pay
	window = 300 * time.Second
	// safeDepth is how many blocks must follow a block before it counts as safe.
	safeDepth = 32
	// patience is how long a test waits for Find. It is long enough for a busy machine, and
	// shorter than the ten seconds after which the client ends Find.
	patience = 9 * time.Second
)

// The JSON-RPC methods that the client calls.
const (
	methodLogs    = "eth_getLogs"
	methodReceipt = "eth_getTransactionReceipt"
	methodHeader  = "eth_getBlockByNumber"
	methodState   = "eth_call"
	methodChain   = "eth_chainId"
)

// The calls that lead to each kind of finding, in addition to one eth_chainId for each node.
var (
	callsHint    = []string{methodReceipt, methodHeader}
	callsSearch  = []string{methodState, methodHeader, methodHeader, methodLogs, methodReceipt, methodHeader}
	callsEarlier = []string{methodState, methodHeader, methodHeader, methodLogs, methodState}
	callsOpen    = []string{methodState, methodHeader}
	callsNotSafe = []string{methodState, methodHeader, methodHeader}
	callsExpired = []string{methodState, methodHeader, methodHeader, methodState}
)

// world is a chain, a proxy in front of its node, and a client that asks the proxy.
type world struct {
	proxy               *proxy
	client              *Nodes
	clock               func() time.Time // the time of the chain's latest block
	clockAhead          time.Duration    // how far our clock is ahead of the chain's
	payer, payee, other x402.Address
}

// ask puts a proxy in front of the node at target, and a client in front of the proxy. The
// client already knows that the node is on the right chain.
func (w *world) ask(t testing.TB, target http.Handler) {
	t.Helper()
	w.proxy = startProxy(t, target, nil)
	w.client = w.newClient(t, w.proxy.url())
	testbed.Check(w.client.Probe(t.Context()))
	w.proxy.reset(nil)
}

// newClient returns a client that has not yet asked its nodes for their chain id.
func (w *world) newClient(t testing.TB, urls ...string) *Nodes {
	t.Helper()
	n := testbed.Must(New(w.config(urls)))
	return n
}

func (w *world) config(urls []string) Config {
	return Config{
		URLs: urls, Network: testbed.BaseNetwork, Asset: testbed.BaseUSDC,
		Now: func() time.Time { return w.clock().Add(w.clockAhead) },
	}
}

// equal fails the test if two values differ.
func equal(t testing.TB, what string, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// playChain is a world with a simulated chain and play money. The blocks of the chain are two
// seconds apart and contain only transfers.
type playChain struct {
	world
	now       time.Time
	transfers []x402test.Transfer
}

func newPlay(t testing.TB) *playChain {
	t.Helper()
	p := &playChain{now: time.Unix(2000, 0)}
	p.clock = func() time.Time { return p.now }
	p.payer, p.payee, p.other = x402.Address{1}, x402.Address{2}, x402.Address{3}
	p.ask(t, testbed.PlayNode{
		Moved: func() []x402test.Transfer { return p.transfers }, ChainID: testbed.BaseChainID,
		Now: p.clock, Safe: safeDepth * blockTime,
	})
	return p
}

// newQuestion returns the question about a new authorization. The question says that the
// authorization was first claimed at the chain's present time.
func (p *playChain) newQuestion() x402.Question {
	return x402.Question{
		Payer: p.payer, Payee: p.payee, Value: big.NewInt(price), Nonce: [32]byte{byte(len(p.transfers) + 1), 1},
		ValidBefore: p.now.Add(window), Since: p.now,
	}
}

// pay mines a block with the transfer that a question asks about, and returns the hash of the
// transaction. If the question has no nonce, the transfer is made without an authorization.
func (p *playChain) pay(q x402.Question) string {
	nonce := fmt.Sprintf("0x%x", q.Nonce)
	if q.Nonce == [32]byte{} {
		nonce = ""
	}
	p.mine(1)
	tx := fmt.Sprintf("0x%064x", len(p.transfers)+0xa21)
	key := strings.Join([]string{testbed.BaseNetwork, strings.ToLower(testbed.BaseUSDC), q.Payer.String(), nonce}, "|")
	p.transfers = append(p.transfers, x402test.Transfer{Key: key, Transaction: tx, Payee: q.Payee.String(), Value: q.Value.String(), At: p.now})
	return tx
}

// payNew makes the transfer of an authorization in the block after its claim. It returns the
// question about the authorization, and the hash of the transaction.
func (p *playChain) payNew() (q x402.Question, tx string) {
	q = p.newQuestion()
	return q, p.pay(q)
}

func (p *playChain) mine(blocks int) { p.now = p.now.Add(time.Duration(blocks) * blockTime) }

// head returns the number of the latest block.
func (p *playChain) head() uint64 { return uint64(p.now.Unix()) / 2 }

// blockHash returns the hash of a block.
func (w *world) blockHash(t testing.TB, number uint64) string {
	t.Helper()
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"eth_getBlockByNumber","params":["%s",false]}`, hexQuantity(number))
	results := testbed.Must(decodeReplies(200, []byte(w.proxy.ask(body)), []query{{ID: 1}}))
	h := testbed.Must(decodeHeader(results[0], hexQuantity(number)))
	return h.Hash
}

// hash returns a hash that repeats one byte 32 times.
func hash(b string) string { return "0x" + strings.Repeat(b, 32) }

// find calls the client's Find, and checks what must be true of every finding.
func (w *world) find(t testing.TB, q x402.Question) x402.Finding {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	f := w.client.Find(ctx, q)
	checkFinding(t, f)
	return f
}

func checkFinding(t testing.TB, f x402.Finding) {
	t.Helper()
	switch {
	case (f.Fate == x402.CannotTell) != (f.Cause != nil):
		t.Errorf("verdict %s with cause %v", f.Fate, f.Cause)
	case f.Cause != nil && strings.Contains(f.Cause.Error(), secret):
		t.Errorf("the cause tells the URL's secret: %v", f.Cause)
	}
}

// expect calls the client's Find, and fails the test unless it returns the given finding. If
// lists of calls are given, the client must have made exactly these calls.
func (w *world) expect(t *testing.T, q x402.Question, want x402.Finding, calls ...[]string) {
	t.Helper()
	w.proxy.reset(w.proxy.rule)
	got := w.find(t, q)
	if got.Cause != nil {
		t.Logf("cause: %v", got.Cause)
	}
	got.Cause = nil
	equal(t, "finding", want, got)
	if want := slices.Concat(calls...); want != nil {
		equal(t, "calls", want, w.proxy.methods())
	}
}

// expectHinted is like expect for a question that names the transaction. The client must ask
// only for that transaction's receipt and block and, if the finding is NeverPaid, for the
// latest block.
func (w *world) expectHinted(t *testing.T, q x402.Question, tx string, want x402.Finding) {
	t.Helper()
	q.Transaction = tx
	if want.Fate == x402.NeverPaid {
		w.expect(t, q, want, callsHint, callsHint[1:])
	} else {
		w.expect(t, q, want, callsHint)
	}
}

// expectCannotTell checks that the finding is CannotTell, and that its cause contains the given
// text.
func (w *world) expectCannotTell(t *testing.T, q x402.Question, why string) {
	t.Helper()
	got := w.find(t, q)
	if got.Fate != x402.CannotTell || got.Cause == nil || !strings.Contains(got.Cause.Error(), why) {
		t.Errorf("finding = %s %s, cause %v; want cannot_tell because %q", got.Fate, got.Reason, got.Cause, why)
	}
}

func paid(tx string) x402.Finding { return x402.Finding{Fate: x402.Paid, Transaction: tx} }
func neverPaid(reason string) x402.Finding {
	return x402.Finding{Fate: x402.NeverPaid, Reason: reason}
}
func stillOpen(reason string) x402.Finding { return x402.Finding{Fate: x402.StillOpen, Reason: reason} }

// readNext calls Transfers once, and checks what must be true after every call.
func (w *world) readNext(t testing.TB, from uint64) (reconcile.Batch, error) {
	t.Helper()
	before := w.proxy.messages()
	got, err := w.client.Transfers(t.Context(), w.payee, from)
	switch trips := w.proxy.messages() - before; {
	case trips > w.client.maxCalls:
		t.Errorf("%d messages, permitted are %d", trips, w.client.maxCalls)
	case got.Next < from:
		t.Errorf("the cursor went back from %d to %d", from, got.Next)
	case err != nil && (got.Next != from || len(got.Transfers) > 0):
		t.Errorf("an error with something read: %+v", got)
	case err == nil && got.Next == from && got.Safe >= from:
		t.Errorf("nothing was read from block %d on, and no error says why", from)
	case got.Next > from && got.Next > got.Safe+1:
		t.Errorf("read up to block %d, and block %d is safe", got.Next-1, got.Safe)
	case err != nil && strings.Contains(err.Error(), secret):
		t.Errorf("the error tells the URL's secret: %v", err)
	}
	for _, x := range got.Transfers {
		if x.Block < from || x.Block >= got.Next || x.Time.Location() != time.UTC {
			t.Errorf("a transfer of block %d, %s, in a batch from %d to before %d", x.Block, x.Time, from, got.Next)
		}
	}
	return got, err
}

// readAll calls Transfers from a block on, until there are no more transfers. Each call gets
// only the cursor of the call before it. readAll also returns the number of calls.
func (w *world) readAll(t testing.TB, from uint64) (all []reconcile.Transfer, runs int) {
	t.Helper()
	for {
		got, err := w.readNext(t, from)
		if err != nil {
			t.Fatalf("run %d: %v", runs+1, err)
		}
		all, from, runs = append(all, got.Transfers...), got.Next, runs+1
		if got.Done() {
			return all, runs
		}
	}
}

// expectError checks that a call of Transfers returns an error that contains the given text.
func (w *world) expectError(t testing.TB, from uint64, why string) {
	t.Helper()
	got, err := w.readNext(t, from)
	if err == nil || !strings.Contains(err.Error(), why) {
		t.Errorf("batch of %d up to %d, error %v; want an error that says %q", len(got.Transfers), got.Next, err, why)
	}
}

// formatTransfers returns transfers as text, which is quick to compare. Log indexes are left
// out because each node numbers logs differently.
func formatTransfers(transfers []reconcile.Transfer) []string {
	all := make([]string, len(transfers))
	for i, x := range transfers {
		all[i] = fmt.Sprintf("%s in %d %s at %s: %s to %s %s, %t %x", x.Transaction, x.Block, x.BlockHash,
			x.Time.UTC().Format(time.RFC3339Nano), x.From, x.To, x.Value, x.Authorized, x.Nonce)
	}
	return all
}
