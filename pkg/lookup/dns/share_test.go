package dns_test

import (
	"context"
	"net"
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

// oracle is a resolver behind pipes, in a synctest bubble, that notes its
// questions. Time stands still there while anybody computes, so that neither a
// grace nor a resent question depends on the machine.
type oracle struct {
	t     *testing.T
	says  func(qtype uint16) (rcode int, records []string)
	mu    sync.Mutex
	asked []string
}

func (o *oracle) client() *dns.Client {
	f := &fakeNet{t: o.t, begin: time.Now(), scripts: map[string]script{"1.1.1.1:53": o.script}}
	return dns.New(dns.Config{Resolvers: []string{"1.1.1.1:53"}, Dial: f.dial})
}

func (o *oracle) script(_ int, query []byte) (time.Duration, []byte) {
	q := new(miekg.Msg)
	if err := q.Unpack(query); err != nil {
		o.t.Errorf("query: %v", err)
		return 0, nil
	}
	o.mu.Lock()
	o.asked = append(o.asked, strings.ToLower(q.Question[0].Name)+" "+miekg.TypeToString[q.Question[0].Qtype])
	o.mu.Unlock()
	code, records := o.says(q.Question[0].Qtype)
	return ms, reply(o.t, query, func(m *miekg.Msg) { m.Rcode = code }, records...)
}

// questions are those since the last call, sorted.
func (o *oracle) questions() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	out := slices.Sorted(slices.Values(o.asked))
	o.asked = nil
	return out
}

// zone answers with records by type.
func zone(code int, records map[uint16]string) func(uint16) (int, []string) {
	return func(qtype uint16) (int, []string) {
		if r, ok := records[qtype]; ok {
			return code, []string{r}
		}
		return code, nil
	}
}

// outcome is what a lookup came to.
type outcome struct {
	Result  dns.Result
	Code    fault.Code
	Message string
}

func outcomeOf(r dns.Result, err error) outcome {
	if err == nil {
		return outcome{Result: r}
	}
	return outcome{Code: fault.From(err).Code, Message: fault.From(err).Public()}
}

// Whatever the resolvers say, lookups that share ask each question once, and
// answer what they would have answered alone.
func TestShare(t *testing.T) {
	t.Parallel()
	const aaaa, mx = "example.com. 60 IN AAAA 2606:4700::1", "example.com. 60 IN MX 10 mx.example.com."
	for name, says := range map[string]func(uint16) (int, []string){
		"both families": zone(miekg.RcodeSuccess, map[uint16]string{miekg.TypeA: good, miekg.TypeAAAA: aaaa, miekg.TypeMX: mx}),
		"IPv6 only":     zone(miekg.RcodeSuccess, map[uint16]string{miekg.TypeAAAA: aaaa}),
		"no data":       zone(miekg.RcodeSuccess, nil),
		"nxdomain":      zone(miekg.RcodeNameError, nil),
		"behind alias":  zone(miekg.RcodeNameError, map[uint16]string{miekg.TypeA: "example.com. 60 IN CNAME b.test."}),
		"SERVFAIL":      zone(miekg.RcodeServerFailure, nil),
		"REFUSED":       zone(miekg.RcodeRefused, nil),
		"IPv6 fails": func(qtype uint16) (int, []string) {
			if qtype == miekg.TypeAAAA {
				return miekg.RcodeServerFailure, nil
			}
			return miekg.RcodeSuccess, []string{good}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { sharesAsAlone(t, &oracle{t: t, says: says}) })
		})
	}
}

func sharesAsAlone(t *testing.T, o *oracle) {
	cl := o.client()
	types := []string{"A", "AAAA", "MX"}
	alone := make([]outcome, len(types))
	for i, typ := range types {
		alone[i] = outcomeOf(lookup(t, cl, typ))
	}
	addrs, aloneErr := cl.Addresses(t.Context(), "example.com")
	o.questions()

	ctx, end := dns.Share(t.Context())
	var got [4][3]outcome
	var all sync.WaitGroup
	for i := range got {
		for j, typ := range types {
			all.Go(func() { got[i][j] = outcomeOf(cl.Lookup(ctx, dns.Query{Domain: "example.com", Type: typ})) })
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
	cl.Lookup(ctx, dns.Query{Domain: "example.com", Type: "A"}) // the questions count
	lookup(t, cl, "A")
	if asked, want := o.questions(), []string{"example.com. A", "example.com. A"}; !slices.Equal(asked, want) {
		t.Errorf("then asked %v, want %v", asked, want)
	}
}

// Clients do not take each other's answers, nor names each other's.
func TestShareKeepsApart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := &oracle{t: t, says: zone(miekg.RcodeSuccess, nil)}
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
		f := &fakeNet{t: t, begin: time.Now()}
		f.scripts = map[string]script{
			"1.1.1.1:53": f.says(10*ms, miekg.RcodeServerFailure),
			"8.8.8.8:53": f.says(3*time.Second, miekg.RcodeSuccess, good),
			"9.9.9.9:53": mute,
		}
		cl := dns.New(dns.Config{Resolvers: []string{"1.1.1.1:53", "8.8.8.8:53", "9.9.9.9:53"}, Dial: f.dial})
		ctx, end := dns.Share(t.Context())
		ask := func(budget time.Duration) (dns.Result, time.Duration, error) {
			ctx, cancel := context.WithTimeout(ctx, budget)
			defer cancel()
			r, err := cl.Lookup(ctx, dns.Query{Domain: "example.com", Type: "A"})
			return r, time.Since(f.begin), err
		}
		var all sync.WaitGroup
		all.Go(func() {
			if r, at, err := ask(5 * ms); fault.From(err).Code != fault.DNSTimeout || at != 4500*time.Microsecond {
				t.Errorf("before anybody answered: %+v, %v after %s; want dns_timeout", r, err, at)
			}
		})
		all.Go(func() {
			if r, at, err := ask(time.Second); err != nil || r.Rcode != "SERVFAIL" || at != 950*ms {
				t.Errorf("with a second: %+v, %v after %s; want SERVFAIL", r, err, at)
			}
		})
		all.Go(func() {
			if r, at, err := ask(time.Minute); err != nil || len(r.Records) != 1 || r.Resolver != "8.8.8.8" || at != 3010*ms {
				t.Errorf("with a minute: %+v, %v after %s; want a record", r, err, at)
			}
		})
		all.Wait()
		end()
		synctest.Wait()
		if n := f.near.Load(); n != 0 {
			t.Errorf("%d connections were left open", n)
		}
		want := []string{"1.1.1.1:53 at 0s", "8.8.8.8:53 at 10ms", "9.9.9.9:53 at 410ms", "tcp 8.8.8.8:53 at 2.01s", "tcp 9.9.9.9:53 at 2.41s"}
		if !slices.Equal(f.dials, want) {
			t.Errorf("dialled %q, want each resolver once by each transport: %q", f.dials, want)
		}
	})
}

// end stops what nobody waits for any more, and returns when it is gone.
func TestShareEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fakeNet{t: t, begin: time.Now(), scripts: map[string]script{"1.1.1.1:53": mute}}
		var open atomic.Int64
		cl := dns.New(dns.Config{Resolvers: []string{"1.1.1.1:53"}, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := f.dial(ctx, network, address)
			open.Add(1)
			return &reluctant{Conn: conn, open: &open}, err
		}})
		ctx, end := dns.Share(t.Context())
		hurried, cancel := context.WithTimeout(ctx, 20*ms)
		defer cancel()
		if _, err := cl.Lookup(hurried, dns.Query{Domain: "example.com", Type: "A"}); fault.From(err).Code != fault.DNSTimeout {
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
		if _, err := cl.Lookup(ctx, dns.Query{Domain: "example.com", Type: "A"}); fault.From(err).Code != fault.DNSTimeout {
			t.Errorf("after the end: %v, want dns_timeout", err)
		}
	})
}

// reluctant takes a second to close, though nobody can read from it any more.
type reluctant struct {
	net.Conn
	open *atomic.Int64
	once sync.Once
}

func (c *reluctant) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() {
		time.Sleep(time.Second) // in the bubble
		c.open.Add(-1)
	})
	return err
}
