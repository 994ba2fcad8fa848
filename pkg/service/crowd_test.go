package service_test

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestBudgets: a request ends in the time that its deadline and the lookup's leave;
// which call gets how much is tested with the Gate. The clock is that of a bubble, so
// the time is exact.
func TestBudgets(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		hangs         func(*peers)
		status        int
		code, charged string
		took          time.Duration
	}{
		// The lookup's 8 s and 2 s to write everything down are kept.
		"/settle and chain": {
			func(p *peers) { p.settleHangs, p.chainHangs = true, true }, 503, "settlement_uncertain", "null", 17 * time.Second,
		},
		"lookup": {func(p *peers) { p.lookupHangs = true }, 504, "dns_timeout", "true", 8 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(1, explorer)
				c.hangs(f.peers)
				f.settles = 0
				header := f.sign(f.to(0, victim, "example.com", ""), true)
				begun := time.Now()
				r := f.to(0, victim, "example.com", header)
				same(t, "answered after", time.Since(begun), c.took)
				w := way{shop: &shop{T: t}}
				w.expect(w.reply(r), c.status, c.code, c.charged)
			})
		})
	}
}

// Three hundred signatures of empty wallets in a minute, from one address or
// from everywhere in one network, in any rhythm: whoever pays is served.
func TestEmptyWalletsTurnNobodyAway(t *testing.T) {
	t.Parallel()
	const many = 300
	one := func(int) string { return "203.0.113.7:1" }
	for name, c := range map[string]struct {
		from  func(i int) string
		after func(i int) time.Duration
	}{
		"evenly":      {one, func(i int) time.Duration { return time.Duration(i) * 200 * time.Millisecond }},
		"all at once": {one, func(int) time.Duration { return 0 }},
		"in waves":    {one, func(i int) time.Duration { return time.Duration(i/60) * 10 * time.Second }},
		"from many subnets": {
			func(i int) string { return fmt.Sprintf("[2001:db8:1:%x::1]:1", i) }, func(int) time.Duration { return 0 },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(1, explorer)
				offer := f.to(0, "198.51.100.200:1", "empty.example.com", "")
				codes := map[string]int{}
				var mu sync.Mutex
				var all sync.WaitGroup
				for i := range many {
					header := f.sign(offer, false)
					all.Go(func() {
						time.Sleep(c.after(i))
						r := f.to(0, c.from(i), "empty.example.com", header)
						mu.Lock()
						codes[fmt.Sprint(r.Status, " ", codeOf(r))]++
						mu.Unlock()
					})
				}
				for i := range 120 { // two a second, from other addresses
					all.Go(func() {
						time.Sleep(time.Duration(i)*500*time.Millisecond + time.Millisecond)
						f.buys(t, fmt.Sprintf("198.51.100.%d:1", i), fmt.Sprintf("p%d.example.com", i))
					})
				}
				all.Wait()
				t.Logf("the empty wallets got %v, at most %d of them at the facilitator at once", codes, f.worst)
				if f.worst > 25 || f.worst == 0 {
					t.Errorf("%d empty wallets at the facilitator at once, want no more than half of 50", f.worst)
				}
				if served := codes["200 "]; served > 0 || codes["429 rate_limited"] == 0 {
					t.Errorf("the empty wallets got %v", codes)
				}
			})
		})
	}
}

// Twenty-five payers behind one address, at once, on one lookup; and sixty in a
// minute; and one after a hundred requests without a payment, as a scanner sends
// them. Requests without a payment count.
func TestPayersBehindOneAddress(t *testing.T) {
	t.Parallel()
	const address = "203.0.113.7:1"
	for name, c := range map[string]struct {
		probes, payers int
		apart          time.Duration
	}{
		"at once":         {0, 25, 0},
		"over a minute":   {0, 60, time.Second - time.Millisecond},
		"after a scanner": {100, 1, 50 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(1, explorer)
				time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute))) // one window
				for i := range c.probes {
					if r := f.to(0, address, "example.com", ""); r.Status != http.StatusPaymentRequired {
						t.Fatalf("probe %d: %d %s", i, r.Status, r.Body)
					}
					time.Sleep(c.apart)
				}
				var all sync.WaitGroup
				for i := range c.payers {
					all.Go(func() {
						time.Sleep(time.Duration(i) * c.apart)
						f.buys(t, address, fmt.Sprintf("p%d.example.com", i))
					})
				}
				all.Wait()
			})
		})
	}
}
