package dns_test

import (
	"context"
	"net"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
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

// TestReturnsAfterClose: a lookup returns when all that it opened is closed,
// not when it only cannot be read from any more.
func TestReturnsAfterClose(t *testing.T) {
	t.Parallel()
	for name, ask := range map[string]func(ctx context.Context, c *dns.Client) error{
		"lookup": func(ctx context.Context, c *dns.Client) error {
			_, err := c.Lookup(ctx, dns.Query{Domain: "example.com", Type: "A"})
			return err
		},
		"addresses": func(ctx context.Context, c *dns.Client) error {
			_, err := c.Addresses(ctx, "example.com")
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := &fakeNet{t: t, begin: time.Now(), scripts: map[string]script{"1.1.1.1:53": mute, "tcp 1.1.1.1:53": mute}}
				var open atomic.Int64
				c := dns.New(dns.Config{Resolvers: []string{"1.1.1.1:53"}, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
					conn, err := f.dial(ctx, network, address)
					open.Add(1)
					return &reluctant{Conn: conn, open: &open}, err
				}})
				ctx, cancel := context.WithTimeout(t.Context(), 100*ms)
				defer cancel()
				err := ask(ctx, c)
				if n := open.Load(); n != 0 || err == nil {
					t.Errorf("returned with %d connections open, %v", n, err)
				}
			})
		})
	}
}
