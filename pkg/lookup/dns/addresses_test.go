package dns_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	miekg "github.com/miekg/dns"

	"github.com/hostfacts/hostfacts/pkg/guard"
	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

func TestAddresses(t *testing.T) {
	const a, aaaa = "@ 60 IN A 93.184.216.34", "@ 60 IN AAAA 2606:4700::1"
	servfail, nx, refused := rcode(miekg.RcodeServerFailure), missing(), rcode(miekg.RcodeRefused)
	yx := both(rcode(miekg.RcodeYXDomain), answer("com. 60 IN DNAME x.example."))
	none, referred, bare := answer(), refer(), rcode(miekg.RcodeNameError)
	type row struct {
		v4, v6 change
		want   string
		code   fault.Code
		is     error
		says   string
	}
	eachInBubble(t, map[string]row{
		"both":                         {v4: answer(a, "@ 60 IN A 10.0.0.1"), v6: answer(aaaa), want: "93.184.216.34 10.0.0.1 2606:4700::1"},
		"mapped stays mapped":          {v4: answer(a), v6: answer("@ 60 IN AAAA ::ffff:10.0.0.1"), want: "93.184.216.34 ::ffff:10.0.0.1"},
		"IPv4 only":                    {v4: answer(a), v6: none, want: "93.184.216.34"},
		"IPv6 only":                    {v4: none, v6: answer(aaaa), want: "2606:4700::1"},
		"IPv6 fails beside IPv4":       {v4: answer(a), v6: servfail, want: "93.184.216.34"},
		"IPv6 is denied beside IPv4":   {v4: answer(a), v6: nx, want: "93.184.216.34"},
		"IPv6 is referred beside IPv4": {v4: answer(a), v6: referred, want: "93.184.216.34"},
		"IPv4 fails beside IPv6":       {v4: servfail, v6: answer(aaaa), want: "2606:4700::1"},
		"alias": {v4: answer("@ 60 IN CNAME b.test.", "b.test. 60 IN A 93.184.216.34", "c.test. 60 IN A 8.8.8.8"), v6: none,
			want: "93.184.216.34"},
		"nxdomain":                 {v4: nx, v6: nx, code: lookup.NXDomain},
		"nxdomain behind an alias": {v4: both(rcode(miekg.RcodeNameError), answer("@ 60 IN CNAME b.test."), authority(". 60 IN SOA a. b. 1 2 3 4 5")), v6: nx, code: lookup.NXDomain, says: "alias"},
		"nxdomain, SERVFAIL":       {v4: servfail, v6: nx, code: lookup.NXDomain},
		"nxdomain, silence":        {v4: refused, v6: nx, code: lookup.NXDomain},
		"nxdomain, unproven":       {v4: bare, v6: bare, is: guard.ErrResolvers},
		"no data, unproven":        {v4: none, v6: bare, is: guard.ErrResolvers},
		"IPv6 only, unproven":      {v4: bare, v6: answer(aaaa), want: "2606:4700::1"},
		"yxdomain":                 {v4: yx, v6: yx, code: lookup.ConnectFailed, says: "YXDOMAIN"},
		"no data":                  {v4: none, v6: none, code: lookup.ConnectFailed, says: "without A and AAAA"},
		"no data, false nxdomain":  {v4: none, v6: nx, code: lookup.ConnectFailed, says: "without A and AAAA"},
		"SERVFAIL":                 {v4: servfail, v6: servfail, code: lookup.ConnectFailed, says: "SERVFAIL"},
		"no data, SERVFAIL":        {v4: none, v6: servfail, code: lookup.ConnectFailed, says: "SERVFAIL"},
		"SERVFAIL, refused":        {v4: servfail, v6: refused, code: lookup.ConnectFailed, says: "SERVFAIL"},
		"refused":                  {v4: refused, v6: refused, is: guard.ErrResolvers},
		"referred":                 {v4: referred, v6: referred, is: guard.ErrResolvers},
		"no data, refused":         {v4: none, v6: refused, is: guard.ErrResolvers},
	}, func(t *testing.T, c row) {
		got, err := newWorld(t, resolver(families(c.v4, c.v6))).client().Addresses(t.Context(), "example.com")
		if c.want != "" {
			if text := strings.Trim(fmt.Sprint(got), "[]"); text != c.want || err != nil {
				t.Errorf("%s, %v; want %s", text, err, c.want)
			}
			return
		}
		if err != nil && strings.Contains(err.Error(), "example.com") {
			t.Errorf("%v: errors are logged, and this one names what was asked about", err)
		}
		var f *fault.Error
		switch {
		case c.is != nil:
			if !errors.Is(err, c.is) || errors.As(err, &f) {
				t.Errorf("%v, want %v and no code", err, c.is)
			}
		case !errors.As(err, &f) || f.Code != c.code || !strings.Contains(f.Public(), c.says):
			t.Errorf("%v, want %s with %q", err, c.code, c.says)
		}
	})
}

// TestAddressesTime holds the grace, the deadline and the order of the two
// families to the rules, with a fake clock and one resolver.
func TestAddressesTime(t *testing.T) {
	const never = time.Hour
	type row struct {
		v4, v6 time.Duration
		want   string
		at     time.Duration
	}
	eachInBubble(t, map[string]row{
		"IPv6 before IPv4":     {v4: 300 * ms, v6: 100 * ms, want: "93.184.216.34 2606:4700::1", at: 300 * ms},
		"IPv6 in its grace":    {v4: 100 * ms, v6: 140 * ms, want: "93.184.216.34 2606:4700::1", at: 140 * ms},
		"IPv6 after its grace": {v4: 100 * ms, v6: 200 * ms, want: "93.184.216.34", at: 150 * ms},
		"IPv6 never":           {v4: 100 * ms, v6: never, want: "93.184.216.34", at: 150 * ms},
		"IPv4 never":           {v4: never, v6: 100 * ms, want: "2606:4700::1", at: 3950 * ms},
		"never":                {v4: never, v6: never, want: "", at: 3950 * ms},
	}, func(t *testing.T, c row) {
		w := newWorld(t, host{udp: eachFamily(c.v4, c.v6)})
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		defer cancel()
		got, err := w.client().Addresses(ctx, "example.com")
		w.at(c.at)
		if text := strings.Trim(fmt.Sprint(got), "[]"); text != c.want {
			t.Errorf("%s, %v; want %s", text, err, c.want)
		}
		if c.want == "" && !errors.Is(err, guard.ErrResolvers) {
			t.Errorf("%v, want ErrResolvers", err)
		}
	})
}

// eachFamily is a resolver that takes its time with each family.
func eachFamily(v4, v6 time.Duration) script {
	return func(n int, q []byte) []said {
		if unpacked(q).Question[0].Qtype == miekg.TypeAAAA {
			return after(v6, answer("@ 60 IN AAAA 2606:4700::1"))(n, q)
		}
		return after(v4, answer("@ 60 IN A 93.184.216.34"))(n, q)
	}
}

// TestShare: whatever the resolvers say, lookups that share ask each question once, and
// answer what they would have answered alone.
func TestShare(t *testing.T) {
	const aaaa, mx = "@ 60 IN AAAA 2606:4700::1", "@ 60 IN MX 10 mx.example.com."
	eachInBubble(t, map[string]change{
		"both families": answer(good, aaaa, mx),
		"behind alias":  both(missing(), families(answer("@ 60 IN CNAME b.test."), answer())),
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
		for range 2 {
			if got := ask(ctx); got != alone {
				t.Errorf("shared %s, alone %s", got, alone)
			}
		}
		once := []string{"example.com. A", "example.com. AAAA", "example.com. MX"}
		if asked := w.questions(); !slices.Equal(asked, once) {
			t.Errorf("asked %v, want %v", asked, once)
		}
		end()
		w.check()
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

// end stops what nobody waits for any more, and returns when it is gone. Nothing is
// shared with a lookup alone, another client or another name.
func TestShareEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, host{udp: mute})
		w.meddle = reluctantly
		cl := w.client()
		ctx, end := dns.Share(t.Context())
		hurried, cancel := context.WithTimeout(ctx, 20*ms)
		defer cancel()
		for _, cl := range []*dns.Client{cl, w.client()} {
			for _, name := range []string{"example.com", "www.example.com", "example.com"} {
				if _, err := cl.Lookup(hurried, dns.Query{Domain: name, Type: "A"}); code(err) != lookup.DNSTimeout {
					t.Errorf("%v, want dns_timeout", err)
				}
			}
		}
		if n := w.near.Load(); n != 4 {
			t.Errorf("%d questions went on for others, want 4", n)
		}
		ended := time.Now()
		end()
		if took := time.Since(ended); took != time.Second {
			t.Errorf("end took %v, want the second that connections take to close", took)
		}
		if _, err := cl.Lookup(ctx, query("A")); code(err) != lookup.DNSTimeout {
			t.Errorf("after the end: %v, want dns_timeout", err)
		}
		w.check()
	})
}
