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

// probe calls Probe, which must return an error with the given public message.
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
	p := newPlay(t)
	p.clockAhead = headAge + time.Second
	p.probe(t.Context(), t, "the RPC node's latest block is not recent")
	p.clockAhead = 0
	p.proxy.reset(result("null"))
	p.probe(t.Context(), t, broken)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	p.probe(ended, t, broken)
	p.proxy.server.CloseClientConnections()
	p.proxy.server.Close()
	p.probe(t.Context(), t, broken)
	p.expectCannotTell(t, p.newQuestion(), methodState)
}

// TestChainID checks that the client asks a node for its chain id before it asks anything
// else, until the node has once replied with the right id. From then on, the client does not
// ask for the id again. Even if eight callers make the first call together, all get a finding.
func TestChainID(t *testing.T) {
	t.Parallel()
	p := newPlay(t)
	p.client = p.newClient(t, p.proxy.url())
	q := p.newQuestion()
	lie := func(id string) rule { return onMethod(methodChain, result(id)) }
	p.proxy.reset(lie(`"0x1"`))
	for range 2 {
		p.expectCannotTell(t, q, "node is on chain 1, must be on 8453")
		p.probe(t.Context(), t, "the RPC node is on another chain")
	}
	equal(t, "calls", []string{methodChain, methodChain, methodChain, methodChain}, p.proxy.methods())
	for _, id := range []string{`null`, `8453`, `"8453"`, `"0x02105"`, `"0x"`, `"0x10000000000002105"`} {
		p.proxy.reset(lie(id))
		p.expectCannotTell(t, q, "chain id")
	}
	p.proxy.reset(nil)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if f := p.find(t, q); f.Fate != x402.StillOpen {
				t.Errorf("finding = %+v", f)
			}
		})
	}
	wg.Wait()
	p.proxy.reset(lie(`"0x1"`)) // the client does not ask for the chain id again
	p.expect(t, q, stillOpen(reasonOpen), callsOpen)
}

func TestNew(t *testing.T) {
	t.Parallel()
	good := Config{URLs: []string{"https://rpc.example/"}, Network: testbed.BaseNetwork, Asset: testbed.BaseUSDC}
	n := testbed.Must(New(good))
	// The transport uses no proxy from the environment, and keeps no connection for long.
	tr := n.transport.(*http.Transport)
	if tr.Proxy != nil || tr.IdleConnTimeout != 5*time.Second || !tr.DisableCompression || tr.Protocols.HTTP2() {
		t.Errorf("transport = %+v", tr)
	}
	with := func(url string) func(*Config) { return func(c *Config) { c.URLs = append(c.URLs, url) } }
	for name, spoil := range map[string]func(*Config){
		"no URL":        with(""),
		"a file":        with("file:///" + secret),
		"no host":       with("https:///" + secret),
		"half a host":   with("https://[" + secret),
		"a fragment":    with("https://rpc.example/" + secret + "#x"),
		"a long URL":    with("https://rpc.example/" + strings.Repeat(secret, 300)),
		"network":       func(c *Config) { c.Network = "solana:1" },
		"asset":         func(c *Config) { c.Asset = "0x12" },
		"no nodes":      func(c *Config) { c.URLs = nil },
		"too many ones": func(c *Config) { c.URLs = slices.Repeat(c.URLs, MaxNodes+1) },
	} {
		t.Run(name, func(t *testing.T) {
			c := good
			spoil(&c)
			if _, err := New(c); err == nil || strings.Contains(err.Error(), secret) {
				t.Errorf("error = %v", err)
			}
		})
	}
}

// TestNodes has two nodes. The first one is down, hangs, is on another chain, gives no
// results, is behind, or refuses us for too many requests. The second node must then be asked,
// and must still have time to answer. A first node that refuses us for too many requests must
// get only one message for each question.
func TestNodes(t *testing.T) {
	t.Parallel()
	p := newPlay(t)
	q, tx := p.payNew()
	p.mine(safeDepth)
	for name, r := range map[string]rule{
		"down":  plainBody(http.StatusBadGateway, ""),
		"hangs": func(c *call) bool { <-c.clientGone; return true },
		"chain": onMethod(methodChain, result(`"0x1"`)),
		"lies":  either(onMethod(methodChain, result(`"0x2105"`)), result("null")),
		"often": slowDown(),
		"old":   onMention("latest", onMethod(methodHeader, setMember("timestamp", "0x1"))),
	} {
		t.Run(name, func(t *testing.T) {
			checkPassesOver(t, p, name, r, q, tx)
		})
	}
	// If no node answers, the error contains the cause of each node, and no key.
	one, two := startProxy(t, p.proxy.target, plainBody(http.StatusBadGateway, "")), startProxy(t, p.proxy.target, onMethod(methodChain, result(`"0x1"`)))
	n := p.newClient(t, one.url(), two.url())
	f := n.Find(t.Context(), q)
	checkFinding(t, f)
	for _, says := range []string{"node 1", "502", "node 2", "chain 1"} {
		if f.Fate != x402.CannotTell || !strings.Contains(f.Cause.Error(), says) {
			t.Errorf("%q is not said in %v", says, f.Cause)
		}
	}
	if batch, err := n.Transfers(t.Context(), p.payee, 7); err == nil || batch.Next != 7 {
		t.Errorf("transfers: %+v, %v", batch, err)
	}
}

// checkPassesOver checks that a payment is found through a second node while the first node
// follows the given rule.
func checkPassesOver(t *testing.T, p *playChain, name string, r rule, q x402.Question, tx string) {
	t.Helper()
	first := startProxy(t, p.proxy.target, r)
	n := p.newClient(t, first.url(), p.proxy.url())
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	limit := patience
	if name == "hangs" { // the node uses up its share of any limit, so the first limit is short; findWithin raises it
		limit = time.Second
	}
	f := findWithin(ctx, n, q, limit)
	if f.Fate != x402.Paid || f.Transaction != tx || len(first.methods()) == 0 {
		t.Errorf("%+v after %q of the first node", f, first.methods())
	}
	if name == "hangs" {
		return
	}
	p.checkAllCalls(ctx, t, n, tx)
	if n := len(first.methods()); name == "often" && n != 5 {
		t.Errorf("%d messages, want one for each question", n)
	}
}

// findWithin looks for a payment within a time limit. It triples the limit until it finds the
// payment, or until the limit is above patience.
func findWithin(ctx context.Context, n *Nodes, q x402.Question, limit time.Duration) x402.Finding {
	var f x402.Finding
	for ; f.Fate != x402.Paid && limit <= patience; limit *= 3 {
		soon, end := context.WithTimeout(ctx, limit)
		f = n.Find(soon, q)
		end()
	}
	return f
}

// checkAllCalls makes every call of Nodes except Find, on a chain with one payment, and checks
// the answers.
func (p *playChain) checkAllCalls(ctx context.Context, t *testing.T, n *Nodes, tx string) {
	t.Helper()
	list, err1 := n.Received(ctx, tx, p.payee)
	block, err2 := n.BlockAt(ctx, p.now.Add(-time.Hour))
	batch, err3 := n.Transfers(ctx, p.payee, p.head()-safeDepth)
	if err := errors.Join(n.Probe(ctx), err1, err2, err3); err != nil || len(list) != 1 || block != 0 || len(batch.Transfers) != 1 {
		t.Errorf("received %v, block %d, batch %+v, %v", list, block, batch, err)
	}
}

// TestNodesThatAreRead checks the lists of nodes that Config.Read returns. A list replaces the
// configured nodes, and a later valid list replaces an earlier one. The configured nodes are
// asked until Read has returned a list, and when the list is empty. Read is told when no node
// could answer.
func TestNodesThatAreRead(t *testing.T) {
	t.Parallel()
	p := newPlay(t)
	var list []string
	var told bool
	fails := errors.New("no answer")
	c := p.config([]string{p.proxy.url()})
	c.Read = func(_ context.Context, _ time.Time, failed bool) ([]string, error) { told = failed; return list, fails }
	n := testbed.Must(New(c))
	down := startProxy(t, p.proxy.target, plainBody(http.StatusBadGateway, ""))
	for _, c := range []struct {
		name                    string
		list                    []string
		fails                   error
		nodeAnswers, toldFailed bool // whether a node answers Probe, and whether Read is told that none answered the previous time
	}{
		{name: "not read yet", fails: fails, nodeAnswers: true},
		{name: "one is down", list: []string{down.url(), p.proxy.url()}, nodeAnswers: true},
		{name: "all are", list: []string{down.url()}},
		{name: "they still are", list: []string{down.url()}, toldFailed: true},
		{name: "not read again", fails: fails, toldFailed: true},
		{name: "replaced", list: []string{p.proxy.url()}, nodeAnswers: true, toldFailed: true},
		{name: "with one that is not a URL", list: []string{secret}, nodeAnswers: true},
		{name: "taken away", nodeAnswers: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			list, fails = c.list, c.fails
			if err := n.Probe(t.Context()); (err == nil) != c.nodeAnswers || told != c.toldFailed {
				t.Errorf("%v, the reader is told %t", err, told)
			}
		})
	}
	equal(t, "times the first was asked", 4, len(down.methods()))
	c.URLs, c.Read = nil, func(context.Context, time.Time, bool) ([]string, error) { return nil, nil }
	only := testbed.Must(New(c))
	if err := only.Probe(t.Context()); err == nil || !strings.Contains(err.Error(), "list of nodes") {
		t.Errorf("an empty list: %v", err)
	}
}
