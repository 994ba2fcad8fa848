package dns_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	miekg "github.com/miekg/dns"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
)

// TestShare checks that lookups under one context of Share ask each question only once, and
// return the same results as without Share, whatever the resolvers reply. Questions about com
// are not counted.
func TestShare(t *testing.T) {
	const aaaa, mx = "@ 60 IN AAAA 2606:4700::1", "@ 60 IN MX 10 mx.example.com."
	eachInBubble(t, map[string]change{
		"both families": answer(goodRecord, aaaa, mx),
		"behind alias":  combine(provenNXDomain(), byFamily(answer("@ 60 IN CNAME b.test."), answer())),
		"SERVFAIL":      rcode(miekg.RcodeServerFailure),
		"REFUSED":       rcode(miekg.RcodeRefused),
		"IPv6 fails":    byFamily(answer(goodRecord), rcode(miekg.RcodeServerFailure)),
	}, func(t *testing.T, says change) {
		w := newWorld(t, host{udp: replyAfter(ms, says)})
		cl := w.client()
		ask := func(ctx context.Context) string {
			var all sync.WaitGroup
			got := make([]string, 4)
			for i, typ := range []string{"A", "AAAA", "MX"} {
				all.Go(func() { got[i] = resultText(cl.Lookup(ctx, query(typ))) })
			}
			all.Go(func() {
				addrs, err := cl.Addresses(ctx, "example.com")
				got[3] = fmt.Sprint(addrs, testbed.Code(err))
			})
			all.Wait()
			return fmt.Sprintf("%q", got)
		}
		alone := ask(t.Context())
		w.takeQuestions()
		ctx, end := dns.Share(t.Context())
		for range 2 {
			if got := ask(ctx); got != alone {
				t.Errorf("shared %s, alone %s", got, alone)
			}
		}
		once := []string{"example.com. A", "example.com. AAAA", "example.com. MX"}
		asked := slices.DeleteFunc(w.takeQuestions(), func(q string) bool { return q == "com. NS" })
		if !slices.Equal(asked, once) {
			t.Errorf("asked %v, want %v", asked, once)
		}
		end()
		w.wantDials()
	})
}

// TestShareDeadlines checks calls with different deadlines that share a question. A call whose
// time ends first must return what the resolvers have said so far. The question must continue
// for the calls with more time.
func TestShareDeadlines(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, host{udp: replyAfter(10*ms, rcode(miekg.RcodeServerFailure))}, host{udp: replyGood(3 * time.Second)}, host{udp: sendNothing})
		cl := w.client()
		ctx, end := dns.Share(t.Context())
		var all sync.WaitGroup
		for budget, want := range map[time.Duration]string{
			5 * ms: "dns_timeout at 3.9375ms", time.Second: "SERVFAIL from 1.1.1.1 at 831.25ms", time.Minute: "NOERROR from 8.8.8.8 at 3.01s",
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
		// Over each transport, each resolver is dialled at most once.
		w.wantDials(first+" at 0s", second+" at 10ms", third+" at 410ms", "tcp "+second+" at 2.01s", "tcp "+third+" at 2.41s")
	})
}

// TestShareEnds checks that the function end stops the questions that no caller waits for any
// more, and returns only when they have ended. Different clients must not share a question,
// and neither must different names.
func TestShareEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, host{udp: sendNothing})
		w.onCall = closeSlowly
		cl := w.client()
		ctx, end := dns.Share(t.Context())
		hurried, cancel := context.WithTimeout(ctx, 20*ms)
		defer cancel()
		for _, cl := range []*dns.Client{cl, w.client()} {
			for _, name := range []string{"example.com", "www.example.com", "example.com"} {
				if _, err := cl.Lookup(hurried, dns.Query{Domain: name, Type: "A"}); testbed.Code(err) != lookup.DNSTimeout {
					t.Errorf("%v, want dns_timeout", err)
				}
			}
		}
		synctest.Wait()
		if n := w.openConns.Load(); n != 4 {
			t.Errorf("%d questions went on for others, want 4", n)
		}
		ended := time.Now()
		end()
		if took := time.Since(ended); took != time.Second {
			t.Errorf("end took %v, want the second that connections take to close", took)
		}
		if _, err := cl.Lookup(ctx, query("A")); testbed.Code(err) != lookup.DNSTimeout {
			t.Errorf("after the end: %v, want dns_timeout", err)
		}
		w.wantDials()
	})
}
