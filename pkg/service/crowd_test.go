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
	for _, c := range []struct {
		settles, finds, looks time.Duration
		status                int
		code, charged         string
		took                  time.Duration
	}{
		// The lookup's 8 s and 2 s to write everything down are kept.
		{time.Hour, time.Hour, 0, 503, "settlement_uncertain", "null", 17 * time.Second},
		{0, 0, time.Hour, 504, "dns_timeout", "true", 8 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(1, explorer)
			f.settles, f.finds, f.looks = c.settles, c.finds, c.looks
			header := f.sign(f.to(0, victim, "example.com", ""), true)
			begun := time.Now()
			r := f.to(0, victim, "example.com", header)
			same(t, c.code+" after", time.Since(begun), c.took)
			w := way{shop: &shop{T: t}}
			w.expect(w.reply(r), c.status, c.code, c.charged)
		})
	}
}

// comes has so many clients do something, one after another.
func comes(all *sync.WaitGroup, many int, apart time.Duration, do func(i int)) {
	for i := range many {
		all.Go(func() {
			time.Sleep(time.Duration(i)*apart + time.Millisecond)
			do(i)
		})
	}
}

// Three hundred signatures of empty wallets in a minute, from one address or
// from everywhere in one network, in any rhythm: whoever pays is served.
func TestEmptyWalletsTurnNobodyAway(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		from  string
		apart time.Duration
	}{{"203.0.113.7:%d", 200 * time.Millisecond}, {"203.0.113.7:%d", 0}, {"[2001:db8:1:%x::1]:1", 0}} {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(1, explorer)
			offer := f.to(0, "198.51.100.200:1", "empty.example.com", "")
			codes := map[string]int{}
			var mu sync.Mutex
			var all sync.WaitGroup
			comes(&all, 300, c.apart, func(i int) {
				r := f.to(0, fmt.Sprintf(c.from, i), "empty.example.com", f.sign(offer, false))
				mu.Lock()
				defer mu.Unlock()
				codes[fmt.Sprint(r.Status, " ", codeOf(r))]++
			})
			comes(&all, 120, time.Second/2, func(i int) { // from other addresses
				f.buys(t, fmt.Sprintf("198.51.100.%d:1", i), fmt.Sprintf("p%d.example.com", i))
			})
			all.Wait()
			if f.worst > 25 || f.worst == 0 {
				t.Errorf("%+v: %d empty wallets at the facilitator at once, want no more than half of 50", c, f.worst)
			}
			if codes["200 "] > 0 || codes["429 rate_limited"] == 0 {
				t.Errorf("%+v: the empty wallets got %v", c, codes)
			}
		})
	}
}

// Twenty-five payers behind one address, at once, on one lookup; and sixty in a
// minute; and one after a hundred requests without a payment, as a scanner sends
// them. Requests without a payment count.
func TestPayersBehindOneAddress(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		probes, payers int
		apart          time.Duration
	}{{0, 25, 0}, {0, 60, time.Second - time.Millisecond}, {100, 1, 0}} {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(1, explorer)
			time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute))) // one window
			for range c.probes {
				same(t, "a probe", f.to(0, attacker, "example.com", "").Status, http.StatusPaymentRequired)
			}
			var all sync.WaitGroup
			comes(&all, c.payers, c.apart, func(i int) { f.buys(t, attacker, fmt.Sprintf("p%d.example.com", i)) })
			all.Wait()
		})
	}
}
