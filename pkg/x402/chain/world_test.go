package chain

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
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
	var err error
	if w.payer, err = x402test.NewWallet(rand.Reader); err != nil {
		t.Fatal(err)
	}
	w.payee, w.other = account(t, 3), account(t, 4)
	w.Mint(t, w.payer.Address(), 1_000_000)
	w.proxy = startProxy(t, w.URL)
	w.client = w.newClient(t, Config{})
	return w
}

func account(t testing.TB, i int) x402.Address {
	t.Helper()
	a, err := x402.ParseAddress(chaintest.Account(i))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// newClient returns a client that has asked for the chain id already.
func (w *world) newClient(t testing.TB, c Config) *Client {
	t.Helper()
	client := w.coldClient(t, c)
	if err := client.Probe(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.proxy.reset(nil)
	return client
}

func (w *world) coldClient(t testing.TB, c Config) *Client {
	t.Helper()
	c.URL, c.Network, c.Asset = w.proxy.url(), chaintest.Network, chaintest.USDC
	c.Now = func() time.Time { return w.Now(t).Add(w.ahead) }
	client, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
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
	a := w.authorize(t)
	q := w.question(t, a) // since before the transfer
	return a, q, w.Transfer(t, chaintest.Sign(t, w.payer, a))
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

func join(lists ...[]string) []string {
	var all []string
	for _, l := range lists {
		all = append(all, l...)
	}
	return all
}

// expect asks and compares the answer, and the calls that it took.
func (w *world) expect(t *testing.T, q x402.Question, want x402.Finding, calls []string) {
	t.Helper()
	w.proxy.reset(w.proxy.rule)
	got := w.find(t, q)
	if got.Cause != nil {
		t.Logf("cause: %v", got.Cause)
	}
	got.Cause = nil
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("finding (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(calls, w.proxy.methods()); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
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

// rpcCall is one call on its way through the proxy.
type rpcCall struct {
	ID     json.RawMessage   `json:"id"`
	Method string            `json:"method"`
	Params []json.RawMessage `json:"params"`
	body   []byte
	nth    int // among the calls since the last reset, from 0
}

// at says whether a call asks about a certain block: a tag or a hex number.
func (c rpcCall) at(block string) bool {
	for _, p := range c.Params {
		if string(p) == `"`+block+`"` {
			return true
		}
	}
	return false
}

// rule may answer a call in the node's place; false lets it pass. node asks the
// real node.
type rule func(w http.ResponseWriter, c rpcCall, node func(body []byte) []byte) bool

// proxy stands before a real node, counts, and lies as told.
type proxy struct {
	server *httptest.Server
	target string
	mu     sync.Mutex
	rule   rule
	calls  []rpcCall
	trips  int // messages, of which a batch is one
	batch  int // requests that a batch may hold; 0 means any number
}

func startProxy(t testing.TB, target string) *proxy {
	p := &proxy{target: target}
	p.server = httptest.NewServer(p)
	t.Cleanup(func() {
		p.server.CloseClientConnections() // some are hung on purpose
		p.server.Close()
	})
	return p
}

// url holds a secret in every part that can hold one.
func (p *proxy) url() string {
	return strings.Replace(p.server.URL, "http://", "http://user:"+secret+"@", 1) + "/v2/" + secret + "?key=" + secret
}

// reset forgets the calls and sets the rule; nil passes everything.
func (p *proxy) reset(r rule) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rule, p.calls, p.trips = r, nil, 0
}

func (p *proxy) methods() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var names []string
	for _, c := range p.calls {
		names = append(names, c.Method)
	}
	return names
}

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil || !strings.HasSuffix(r.URL.String(), "/v2/"+secret+"?key="+secret) {
		http.Error(w, "bad request", http.StatusBadRequest)
		return
	}
	if user, password, ok := r.BasicAuth(); !ok || user != "user" || password != secret {
		http.Error(w, "who are you", http.StatusUnauthorized)
		return
	}
	p.mu.Lock()
	p.trips++
	most := p.batch
	p.mu.Unlock()
	var list []json.RawMessage
	switch {
	case json.Unmarshal(body, &list) != nil:
		p.serve(w, r, body)
	case most > 0 && len(list) > most:
		http.Error(w, "batch too large", http.StatusBadRequest)
	default:
		p.serveBatch(w, r, list)
	}
}

// serveBatch answers each request of a batch by itself. An answer that is no
// reply is the answer to all.
func (p *proxy) serveBatch(w http.ResponseWriter, r *http.Request, list []json.RawMessage) {
	replies := make([]json.RawMessage, len(list))
	for i, body := range list {
		one := httptest.NewRecorder()
		p.serve(one, r, body)
		replies[i] = one.Body.Bytes()
		if !json.Valid(replies[i]) {
			w.WriteHeader(one.Code)
			_, _ = w.Write(replies[i])
			return
		}
	}
	_ = json.NewEncoder(w).Encode(replies)
}

func (p *proxy) serve(w http.ResponseWriter, r *http.Request, body []byte) {
	c := rpcCall{body: body}
	if json.Unmarshal(body, &c) != nil {
		http.Error(w, "bad request", http.StatusBadRequest)
		return
	}
	p.mu.Lock()
	c.nth = len(p.calls)
	p.calls = append(p.calls, c)
	rule := p.rule
	p.mu.Unlock()
	node := func(body []byte) []byte { return p.ask(r.Context(), body) }
	if rule != nil && rule(w, c, node) {
		return
	}
	_, _ = w.Write(node(body))
}

// ask asks the real node; what cannot be had is an empty answer.
func (p *proxy) ask(ctx context.Context, body []byte) []byte {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.target, bytes.NewReader(body))
	if err != nil {
		return nil
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil
	}
	return b
}

// result answers a call with this result in the node's name.
func result(w http.ResponseWriter, c rpcCall, raw string) bool {
	_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":`+string(c.ID)+`,"result":`+raw+`}`)
	return true
}

// refusal answers a call with a JSON-RPC error.
func refusal(w http.ResponseWriter, c rpcCall, status int, object string) bool {
	w.WriteHeader(status)
	_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":`+string(c.ID)+`,"error":`+object+`}`)
	return true
}

// rewrite changes the text of the node's answers to one method.
func rewrite(method string, pairs ...string) rule {
	return func(w http.ResponseWriter, c rpcCall, node func([]byte) []byte) bool {
		if c.Method != method {
			return false
		}
		_, _ = io.WriteString(w, strings.NewReplacer(pairs...).Replace(string(node(c.body))))
		return true
	}
}

// atCall applies a rule to the nth call only.
func atCall(n int, r rule) rule {
	return func(w http.ResponseWriter, c rpcCall, node func([]byte) []byte) bool {
		return c.nth == n && r(w, c, node)
	}
}
