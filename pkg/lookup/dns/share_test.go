package dns_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	miekg "github.com/miekg/dns"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
)

// oracle is a resolver in a synctest bubble that notes its questions. Time stands
// still there while anybody computes, so that neither a grace nor a resent
// question depends on the machine.
type oracle struct {
	t     *testing.T
	says  change
	mu    sync.Mutex
	asked []string
}

func (o *oracle) client() *dns.Client {
	return newFakeNet(o.t, map[string]script{first: o.script}).client(first)
}

func (o *oracle) script(_ int, query []byte) (time.Duration, []byte) {
	q := unpacked(query).Question[0]
	o.mu.Lock()
	defer o.mu.Unlock()
	o.asked = append(o.asked, strings.ToLower(q.Name)+" "+miekg.TypeToString[q.Qtype])
	return ms, reply(query, o.says)
}

// questions are those since the last call, sorted.
func (o *oracle) questions() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	out := slices.Sorted(slices.Values(o.asked))
	o.asked = nil
	return out
}

// conclusion is what a lookup came to.
type conclusion struct {
	Result  dns.Result
	Code    fault.Code
	Message string
}

func conclusionOf(r dns.Result, err error) conclusion {
	if err == nil {
		return conclusion{Result: r}
	}
	return conclusion{Code: fault.From(err).Code, Message: fault.From(err).Public()}
}

// Whatever the resolvers say, lookups that share ask each question once, and
// answer what they would have answered alone.
func TestShare(t *testing.T) {
	const aaaa, mx = "example.com. 60 IN AAAA 2606:4700::1", "example.com. 60 IN MX 10 mx.example.com."
	eachInBubble(t, map[string]change{
		"both families": answer(good, aaaa, mx),
		"IPv6 only":     answer(aaaa),
		"no data":       answer(),
		"nxdomain":      rcode(miekg.RcodeNameError),
		"behind alias":  both(rcode(miekg.RcodeNameError), families(answer("example.com. 60 IN CNAME b.test."), answer())),
		"SERVFAIL":      rcode(miekg.RcodeServerFailure),
		"REFUSED":       rcode(miekg.RcodeRefused),
		"IPv6 fails":    families(answer(good), rcode(miekg.RcodeServerFailure)),
	}, func(t *testing.T, says change) { sharesAsAlone(t, &oracle{t: t, says: says}) })
}

func sharesAsAlone(t *testing.T, o *oracle) {
	cl := o.client()
	types := []string{"A", "AAAA", "MX"}
	alone := make([]conclusion, len(types))
	for i, typ := range types {
		alone[i] = conclusionOf(lookup(t, cl, typ))
	}
	addrs, aloneErr := cl.Addresses(t.Context(), "example.com")
	o.questions()

	ctx, end := dns.Share(t.Context())
	var got [4][3]conclusion
	var all sync.WaitGroup
	for i := range got {
		for j, typ := range types {
			all.Go(func() { got[i][j] = conclusionOf(cl.Lookup(ctx, query(typ))) })
		}
		all.Go(func() {
			same, err := cl.Addresses(ctx, "example.com")
			if !slices.Equal(same, addrs) || (err == nil) != (aloneErr == nil) || err != nil && fault.From(err).Code != fault.From(aloneErr).Code {
				t.Errorf("%v, %v; alone %v, %v", same, err, addrs, aloneErr)
			}
		})
	}
	all.Wait()
	for i := range got {
		if diff := cmp.Diff(alone, got[i][:]); diff != "" {
			t.Errorf("alone and shared differ: %s", diff)
		}
	}
	once := []string{"example.com. A", "example.com. AAAA", "example.com. MX"}
	if asked := o.questions(); !slices.Equal(asked, once) {
		t.Errorf("asked %v, want %v", asked, once)
	}
	end()

	// Nothing is kept: neither the next bundle nor a lookup alone is answered
	// without a question.
	ctx, end = dns.Share(t.Context())
	defer end()
	cl.Lookup(ctx, query("A")) // the questions count
	lookup(t, cl, "A")
	if asked, want := o.questions(), []string{"example.com. A", "example.com. A"}; !slices.Equal(asked, want) {
		t.Errorf("then asked %v, want %v", asked, want)
	}
}

// Clients do not take each other's answers, nor names each other's.
func TestShareKeepsApart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := &oracle{t: t, says: answer()}
		ctx, end := dns.Share(t.Context())
		defer end()
		for range 2 {
			cl := o.client()
			for _, name := range []string{"example.com", "www.example.com", "example.com"} {
				if _, err := cl.Lookup(ctx, dns.Query{Domain: name, Type: "A"}); err != nil {
					t.Error(err)
				}
			}
		}
		want := []string{"example.com. A", "example.com. A", "www.example.com. A", "www.example.com. A"}
		if asked := o.questions(); !slices.Equal(asked, want) {
			t.Errorf("asked %v, want %v", asked, want)
		}
	})
}

// Who has less time judges by what is known then; the question goes on for who
// has more.
func TestShareDeadlines(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet(t, map[string]script{
			first: after(10*ms, rcode(miekg.RcodeServerFailure)), second: ok(3 * time.Second), third: mute,
		})
		cl := f.client(first, second, third)
		ctx, end := dns.Share(t.Context())
		var all sync.WaitGroup
		for _, c := range []struct {
			budget time.Duration
			want   outcome
		}{
			{5 * ms, failed(fault.DNSTimeout, 4500*time.Microsecond)},
			{time.Second, servfail("1.1.1.1", 950*ms)},
			{time.Minute, noerror("8.8.8.8", 3010*ms)},
		} {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(ctx, c.budget)
				defer cancel()
				r, err := cl.Lookup(ctx, query("A"))
				f.at(c.want.at)
				if code(err) != c.want.code || r.Rcode != c.want.rcode || r.Resolver != c.want.resolver {
					t.Errorf("with %s: %+v, %v; want %+v", c.budget, r, err, c.want)
				}
				if r.Rcode == "NOERROR" {
					wantGood(t, r, err)
				}
			})
		}
		all.Wait()
		end()
		// Each resolver once by each transport.
		f.check(first+" at 0s", second+" at 10ms", third+" at 410ms", "tcp "+second+" at 2.01s", "tcp "+third+" at 2.41s")
	})
}

// end stops what nobody waits for any more, and returns when it is gone.
func TestShareEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet(t, map[string]script{first: mute})
		var open atomic.Int64
		f.wrap = reluctantly(&open)
		cl := f.client(first)
		ctx, end := dns.Share(t.Context())
		hurried, cancel := context.WithTimeout(ctx, 20*ms)
		defer cancel()
		if _, err := cl.Lookup(hurried, query("A")); code(err) != fault.DNSTimeout {
			t.Errorf("%v, want dns_timeout", err)
		}
		if open.Load() != 1 {
			t.Error("the question did not go on for others")
		}
		begun := time.Now()
		end()
		if took := time.Since(begun); took != time.Second {
			t.Errorf("the end took %s: it waits for what it stops, and no longer", took)
		}
		if open.Load() != 0 {
			t.Error("a connection was open after the end")
		}
		if _, err := cl.Lookup(ctx, query("A")); code(err) != fault.DNSTimeout {
			t.Errorf("after the end: %v, want dns_timeout", err)
		}
	})
}
