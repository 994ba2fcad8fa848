package chain

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/chaintest"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

// bad is a node that cannot be used, and counts who asks it.
type bad struct {
	url   string
	asked *atomic.Int32
}

func startBad(t *testing.T, h http.HandlerFunc) bad {
	t.Helper()
	b := bad{asked: new(atomic.Int32)}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.asked.Add(1)
		h(w, r)
	}))
	t.Cleanup(s.Close)
	b.url = s.URL
	return b
}

// answers is a node that gives each method the same result.
func answers(results map[string]string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		o, err := parseObject(mustRead(r))
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		text, ok := results[strings.Trim(string(o["method"]), `"`)]
		if !ok {
			text = "null"
		}
		_, _ = w.Write([]byte(`{"jsonrpc":"2.0","id":` + string(o["id"]) + `,"result":` + text + `}`))
	}
}

func mustRead(r *http.Request) []byte {
	b, err := readBody(r.Body, maxBody)
	if err != nil {
		panic(err)
	}
	return b
}

func (w *world) several(t *testing.T, c NodesConfig) *Nodes {
	t.Helper()
	c.Network, c.Asset = chaintest.Network, chaintest.USDC
	c.Now = func() time.Time { return w.Now(t).Add(w.ahead) }
	n, err := NewNodes(c)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A node that is down, hangs, is on another chain or behind is passed over, and
// each is asked within its share of the time.
func TestNodes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.authorize(t)
	tx := w.Transfer(t, chaintest.Sign(t, w.payer, a)).Hash
	q := w.question(t, a)
	for name, h := range map[string]http.HandlerFunc{
		"down":  func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusServiceUnavailable) },
		"hangs": func(_ http.ResponseWriter, r *http.Request) { mustRead(r); <-r.Context().Done() }, // read, or its end is not seen
		"chain": answers(map[string]string{"eth_chainId": `"0x1"`}),
		"lies":  answers(map[string]string{"eth_chainId": `"0x2105"`, "eth_call": `"0x02"`}),
	} {
		b := startBad(t, h)
		n := w.several(t, NodesConfig{URLs: []string{b.url, w.proxy.url()}})
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		f := n.Find(ctx, q)
		if f.Verdict != x402.Paid || !strings.EqualFold(f.Transaction, tx) || b.asked.Load() == 0 {
			t.Errorf("%s: %+v after %d calls of the first node", name, f, b.asked.Load())
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
	down := startBad(t, func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusBadGateway) })
	other := startBad(t, answers(map[string]string{"eth_chainId": `"0x1"`}))
	n := w.several(t, NodesConfig{URLs: []string{down.url + "/" + secret, other.url + "/" + secret}})
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
	for range 3 {
		if err := n.Probe(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if reads != 1 {
		t.Errorf("%d readings", reads)
	}
	first := startBad(t, func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusBadGateway) })
	list, fails = []string{first.url, w.proxy.url()}, nil
	w.ahead = rereadAfter
	for range 3 {
		if err := n.Probe(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if reads != 2 || first.asked.Load() != 3 {
		t.Errorf("%d readings, and the first node was asked %d times", reads, first.asked.Load())
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
