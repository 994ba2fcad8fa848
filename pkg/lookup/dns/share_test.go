package dns_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	miekg "github.com/miekg/dns"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
)

// Whatever the resolvers say, lookups that share ask each question once, and
// answer what they would have answered alone.
func TestShare(t *testing.T) {
	const aaaa, mx = "@ 60 IN AAAA 2606:4700::1", "@ 60 IN MX 10 mx.example.com."
	eachInBubble(t, map[string]change{
		"both families": answer(good, aaaa, mx),
		"no data":       answer(),
		"behind alias":  both(rcode(miekg.RcodeNameError), families(answer("@ 60 IN CNAME b.test."), answer())),
		"SERVFAIL":      rcode(miekg.RcodeServerFailure),
		"REFUSED":       rcode(miekg.RcodeRefused),
		"IPv6 fails":    families(answer(good), rcode(miekg.RcodeServerFailure)),
	}, func(t *testing.T, says change) {
		w := newWorld(t, host{udp: after(ms, says)})
		cl := w.client()
		ask := func(ctx context.Context) string {
			var all sync.WaitGroup
			got := make([]string, 4)
			for i, typ := range []string{"A", "AAAA", "MX"} {
				all.Go(func() { got[i] = shown(cl.Lookup(ctx, query(typ))) })
			}
			all.Go(func() {
				addrs, err := cl.Addresses(ctx, "example.com")
				got[3] = fmt.Sprint(addrs, code(err))
			})
			all.Wait()
			return fmt.Sprintf("%q", got)
		}
		alone := ask(t.Context())
		w.questions()
		ctx, end := dns.Share(t.Context())
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				if diff := cmp.Diff(alone, ask(ctx)); diff != "" {
					t.Errorf("alone and shared differ: %s", diff)
				}
			})
		}
		all.Wait()
		once := []string{"example.com. A", "example.com. AAAA", "example.com. MX"}
		if asked := w.questions(); !slices.Equal(asked, once) {
			t.Errorf("asked %v, want %v", asked, once)
		}
		end()
		w.check()

		// Nothing is kept, and nothing is shared with another bundle, a lookup alone,
		// another client or another name.
		ctx, end = dns.Share(t.Context())
		defer end()
		cl.Lookup(t.Context(), query("A")) // the questions count
		for _, cl := range []*dns.Client{cl, w.client()} {
			for _, name := range []string{"example.com", "www.example.com", "example.com"} {
				cl.Lookup(ctx, dns.Query{Domain: name, Type: "A"})
			}
		}
		want := []string{"example.com. A", "example.com. A", "example.com. A", "www.example.com. A", "www.example.com. A"}
		if asked := w.questions(); !slices.Equal(asked, want) {
			t.Errorf("then asked %v, want %v", asked, want)
		}
	})
}

// Who has less time judges by what is known then; the question goes on for who
// has more.
func TestShareDeadlines(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, host{udp: after(10*ms, rcode(miekg.RcodeServerFailure))}, host{udp: ok(3 * time.Second)}, host{udp: mute})
		cl := w.client()
		ctx, end := dns.Share(t.Context())
		var all sync.WaitGroup
		for budget, want := range map[time.Duration]string{
			5 * ms: "dns_timeout at 4.5ms", time.Second: "SERVFAIL from 1.1.1.1 at 950ms", time.Minute: "NOERROR from 8.8.8.8 at 3.01s",
		} {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(ctx, budget)
				defer cancel()
				if got := w.outcome(cl.Lookup(ctx, query("A"))); got != want {
					t.Errorf("with %s: %s, want %s", budget, got, want)
				}
			})
		}
		all.Wait()
		end()
		// Each resolver once by each transport.
		w.check(first+" at 0s", second+" at 10ms", third+" at 410ms", "tcp "+second+" at 2.01s", "tcp "+third+" at 2.41s")
	})
}

// end stops what nobody waits for any more, and returns when it is gone.
func TestShareEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, host{udp: mute})
		w.meddle = reluctantly
		cl := w.client()
		ctx, end := dns.Share(t.Context())
		hurried, cancel := context.WithTimeout(ctx, 20*ms)
		defer cancel()
		if _, err := cl.Lookup(hurried, query("A")); code(err) != fault.DNSTimeout {
			t.Errorf("%v, want dns_timeout", err)
		}
		if w.near.Load() != 1 {
			t.Error("the question did not go on for others")
		}
		end()
		w.at(18*ms + time.Second) // it waits for what it stops, and no longer
		w.check()
		if _, err := cl.Lookup(ctx, query("A")); code(err) != fault.DNSTimeout {
			t.Errorf("after the end: %v, want dns_timeout", err)
		}
	})
}
