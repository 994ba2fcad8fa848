package service_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hostfacts/hostfacts/pkg/limit"
	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
	"github.com/hostfacts/hostfacts/pkg/service"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// crowd is one lookup with the limits at their defaults, and a facilitator that
// takes two seconds to refuse a payer without money. Its clock is that of a bubble.
type crowd struct {
	handler http.Handler

	mu   sync.Mutex
	rich map[string]bool // payers with money
	// settling is how many payments are at the facilitator, and worst the most
	// of those without money that ever were.
	settling, worst int
}

// How long a settlement takes, and a lookup.
const (
	crowdSettles = 300 * time.Millisecond
	crowdLooks   = 200 * time.Millisecond
)

func newCrowd() *crowd {
	c := &crowd{rich: map[string]bool{}}
	limits := &limit.Memory{}
	c.handler = parts{
		Platform: platform(), Offering: service.Offering{Terms: testTerms()},
		Ledger: ledger.New(&ledgertest.Memory{}, time.Now, rand.Text), Facilitator: c, DNS: c,
		Limits: service.Limits{
			Rate:   limit.NewRate(limit.RateConfig{PerMinute: 300, Counter: limits, Now: time.Now}),
			Leases: limits, Single: 50, Bundle: 20, NewID: func() string { return rand.Text()[:limit.IDLength] },
		},
	}.handler()
	return c
}

// Verify finds every signature invalid that cannot be verified locally.
func (c *crowd) Verify(context.Context, x402.Payload, x402.Requirements) x402.Verification {
	time.Sleep(2 * time.Second)
	return x402.Verification{Reason: "invalid_exact_evm_payload_signature", BadSignature: true}
}

func (c *crowd) Settle(_ context.Context, p x402.Payload, r x402.Requirements) x402.Settlement {
	c.mu.Lock()
	rich := c.rich[strings.ToLower(p.Payload.Authorization.From)]
	if !rich {
		c.settling++
		c.worst = max(c.worst, c.settling)
	}
	c.mu.Unlock()
	if rich {
		time.Sleep(crowdSettles)
		return x402.Settlement{Class: x402.Moved, Transaction: txHash, Network: r.Network}
	}
	time.Sleep(2 * time.Second)
	c.mu.Lock()
	c.settling--
	c.mu.Unlock()
	return x402.Settlement{Class: x402.Refused, Reason: "invalid_exact_evm_insufficient_balance"}
}

func (c *crowd) Lookup(_ context.Context, q dns.Query) (dns.Result, error) {
	time.Sleep(crowdLooks)
	return dns.Result{Domain: q.Domain, Type: q.Type, Rcode: "NOERROR", Resolver: "127.0.0.1", Records: []dns.Record{}}, nil
}

// send sends a request for a domain from an address.
func (c *crowd) send(from, domain, header string) x402test.Reply {
	r := httptest.NewRequest(http.MethodGet, "/v1/tools/dns?domain="+domain, nil)
	r.RemoteAddr = from
	if header != "" {
		r.Header.Set(x402.HeaderSignature, header)
	}
	w := httptest.NewRecorder()
	c.handler.ServeHTTP(w, r)
	return x402test.Reply{Status: w.Code, Header: w.Header(), Body: w.Body.Bytes()}
}

// sign signs an offer with a wallet of its own.
func (c *crowd) sign(t testing.TB, offer x402test.Reply, rich bool) string {
	t.Helper()
	wallet, draft := draftOf(t, offer)
	header := must(wallet.Seal(draft))
	if rich {
		c.funds(wallet)
	}
	return header
}

// funds gives a wallet money.
func (c *crowd) funds(wallet *x402test.Wallet) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rich[strings.ToLower(wallet.Address().String())] = true
}

// draftOf is a payment of an offer that is not signed yet, and a new wallet to sign
// it with.
func draftOf(t testing.TB, offer x402test.Reply) (*x402test.Wallet, x402test.Draft) {
	t.Helper()
	required, err := offer.Required()
	if err != nil {
		t.Fatalf("%d %s: %v", offer.Status, offer.Body, err)
	}
	wallet := must(x402test.NewWallet(rand.Reader))
	draft := must(wallet.Draft(required, time.Now()))
	return wallet, draft
}

// buys asks without a payment, pays and must be served.
func (c *crowd) buys(t *testing.T, from, domain string) {
	t.Helper()
	header := c.sign(t, c.send(from, domain, ""), true)
	if r := c.send(from, domain, header); r.Status != http.StatusOK {
		t.Errorf("a funded payer at %s after %s got %d %s", from, domain, r.Status, r.Body)
	}
}

// Three hundred signatures of empty wallets in a minute, from one address or
// from everywhere in one network, in any rhythm: whoever pays is served.
func TestEmptyWalletsTurnNobodyAway(t *testing.T) {
	t.Parallel()
	const many = 300
	for name, c := range map[string]struct {
		from  func(i int) string
		after func(i int) time.Duration
	}{
		"evenly":            {func(int) string { return "203.0.113.7:1" }, func(i int) time.Duration { return time.Duration(i) * 200 * time.Millisecond }},
		"all at once":       {func(int) string { return "203.0.113.7:1" }, func(int) time.Duration { return 0 }},
		"in waves":          {func(int) string { return "203.0.113.7:1" }, func(i int) time.Duration { return time.Duration(i/60) * 10 * time.Second }},
		"from many subnets": {func(i int) string { return fmt.Sprintf("[2001:db8:1:%x::1]:1", i) }, func(int) time.Duration { return 0 }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newCrowd()
				offer := w.send("198.51.100.200:1", "empty.example.com", "")
				codes := map[string]int{}
				var mu sync.Mutex
				var all sync.WaitGroup
				for i := range many {
					header := w.sign(t, offer, false)
					all.Go(func() {
						time.Sleep(c.after(i))
						r := w.send(c.from(i), "empty.example.com", header)
						mu.Lock()
						codes[fmt.Sprint(r.Status, " ", codeOf(r))]++
						mu.Unlock()
					})
				}
				for i := range 120 { // two a second, from other addresses
					all.Go(func() {
						time.Sleep(time.Duration(i)*500*time.Millisecond + time.Millisecond)
						w.buys(t, fmt.Sprintf("198.51.100.%d:1", i), fmt.Sprintf("p%d.example.com", i))
					})
				}
				all.Wait()
				t.Logf("the empty wallets got %v, at most %d of them at the facilitator at once", codes, w.worst)
				if w.worst > 25 || w.worst == 0 {
					t.Errorf("%d empty wallets at the facilitator at once, want no more than half of 50", w.worst)
				}
				if served := codes["200 "]; served > 0 || codes["429 rate_limited"] == 0 {
					t.Errorf("the empty wallets got %v", codes)
				}
			})
		})
	}
}

// codeOf is the error code of a reply, or empty.
func codeOf(r x402test.Reply) string {
	var body struct {
		Code  string
		Error json.RawMessage
	}
	if json.Unmarshal(r.Body, &body) != nil {
		return "unreadable"
	}
	var detail struct{ Code string }
	if json.Unmarshal(body.Error, &detail) == nil && detail.Code != "" {
		return detail.Code
	}
	return body.Code
}

// Twenty-five payers behind one address, at once, on one lookup; and sixty in a
// minute. Their requests without a payment count.
func TestPayersBehindOneAddress(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		payers int
		apart  time.Duration
	}{
		"at once":       {25, 0},
		"over a minute": {60, time.Second - time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newCrowd()
				time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute))) // one window
				var all sync.WaitGroup
				for i := range c.payers {
					all.Go(func() {
						time.Sleep(time.Duration(i) * c.apart)
						w.buys(t, "203.0.113.7:1", fmt.Sprintf("p%d.example.com", i))
					})
				}
				all.Wait()
			})
		})
	}
}

// A scanner sends a hundred requests without a payment in some seconds, and may
// still pay afterwards.
func TestScannerPasses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newCrowd()
		for i := range 100 { // some seconds
			if r := w.send("203.0.113.7:1", "example.com", ""); r.Status != http.StatusPaymentRequired {
				t.Fatalf("probe %d: %d %s", i, r.Status, r.Body)
			}
			time.Sleep(50 * time.Millisecond)
		}
		w.buys(t, "203.0.113.7:1", "example.com")
	})
}
