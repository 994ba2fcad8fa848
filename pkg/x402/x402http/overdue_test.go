package x402http_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/x402http"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// ignorantNode is a node that can tell nothing about any payment.
type ignorantNode struct{}

// Find implements x402.Evidence.
func (ignorantNode) Find(context.Context, x402.Question) x402.Finding { return x402.Finding{} }

// TestOverdue checks that an error is logged about a payment that stays in doubt, at most once
// in a quarter of an hour. No error is logged if this process or another one calls Reconcile.
func TestOverdue(t *testing.T) {
	t.Parallel()
	const shop = "https://shop.example/"
	type world struct {
		*market
		seller, other *x402http.Seller // two processes with one ledger; only the first serves requests
	}
	node := func(c *x402http.Config) { c.Evidence, c.NoNode, c.PerMinute = ignorantNode{}, false, -1 }
	doubt := func(w world) {
		w.behaviour = x402test.FailBefore
		w.buy(shop)
		w.behaviour = x402test.Honest
	}
	run := func(s *x402http.Seller) func(world) {
		return func(w world) { must(s.Reconcile(w.Context())) }
	}
	here := func(w world) { run(w.seller)(w) }
	elsewhere := func(w world) { run(w.other)(w) }
	wait := func(minutes int) func(world) {
		return func(world) { time.Sleep(time.Duration(minutes) * time.Minute) }
	}
	serve := func(w world) {
		w.get(shop, "")
		w.get(shop, "")
		synctest.Wait()
	}
	for name, c := range map[string]struct {
		changes  []func(*x402http.Config)
		steps    []func(world)
		lines    int
		wantText string
	}{
		"nobody comes":           {steps: []func(world){doubt, wait(60)}},
		"not yet":                {steps: []func(world){doubt, wait(14), serve}},
		"nobody settles it":      {steps: []func(world){doubt, wait(16), serve}, lines: 1, wantText: "payments=1 more=false"},
		"those of two":           {steps: []func(world){func(w world) { w.makeDoubtful(2) }, wait(16), serve}, lines: 1, wantText: "payments=2 more=false"},
		"more than are read":     {steps: []func(world){func(w world) { w.makeDoubtful(51) }, wait(16), serve}, lines: 1, wantText: "payments=50 more=true"},
		"once in a quarter":      {steps: []func(world){doubt, wait(16), serve, wait(14), serve}, lines: 1},
		"and again":              {steps: []func(world){doubt, wait(16), serve, wait(15), serve}, lines: 2},
		"it is recent":           {steps: []func(world){wait(10), doubt, wait(6), serve}},
		"settled here":           {steps: []func(world){doubt, wait(10), here, wait(10), serve}},
		"settled elsewhere":      {steps: []func(world){doubt, wait(10), elsewhere, wait(10), serve}},
		"settled elsewhere once": {steps: []func(world){doubt, wait(10), elsewhere, wait(10), serve, wait(15), serve}, lines: 1},
		"there is none":          {steps: []func(world){func(w world) { w.buy(shop) }, wait(60), serve}},
		"an answer is owed": {steps: []func(world){func(w world) {
			w.shop = w.seller.Sell("0.01", &stock{isEmpty: true})
			w.buy(shop)
		}, wait(60), serve}},
		"crashed as it was sent": {steps: []func(world){func(w world) { w.storeCrashed("", false) }, wait(16), serve}, lines: 1},
		"crashed before":         {steps: []func(world){func(w world) { w.storeCrashed("purchase", false) }, wait(16), serve}},
		"crashed as it ran":      {steps: []func(world){func(w world) { w.storeCrashed("", true) }, wait(16), serve}},
		"the index is behind": {
			changes: []func(*x402http.Config){func(c *x402http.Config) { c.Ledger = laggingIndex{c.Ledger} }},
			steps:   []func(world){doubt, wait(10), elsewhere, wait(10), serve},
		},
		"no node":                    {changes: []func(*x402http.Config){withoutNode}, steps: []func(world){doubt, wait(16), serve}, lines: 1},
		"no node, and it is counted": {changes: []func(*x402http.Config){withoutNode}, steps: []func(world){doubt, wait(10), here, wait(10), serve}},
		"the index is somebody else's": {
			changes: []func(*x402http.Config){func(c *x402http.Config) { c.Ledger = struct{ ledger.Store }{c.Ledger} }},
			steps:   []func(world){doubt, wait(60), serve},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runInMarket(t, func(m *market) {
				changes := append([]func(*x402http.Config){node}, c.changes...)
				w := world{m, m.seller(changes...), m.seller(changes...)}
				w.shop = w.seller.Sell("0.01", newStock("sold"))
				for _, step := range c.steps {
					step(w)
				}
				const line = "payments are in doubt for longer than 15 minutes: call Seller.Reconcile"
				if n := m.countLogged(line); n != c.lines || m.countLogged("level=ERROR") != n || c.wantText != "" && m.countLogged(c.wantText) != 1 {
					m.Errorf("%d lines, want %d that say %q:\n%s", n, c.lines, c.wantText, m.log.String())
				}
			})
		})
	}
}

// laggingIndex is a ledger whose index has not yet noticed the latest writes of records.
type laggingIndex struct{ ledger.Store }

// List implements ledger.Index.
func (b laggingIndex) List(ctx context.Context, list string, _ time.Time, after ledger.Place, limit int) ([]ledger.Place, error) {
	return b.Store.(ledger.Index).List(ctx, list, time.Time{}, after, limit)
}

// storeCrashed stores the record of a payment whose process has died. If settled is true, the
// payment was already settled. If purchase is not empty, the process had not yet opened that
// purchase, so it had not sent the payment. If purchase is empty and settled is false, the
// process died while it sent the payment.
func (m *market) storeCrashed(purchase string, settled bool) {
	m.Helper()
	now := time.Now()
	c := must(ledger.New(&m.store, time.Now, rand.Text).Claim(m.Context(), ledger.Submission{
		Key: "crashed", AuthDigest: "a", SigDigest: "s", Token: "t", Request: "GET /", Purchase: purchase, ValidBefore: now.Add(5 * time.Minute),
	}, now.Add(time.Minute)))
	if c.Result != ledger.Held {
		m.Fatalf("%+v", c)
	}
	if settled {
		if err := c.Hold.Settled(m.Context(), ledger.Receipt{Transaction: "0x1"}, true); err != nil {
			m.Fatal(err)
		}
	}
}

// withoutNode is a change of a seller's settings that removes the node.
func withoutNode(c *x402http.Config) { c.Evidence, c.NoNode = nil, true }

// makeDoubtful makes the given number of payments, each by another payer, and leaves them in
// doubt.
func (m *market) makeDoubtful(number int) {
	m.Helper()
	m.behaviour = x402test.FailBefore
	for i := range number {
		m.client = m.payer()
		m.buy(fmt.Sprint("https://shop.example/", i))
	}
	m.behaviour = x402test.Honest
}
