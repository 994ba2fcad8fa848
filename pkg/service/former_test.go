package service_test

import (
	"crypto/rand"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/service"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// version is a shop with other terms than the one whose ledger it has, which it takes for
// five more minutes by a clock of the test.
func (s *shop) version(later *atomic.Int64) *shop {
	return newShop(s.T, func(p *parts) {
		begun := time.Now()
		p.Now = func() time.Time { return time.Now().Add(time.Duration(later.Load())) }
		p.Former = &service.FormerTerms{Terms: p.Terms, Until: begun.Add(5 * time.Minute)}
		p.Terms.PayTo = "0x70997970C51812dc3A010C7d01b50e0d17dc79C8"
		p.Ledger = s.store
	})
}

// TestChangeOfTerms has 120 buyers across a change of the payee, at either version, each
// with an offer and a payment and the payment again: nobody is turned away, and nobody is
// answered anew. When the time is over only what was claimed before is answered.
func TestChangeOfTerms(t *testing.T) {
	t.Parallel()
	var later atomic.Int64
	old := newShop(t)
	next := old.version(&later)
	var last string
	for i := range 120 {
		asked, paid := old, old
		if i >= 40 {
			paid = next
		}
		if i >= 80 {
			asked = next
		}
		wallet := must(x402test.NewWallet(rand.Reader))
		old.client.Wallet, next.client.Wallet = wallet, wallet
		last = way{asked, i%2 == 0}.sign("example.com")
		if a := (way{paid, i%2 == 0}).ask("example.com", last); a.status != 200 || a.replayed {
			t.Fatalf("buyer %d: %+v", i, a)
		}
		if a := (way{next, i%2 == 0}).ask("example.com", last); a.status != 200 || !a.replayed {
			t.Fatalf("buyer %d, again: %+v", i, a)
		}
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

// TestFormerTerms: what passes are the terms now and the former ones, whole, and nothing
// that a client makes of them.
func TestFormerTerms(t *testing.T) {
	t.Parallel()
	s := newShop(t, func(p *parts) {
		p.Former = &service.FormerTerms{Terms: p.Terms, Prices: map[string]string{"dns": "7000"}, Until: time.Now().Add(time.Hour)}
		p.Terms.PayTo = "0x70997970C51812dc3A010C7d01b50e0d17dc79C8"
	})
	now, former := "0x70997970C51812dc3A010C7d01b50e0d17dc79C8", testTerms().PayTo
	for _, c := range []struct {
		payee, amount string
		status        int
	}{{now, "5000", 200}, {former, "7000", 200}, {former, "5000", 402}, {now, "7000", 402}, {former, "1", 402}, {payer, "7000", 402}} {
		s.client.Wallet = must(x402test.NewWallet(rand.Reader))
		offer := must(s.client.Challenge(s.Context(), s.url+dnsPath))
		offer.Accepts = []x402.Requirements{offer.Accepts[0]}
		offer.Accepts[0].PayTo, offer.Accepts[0].Amount = c.payee, c.amount
		same(t, c.payee+" "+c.amount, s.get(dnsPath, s.pay(offer)).Status, c.status)
	}
}
