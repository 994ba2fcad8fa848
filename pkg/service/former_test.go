package service_test

import (
	"crypto/rand"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/service"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// TestChangeOfTerms has buyers across a change of the payee, at either version and over
// either transport, each with an offer and a payment and the payment again: nobody is turned
// away, and nobody is answered anew. When the time of the former terms is over only what was
// claimed before is answered. What passes are the terms now and the former ones, whole, and
// nothing that a client makes of them.
func TestChangeOfTerms(t *testing.T) {
	t.Parallel()
	const now, former = "0x70997970C51812dc3A010C7d01b50e0d17dc79C8", "0x209693Bc6afc0C5328bA36FaF03C514EF312287C"
	var later atomic.Int64
	old, begun := newShop(t), time.Now()
	next := newShop(t, func(p *parts) {
		p.Now = func() time.Time { return time.Now().Add(time.Duration(later.Load())) }
		p.Former = &service.FormerTerms{Terms: p.Terms, Prices: map[string]string{"host-intel": "7000"}, Until: begun.Add(5 * time.Minute)}
		p.Terms.PayTo, p.Ledger = now, old.store
	})
	buyer := func() {
		old.client.Wallet = must(x402test.NewWallet(rand.Reader))
		next.client.Wallet = old.client.Wallet
	}
	var last string
	for i, c := range [][2]*shop{{old, old}, {old, next}, {next, next}, {old, old}, {old, next}, {next, next}} { // asked, and paid
		buyer()
		last = way{c[0], i < 3}.sign("example.com")
		for _, w := range []way{{c[1], i < 3}, {next, i >= 3}} {
			if a := w.ask("example.com", last); a.status != 200 || a.replayed != (w.tool != (i < 3)) {
				t.Fatalf("buyer %d: %+v", i, a)
			}
		}
	}
	path := catalog.HostIntel().Path + "?domain=localhost"
	for _, c := range []struct {
		payee, amount string
		status        int // 400 is that of the domain, of a payment that passes
	}{{now, "15000", 400}, {former, "7000", 400}, {former, "15000", 402}, {now, "7000", 402}, {former, "1", 402}, {payer, "7000", 402}} {
		buyer()
		offer := must(next.client.Challenge(t.Context(), next.url+path))
		offer.Accepts = []x402.Requirements{offer.Accepts[0]}
		offer.Accepts[0].PayTo, offer.Accepts[0].Amount = c.payee, c.amount
		same(t, c.payee+" "+c.amount, next.get(path, next.pay(offer)).Status, c.status)
	}
	before := way{old, false}.sign("example.com")
	later.Store(int64(5 * time.Minute))
	if a := (way{next, false}).ask("example.com", last); a.status != 200 || !a.replayed {
		t.Errorf("what was claimed is not answered: %+v", a)
	}
	if a := (way{next, false}).ask("example.com", before); a.code != "payment_required" {
		t.Errorf("the former terms pass when their time is over: %+v", a)
	}
}
