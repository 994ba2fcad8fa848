package chain

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/chaintest"
	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

// public is the text of a Probe's error that a client may read.
func public(t *testing.T, err error) string {
	t.Helper()
	var f *fault.Error
	if err == nil {
		return ""
	}
	if !errors.As(err, &f) || f.Code != fault.PaymentUnavailable || errors.Unwrap(f) == nil {
		t.Fatalf("error = %v, want payment_unavailable with a cause", err)
	}
	if strings.Contains(err.Error(), secret) {
		t.Errorf("the error tells the URL's secret: %v", err)
	}
	return f.Public()
}

func TestProbe(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if err := w.client.Probe(t.Context()); err != nil {
		t.Error(err)
	}
	w.ahead = defaultHeadAge + time.Second
	if got := public(t, w.client.Probe(t.Context())); got != "the RPC node's latest block is not recent" {
		t.Errorf("stale: %q", got)
	}
	w.ahead = 0
	const broken = "the RPC node does not answer as it should"
	w.proxy.reset(result("null"))
	if got := public(t, w.client.Probe(t.Context())); got != broken {
		t.Errorf("no latest block: %q", got)
	}
	now := w.Now(t)
	w.client.now = func() time.Time { return now }
	w.Kill()
	if got := public(t, w.client.Probe(t.Context())); got != broken {
		t.Errorf("dead: %q", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got := public(t, w.client.Probe(ctx)); got != broken {
		t.Errorf("no time: %q", got)
	}
}

// The chain id is asked until it was right once.
func TestChainID(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.client = w.coldClient(t, Config{})
	q := w.question(t, w.authorize(t))
	lie := func(id string) rule { return on("eth_chainId", result(id)) }
	for range 2 {
		w.proxy.reset(lie(`"0x1"`))
		w.expectNothing(t, q, "node is on chain 1, must be on 8453")
		if got := public(t, w.client.Probe(t.Context())); got != "the RPC node is on another chain" {
			t.Errorf("probe: %q", got)
		}
		if calls := strings.Join(w.proxy.methods(), " "); calls != "eth_chainId eth_chainId" {
			t.Errorf("calls: %s", calls)
		}
	}
	for _, id := range []string{`null`, `8453`, `"8453"`, `"0x02105"`, `"0x"`, `"0x10000000000002105"`} {
		w.proxy.reset(lie(id))
		w.expectNothing(t, q, "chain id")
	}
	w.proxy.reset(nil)
	w.expect(t, q, open(reasonOpen), slices.Concat([]string{"eth_chainId"}, callsOpen))
	w.expect(t, q, open(reasonOpen), callsOpen)
	w.proxy.reset(lie(`"0x1"`)) // not asked any more
	w.expect(t, q, open(reasonOpen), callsOpen)
}

// An asset that is no EIP-3009 token, or no contract, is no evidence.
func TestWrongAsset(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	q := w.question(t, w.authorize(t))
	for asset, why := range map[string]string{
		chaintest.Account(5):                         "authorization state is not 32 bytes in hex", // no contract
		"0x00000000000000000000000000000000000ba7c4": "node answered error",                        // another
	} {
		t.Run(asset, func(t *testing.T) {
			client := w.newClient(t, Config{})
			client.token = strings.ToLower(asset)
			w.client = client
			w.expectNothing(t, q, why)
		})
	}
}

func TestNew(t *testing.T) {
	t.Parallel()
	good := Config{URL: "https://rpc.example/", Network: chaintest.Network, Asset: chaintest.USDC}
	if c, err := New(good); err != nil || c.maxCalls != defaultMaxCalls || c.headAge != defaultHeadAge || c.userAgent != "hostfacts" {
		t.Errorf("New = %+v, %v", c, err)
	}
	for name, spoil := range map[string]func(*Config){
		"no URL":         func(c *Config) { c.URL = "" },
		"a file":         func(c *Config) { c.URL = "file:///" + secret },
		"no host":        func(c *Config) { c.URL = "https:///" + secret },
		"no URL at all":  func(c *Config) { c.URL = "https://[" + secret },
		"fragment":       func(c *Config) { c.URL = "https://rpc.example/" + secret + "#x" },
		"too long":       func(c *Config) { c.URL = "https://rpc.example/" + strings.Repeat(secret, 300) },
		"network":        func(c *Config) { c.Network = "solana:1" },
		"asset":          func(c *Config) { c.Asset = "0x12" },
		"user agent":     func(c *Config) { c.UserAgent = "a\r\nb" },
		"long name":      func(c *Config) { c.UserAgent = strings.Repeat("a", 200) },
		"negative calls": func(c *Config) { c.MaxCalls = -1 },
		"negative age":   func(c *Config) { c.HeadAge = -time.Second },
	} {
		c := good
		spoil(&c)
		if _, err := New(c); err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: error = %v", name, err)
		}
	}
}

// The client's own transport takes no proxy from the environment, and keeps
// nothing for long.
func TestTransport(t *testing.T) {
	t.Parallel()
	tr := newTransport()
	if tr.Proxy != nil || tr.IdleConnTimeout != 5*time.Second || !tr.DisableCompression || tr.Protocols.HTTP2() {
		t.Errorf("transport = %+v", tr)
	}
}

// second is another node of the world, which lies as told.
func (w *world) second(t *testing.T, r rule) *proxy {
	t.Helper()
	p := startProxy(t, w.URL)
	p.reset(r)
	return p
}

// down is a node that cannot be used.
func down() rule { return bare(http.StatusBadGateway, "") }

func (w *world) several(t *testing.T, c NodesConfig) *Nodes {
	t.Helper()
	c.Network, c.Asset = chaintest.Network, chaintest.USDC
	c.Now = func() time.Time { return w.Now(t).Add(w.ahead) }
	n, err := NewNodes(c)
	must(t, err)
	return n
}

// A node that is down, hangs, is on another chain or behind is passed over, and
// each is asked within its share of the time.
func TestNodes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.authorize(t)
	tx := w.pay(t, a).Hash
	q := w.question(t, a)
	for name, r := range map[string]rule{
		"down":  down(),
		"hangs": func(*call) bool { <-t.Context().Done(); return true },
		"chain": on("eth_chainId", result(`"0x1"`)),
		"lies":  either(on("eth_chainId", result(`"0x2105"`)), on("eth_call", result(`"0x02"`)), result("null")),
	} {
		first := w.second(t, r)
		n := w.several(t, NodesConfig{URLs: []string{first.url(), w.proxy.url()}})
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		f := n.Find(ctx, q)
		if f.Verdict != x402.Paid || !strings.EqualFold(f.Transaction, tx) || len(first.methods()) == 0 {
			t.Errorf("%s: %+v after %q of the first node", name, f, first.methods())
		}
		if name != "hangs" { // once is slow enough
			if err := n.Probe(ctx); err != nil {
				t.Errorf("%s: probe: %v", name, err)
			}
			if list, err := n.Received(ctx, tx, w.payee); len(list) != 1 || err != nil {
				t.Errorf("%s: received %v, %v", name, list, err)
			}
			if _, err := n.SafeBlock(ctx); err != nil {
				t.Errorf("%s: safe block: %v", name, err)
			}
			if batch, err := n.Transfers(ctx, w.payee, 0); err != nil || batch.Next == 0 {
				t.Errorf("%s: transfers: %+v, %v", name, batch, err)
			}
		}
		cancel()
	}
}

// No node at all: every cause is there, and no key.
func TestNodesDown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.several(t, NodesConfig{URLs: []string{
		w.second(t, down()).url(), w.second(t, on("eth_chainId", result(`"0x1"`))).url(),
	}})
	f := n.Find(t.Context(), w.question(t, w.authorize(t)))
	check(t, f)
	for _, says := range []string{"node 1", "502", "node 2", "chain 1"} {
		if f.Verdict != x402.CannotTell || !strings.Contains(f.Cause.Error(), says) {
			t.Errorf("%q is not said in %v", says, f.Cause)
		}
	}
	if err := n.Probe(t.Context()); public(t, err) == "" {
		t.Error("a list of dead nodes is ready")
	}
	if batch, err := n.Transfers(t.Context(), w.payee, 7); err == nil || batch.Next != 7 {
		t.Errorf("transfers: %+v, %v", batch, err)
	}
}

// A list that is read comes first. Until it can be read the others are asked, and
// a reading that fails is not repeated for a minute.
func TestNodesThatAreRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var reads int
	list, fails := []string(nil), errors.New("no answer")
	read := func(context.Context) ([]string, error) { reads++; return list, fails }
	n := w.several(t, NodesConfig{URLs: []string{w.proxy.url()}, Read: read})
	probe := func() {
		for range 3 {
			if err := n.Probe(t.Context()); err != nil {
				t.Error(err)
			}
		}
	}
	if probe(); reads != 1 {
		t.Errorf("%d readings", reads)
	}
	first := w.second(t, down())
	list, fails = []string{first.url(), w.proxy.url()}, nil
	w.ahead = rereadAfter
	if probe(); reads != 2 || len(first.methods()) != 3 {
		t.Errorf("%d readings, and the first node was asked %d times", reads, len(first.methods()))
	}
	only := w.several(t, NodesConfig{Read: func(context.Context) ([]string, error) { return nil, nil }})
	if err := only.Probe(t.Context()); err == nil || !strings.Contains(err.Error(), "list of nodes") {
		t.Errorf("an empty list: %v", err)
	}
	for name, c := range map[string]NodesConfig{
		"none": {}, "too many": {URLs: make([]string, MaxNodes+1)}, "no URL": {URLs: []string{"https://one.example", secret}},
	} {
		c.Network, c.Asset = chaintest.Network, chaintest.USDC
		if _, err := NewNodes(c); err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
