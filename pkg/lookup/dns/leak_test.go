package dns_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	miekg "github.com/miekg/dns"

	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
)

// TestNoLeak counts goroutines around many lookups that win, lose, fall back
// to TCP, time out and are cancelled. It is not parallel, so that nothing else
// runs.
func TestNoLeak(t *testing.T) {
	winner := resolver(t, answer(t, good))
	failing := resolver(t, rcode(t, miekg.RcodeServerFailure))
	muteUDP := raw(t, nil, nil)
	muteTCP := raw(t, func(q []byte) [][]byte { return [][]byte{reply(t, q, truncate)} }, nil)
	for name, resolvers := range map[string][]string{
		"winner":                {winner, failing, muteUDP},
		"loser in UDP":          {muteUDP, failing, winner},
		"loser in TCP":          {muteTCP, muteUDP, winner},
		"verdict, all answered": {failing, dead(t), failing},
		"verdict at the end":    {muteUDP, muteTCP, failing},
	} {
		before := runtime.NumGoroutine()
		c := dns.New(dns.Config{Resolvers: resolvers, HedgeDelay: time.Millisecond})
		for i := range 20 {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			if i%5 == 4 {
				time.AfterFunc(2*time.Millisecond, cancel)
			}
			c.Lookup(ctx, dns.Query{Domain: "example.com", Type: "A"}) // any outcome will do
			cancel()
		}
		// The servers' own goroutines take a moment to end.
		end := time.Now().Add(5 * time.Second)
		for runtime.NumGoroutine() > before && time.Now().Before(end) {
			runtime.Gosched()
		}
		if n := runtime.NumGoroutine(); n > before {
			stacks := make([]byte, 1<<16)
			t.Errorf("%s: %d goroutines before, %d after\n%s", name, before, n, stacks[:runtime.Stack(stacks, true)])
		}
	}
}
