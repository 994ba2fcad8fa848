package chain

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// probe asks and compares the part of the error that a client may read.
func (w *world) probe(ctx context.Context, t *testing.T, want string) {
	t.Helper()
	err := w.client.Probe(ctx)
	var f *fault.Error
	if !errors.As(err, &f) || f.Code != fault.PaymentUnavailable || f.Public() != want || f.Unwrap() == nil ||
		strings.Contains(err.Error(), secret) {
		t.Errorf("error = %v, want payment_unavailable, %q", err, want)
	}
}

func TestProbe(t *testing.T) {
	t.Parallel()
	const broken = "the RPC node does not answer as it should"
	w := newWorld(t) // which has asked
	w.ahead = defaultHeadAge + time.Second
	w.probe(t.Context(), t, "the RPC node's latest block is not recent")
	w.ahead = 0
	w.proxy.reset(result("null"))
	w.probe(t.Context(), t, broken)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	w.probe(ended, t, broken)
	w.stopClock(t)
	q := w.question(t, w.authorize(t))
	w.Kill()
	w.proxy.server.Close()
	w.probe(t.Context(), t, broken)
	w.expectNothing(t, q, methodState)
}

// The chain id is asked until it was right once, also where many ask at once.
func TestChainID(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.client = w.coldClient(t)
	q := w.question(t, w.authorize(t))
	lie := func(id string) rule { return on(methodChain, result(id)) }
	w.proxy.reset(lie(`"0x1"`))
	for range 2 {
		w.expectNothing(t, q, "node is on chain 1, must be on 8453")
		w.probe(t.Context(), t, "the RPC node is on another chain")
	}
	equal(t, "calls", []string{methodChain, methodChain, methodChain, methodChain}, w.proxy.methods())
	for _, id := range []string{`null`, `8453`, `"8453"`, `"0x02105"`, `"0x"`, `"0x10000000000002105"`} {
		w.proxy.reset(lie(id))
		w.expectNothing(t, q, "chain id")
	}
	w.proxy.reset(nil)
	w.stopClock(t)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if f := w.find(t, q); f.Verdict != x402.StillOpen {
				t.Errorf("finding = %+v", f)
			}
		})
	}
	wg.Wait()
	w.proxy.reset(lie(`"0x1"`)) // not asked any more
	w.expect(t, q, open(reasonOpen), callsOpen)
}

func TestNew(t *testing.T) {
	t.Parallel()
	good := Config{URL: "https://rpc.example/", Network: testbed.BaseNetwork, Asset: testbed.BaseUSDC}
	c, err := New(good)
	must(t, err)
	if c.maxCalls != defaultMaxCalls || c.headAge != defaultHeadAge || c.userAgent != "hostfacts" {
		t.Errorf("New = %+v", c)
	}
	// The client's own transport takes no proxy from the environment, and keeps
	// nothing for long.
	tr := c.transport.(*http.Transport)
	if tr.Proxy != nil || tr.IdleConnTimeout != 5*time.Second || !tr.DisableCompression || tr.Protocols.HTTP2() {
		t.Errorf("transport = %+v", tr)
	}
	refused := func(what string, spoil func(*Config)) {
		c := good
		spoil(&c)
		if _, err := New(c); err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: error = %v", what, err)
		}
	}
	for _, url := range []string{
		"", "file:///" + secret, "https:///" + secret, "https://[" + secret, "https://rpc.example/" + secret + "#x",
		"https://rpc.example/" + strings.Repeat(secret, 300),
	} {
		refused(url, func(c *Config) { c.URL = url })
	}
	refused("network", func(c *Config) { c.Network = "solana:1" })
	refused("asset", func(c *Config) { c.Asset = "0x12" })
	refused("user agent", func(c *Config) { c.UserAgent = "a\r\nb" })
	refused("long user agent", func(c *Config) { c.UserAgent = strings.Repeat("a", 200) })
	refused("negative calls", func(c *Config) { c.MaxCalls = -1 })
	refused("negative age", func(c *Config) { c.HeadAge = -time.Second })
}

func (w *world) several(t *testing.T, read func(context.Context, time.Time, bool) ([]string, error), urls ...string) *Nodes {
	t.Helper()
	n, err := NewNodes(NodesConfig{Config: w.config(t, ""), URLs: urls, Read: read})
	must(t, err)
	return n
}

// A node that is down, hangs, is on another chain or behind is passed over, and
// each is asked within its share of the time.
func TestNodes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, q, tx := w.settled(t)
	for name, r := range map[string]rule{
		"down":  bare(http.StatusBadGateway, ""),
		"hangs": func(*call) bool { <-t.Context().Done(); return true },
		"chain": on(methodChain, result(`"0x1"`)),
		"lies":  either(on(methodChain, result(`"0x2105"`)), result("null")),
	} {
		first := startProxy(t, w.URL, r)
		n := w.several(t, nil, first.url(), w.proxy.url())
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		if f := n.Find(ctx, q); f.Verdict != x402.Paid || f.Transaction != tx.Hash || len(first.methods()) == 0 {
			t.Errorf("%s: %+v after %q of the first node", name, f, first.methods())
		}
		if name != "hangs" { // once is slow enough
			if err := n.Probe(ctx); err != nil {
				t.Errorf("%s: probe: %v", name, err)
			}
			if list, err := n.Received(ctx, tx.Hash, w.payee); len(list) != 1 || err != nil {
				t.Errorf("%s: received %v, %v", name, list, err)
			}
			if block, err := n.BlockAt(ctx, time.Unix(0, 0)); block != 0 || err != nil {
				t.Errorf("%s: block %d, %v", name, block, err)
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
	// No node at all: every cause is there, and no key.
	one, two := startProxy(t, w.URL, bare(http.StatusBadGateway, "")), startProxy(t, w.URL, on(methodChain, result(`"0x1"`)))
	n := w.several(t, nil, one.url(), two.url())
	f := n.Find(t.Context(), q)
	check(t, f)
	for _, says := range []string{"node 1", "502", "node 2", "chain 1"} {
		if f.Verdict != x402.CannotTell || !strings.Contains(f.Cause.Error(), says) {
			t.Errorf("%q is not said in %v", says, f.Cause)
		}
	}
	if batch, err := n.Transfers(t.Context(), w.payee, 7); err == nil || batch.Next != 7 {
		t.Errorf("transfers: %+v, %v", batch, err)
	}
}

// A list that is read comes first, and is another one when that is read. Until it
// can be read the others are asked. The reader is told when no node could answer.
func TestNodesThatAreRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var list []string
	var told bool
	fails := errors.New("no answer")
	n := w.several(t, func(_ context.Context, _ time.Time, failed bool) ([]string, error) { told = failed; return list, fails }, w.proxy.url())
	down := startProxy(t, w.URL, bare(http.StatusBadGateway, ""))
	for _, c := range []struct {
		what         string
		list         []string
		fails        error
		answers, was bool // failed the last time
	}{
		{"not read yet", nil, fails, true, false},
		{"one is down", []string{down.url(), w.proxy.url()}, nil, true, false},
		{"all are", []string{down.url()}, nil, false, false},
		{"they still are", []string{down.url()}, nil, false, true},
		{"not read again", nil, fails, false, true},
		{"replaced", []string{w.proxy.url()}, nil, true, true},
		{"with one that is no URL", []string{secret}, nil, true, false},
		{"taken away", nil, nil, true, false},
	} {
		list, fails = c.list, c.fails
		if err := n.Probe(t.Context()); (err == nil) != c.answers || told != c.was {
			t.Errorf("%s: %v, the reader is told %t", c.what, err, told)
		}
	}
	equal(t, "times the first was asked", 4, len(down.methods()))
	only := w.several(t, func(context.Context, time.Time, bool) ([]string, error) { return nil, nil })
	if err := only.Probe(t.Context()); err == nil || !strings.Contains(err.Error(), "list of nodes") {
		t.Errorf("an empty list: %v", err)
	}
	for name, urls := range map[string][]string{
		"none": {}, "too many": slices.Repeat([]string{"https://one.example"}, MaxNodes+1), "no URL": {"https://one.example", secret},
	} {
		c := Config{Network: testbed.BaseNetwork, Asset: testbed.BaseUSDC}
		if _, err := NewNodes(NodesConfig{Config: c, URLs: urls}); err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
