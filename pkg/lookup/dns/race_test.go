package dns_test

import (
	"context"
	"errors"
	"net"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	miekg "github.com/miekg/dns"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
)

// outcome is what a question to three resolvers comes to, and when.
type outcome struct {
	code     fault.Code
	rcode    string
	resolver string // empty: whoever
	at       time.Duration
	dials    []string // nil: not compared
}

// contest puts a question to three resolvers that follow scripts over UDP and
// TCP; nil refuses connections. Without a budget there is no deadline.
func contest(t *testing.T, udp, tcp [3]script, budget time.Duration, want outcome) {
	t.Helper()
	f := newFakeNet(t, map[string]script{})
	for i, address := range []string{first, second, third} {
		if udp[i] != nil {
			f.scripts[address] = udp[i]
		}
		if tcp[i] != nil {
			f.scripts["tcp "+address] = stream(tcp[i])
		}
	}
	ctx, cancel := t.Context(), context.CancelFunc(func() {})
	if budget != 0 {
		ctx, cancel = context.WithTimeout(ctx, budget)
	}
	defer cancel()
	got, err := f.client(first, second, third).Lookup(ctx, query("A"))
	f.at(want.at)
	if code(err) != want.code || got.Rcode != want.rcode || want.resolver != "" && got.Resolver != want.resolver {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	switch got.Rcode {
	case "NOERROR":
		wantGood(t, got, err)
	case "SERVFAIL":
		if got.TTL != nil || got.Records == nil || len(got.Records) > 0 {
			t.Errorf("SERVFAIL came with %+v", got)
		}
	}
	f.check(want.dials...)
}

// noerror is the answer of good.
func noerror(resolver string, at time.Duration, dials ...string) outcome {
	return outcome{rcode: "NOERROR", resolver: resolver, at: at, dials: dials}
}

func servfail(resolver string, at time.Duration, dials ...string) outcome {
	return outcome{rcode: "SERVFAIL", resolver: resolver, at: at, dials: dials}
}

func failed(code fault.Code, at time.Duration, dials ...string) outcome {
	return outcome{code: code, at: at, dials: dials}
}

const (
	// whole is the budget of most races, and limit where their verdict is due.
	whole = 8 * time.Second
	limit = whole - 50*ms
)

// The dials to resolvers of which none fails, by the time that they are silent.
func hedged() []string { return []string{first + " at 0s", second + " at 200ms", third + " at 600ms"} }

func silence() []string {
	return append(hedged(), "tcp "+first+" at 2s", "tcp "+second+" at 2.2s", "tcp "+third+" at 2.6s")
}

// TestRace holds the order of questions, the moment of the verdict and the
// verdict to the rules, for three resolvers that refuse TCP.
func TestRace(t *testing.T) {
	fail := func(d time.Duration) script { return after(d, rcode(miekg.RcodeServerFailure)) }
	refuse := func(d time.Duration) script { return after(d, rcode(miekg.RcodeRefused)) }
	gone := after(20*ms, rcode(miekg.RcodeNameError))
	atOnce := []string{first + " at 0s", second + " at 0s", third + " at 0s"}
	type row struct {
		udp  [3]script
		want outcome
	}
	eachInBubble(t, map[string]row{
		"the first answers": {[3]script{ok(20 * ms), mute, mute}, noerror("1.1.1.1", 20*ms, hedged()[:1]...)},
		"the first is slow, the second answers": {[3]script{ok(300 * ms), ok(20 * ms), mute},
			noerror("8.8.8.8", 220*ms, hedged()[:2]...)},
		"the first is slow and still wins": {[3]script{ok(250 * ms), ok(100 * ms), mute},
			noerror("1.1.1.1", 250*ms, hedged()[:2]...)},
		"two are mute": {[3]script{mute, mute, ok(20 * ms)}, noerror("9.9.9.10", 620*ms, hedged()...)},
		"SERVFAIL goes on at once": {[3]script{fail(20 * ms), ok(30 * ms), mute},
			noerror("8.8.8.8", 50*ms, first+" at 0s", second+" at 20ms")},
		"REFUSED goes on at once": {[3]script{refuse(20 * ms), refuse(10 * ms), ok(5 * ms)},
			noerror("9.9.9.10", 35*ms, first+" at 0s", second+" at 20ms", third+" at 30ms")},
		"nobody there goes on at once": {[3]script{nil, nil, ok(5 * ms)}, noerror("9.9.9.10", 5*ms, atOnce...)},
		"a late answer beats SERVFAIL": {[3]script{ok(5 * time.Second), fail(10 * ms), fail(10 * ms)},
			noerror("1.1.1.1", 5*time.Second, first+" at 0s", second+" at 200ms", third+" at 210ms", "tcp "+first+" at 2s")},
		"NXDOMAIN is final":                  {[3]script{gone, ok(0), ok(0)}, failed(fault.NXDomain, 20*ms, hedged()[:1]...)},
		"SERVFAIL from all":                  {[3]script{fail(10 * ms), fail(20 * ms), fail(30 * ms)}, servfail("1.1.1.1", 60*ms)},
		"SERVFAIL from those that are there": {[3]script{nil, fail(20 * ms), nil}, servfail("8.8.8.8", 20*ms)},
		"SERVFAIL and REFUSED":               {[3]script{refuse(10 * ms), fail(20 * ms), refuse(30 * ms)}, servfail("8.8.8.8", 60*ms)},
		"SERVFAIL and silence":               {[3]script{mute, fail(20 * ms), mute}, servfail("8.8.8.8", limit)},
		"SERVFAIL, silence and nobody there": {[3]script{nil, mute, fail(20 * ms)}, servfail("9.9.9.10", limit)},
		"REFUSED from all": {[3]script{refuse(10 * ms), refuse(10 * ms), refuse(10 * ms)},
			failed(fault.UpstreamUnavailable, 30*ms)},
		"REFUSED and nobody there": {[3]script{refuse(10 * ms), nil, nil}, failed(fault.UpstreamUnavailable, 10*ms)},
		"nobody there":             {[3]script{}, failed(fault.UpstreamUnavailable, 0, atOnce...)},
		"silence":                  {[3]script{mute, mute, mute}, failed(fault.DNSTimeout, limit, silence()...)},
		"silence and nobody there": {[3]script{nil, mute, nil}, failed(fault.DNSTimeout, limit)},
		"silence and REFUSED":      {[3]script{refuse(10 * ms), mute, refuse(10 * ms)}, failed(fault.DNSTimeout, limit)},
		"too late":                 {[3]script{ok(9 * time.Second), mute, mute}, failed(fault.DNSTimeout, limit, silence()...)},
	}, func(t *testing.T, c row) { contest(t, c.udp, [3]script{}, whole, c.want) })
}

// TestFallback holds the moment at which resolvers are asked over TCP, the
// number of their connections and the verdict to the rules. Three resolvers do
// the same over UDP, and the same over TCP.
func TestFallback(t *testing.T) {
	const late = 5 * time.Second
	spoofed := after(10*ms, otherID, answer(evil))
	cut := func(d time.Duration) script { return after(d, truncate) }
	noEDNS := func(n int, q []byte) (time.Duration, []byte) {
		if unpacked(q).IsEdns0() != nil {
			return after(10*ms, rcode(miekg.RcodeFormatError))(n, q)
		}
		return ok(10*ms)(n, q)
	}
	strays := []string{
		first + " at 0s", second + " at 200ms", "tcp " + first + " at 210ms", "tcp " + second + " at 410ms",
		third + " at 600ms", "tcp " + third + " at 810ms",
	}
	half := []string{first + " at 0s", second + " at 200ms", "tcp " + first + " at 475ms"}
	type row struct {
		udp, tcp script
		budget   time.Duration // 0: none
		want     outcome
	}
	eachInBubble(t, map[string]row{
		"UDP works":                      {ok(20 * ms), ok(0), whole, noerror("", 20*ms, hedged()[:1]...)},
		"UDP is slow":                    {ok(1900 * ms), ok(0), whole, noerror("", 1900*ms, hedged()...)},
		"silent":                         {mute, ok(20 * ms), whole, noerror("", 2020*ms, silence()[:4]...)},
		"silent, TCP takes its time":     {mute, ok(time.Second), whole, noerror("", 3*time.Second, silence()...)},
		"silent, half of a short budget": {mute, ok(20 * ms), time.Second, noerror("", 495*ms, half...)},
		"silent, EDNS refused":           {mute, noEDNS, whole, noerror("", 4020*ms)},
		"spoofed":                        {spoofed, ok(20 * ms), whole, noerror("", 230*ms, strays[:3]...)},
		"spoofed, a short budget": {spoofed, ok(20 * ms), 300 * ms,
			noerror("", 155*ms, first+" at 0s", "tcp "+first+" at 135ms")},
		"cut":                       {cut(10 * ms), ok(20 * ms), whole, noerror("", 30*ms, first+" at 0s", "tcp "+first+" at 10ms")},
		"cut when TCP is under way": {cut(2100 * ms), ok(150 * ms), whole, noerror("", 2150*ms, silence()[:4]...)},
		"silent, NXDOMAIN over TCP": {mute, after(20*ms, rcode(miekg.RcodeNameError)), whole,
			failed(fault.NXDomain, 2020*ms, silence()[:4]...)},
		"silent, SERVFAIL over TCP": {mute, after(20*ms, rcode(miekg.RcodeServerFailure)), whole,
			servfail("", 2620*ms, silence()...)},
		"silent, REFUSED over TCP": {mute, after(20*ms, rcode(miekg.RcodeRefused)), whole,
			failed(fault.UpstreamUnavailable, 2620*ms, silence()...)},
		"UDP after 5 s, TCP mute":    {ok(late), mute, whole, noerror("", late, silence()...)},
		"UDP after 5 s, TCP refused": {ok(late), nil, whole, noerror("", late, silence()...)},
		"UDP after 5 s, TCP spoofed": {ok(late), spoofed, whole, noerror("", late, silence()...)},
		"dead on both":               {mute, mute, whole, failed(fault.DNSTimeout, limit, silence()...)},
		"silent, TCP refused":        {mute, nil, whole, failed(fault.DNSTimeout, limit, silence()...)},
		"spoofed, TCP mute":          {spoofed, mute, whole, failed(fault.DNSTimeout, limit, strays...)},
		"spoofed, TCP refused":       {spoofed, nil, whole, failed(fault.DNSTimeout, limit, strays...)},
		"spoofed on both":            {spoofed, spoofed, whole, failed(fault.DNSTimeout, limit, strays...)},
		"nobody there over UDP": {nil, ok(0), whole,
			failed(fault.UpstreamUnavailable, 0, first+" at 0s", second+" at 0s", third+" at 0s")},
		// The verdict comes before the deadline, and without one after 8 s.
		"a deadline that is over":     {mute, mute, -time.Second, failed(fault.DNSTimeout, 0)},
		"a deadline in a microsecond": {mute, mute, time.Microsecond, failed(fault.DNSTimeout, 900*time.Nanosecond)},
		"a deadline in 100 ms":        {mute, mute, 100 * ms, failed(fault.DNSTimeout, 90*ms)},
		"a deadline in 500 ms":        {mute, mute, 500 * ms, failed(fault.DNSTimeout, 450*ms)},
		"a deadline in 3 s":           {mute, mute, 3 * time.Second, failed(fault.DNSTimeout, 2950*ms)},
		"a deadline in 20 s":          {mute, mute, 20 * time.Second, failed(fault.DNSTimeout, 20*time.Second-50*ms)},
		"no deadline":                 {mute, mute, 0, failed(fault.DNSTimeout, 8*time.Second)},
	}, func(t *testing.T, c row) {
		contest(t, [3]script{c.udp, c.udp, c.udp}, [3]script{c.tcp, c.tcp, c.tcp}, c.budget, c.want)
	})
}

// TestFallbackOfEveryWay: who is asked in vain over UDP is asked over TCP,
// whatever for.
func TestFallbackOfEveryWay(t *testing.T) {
	udp := map[string]script{"silent": mute, "spoofed": after(0, otherID), "cut": after(0, truncate)}
	eachInBubble(t, udp, func(t *testing.T, udp script) {
		for name, ask := range ways {
			f := newFakeNet(t, map[string]script{first: udp, "tcp " + first: stream(after(0, answer(good, com)))})
			if err := ask(t.Context(), f.client(first)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			f.check()
		}
	})
}

// TestCancel: a cancelled lookup ends at that moment, whatever it waits for,
// and counts nothing that it has heard.
func TestCancel(t *testing.T) {
	scripts := map[string]script{"mute": mute, "SERVFAIL": after(10*ms, rcode(miekg.RcodeServerFailure))}
	eachInBubble(t, scripts, func(t *testing.T, s script) {
		f := newFakeNet(t, map[string]script{first: s, second: mute, third: mute})
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(700*ms, cancel)
		_, err := f.client(first, second, third).Lookup(ctx, query("A"))
		f.at(700 * ms)
		if code(err) != fault.DNSTimeout || !errors.Is(err, context.Canceled) {
			t.Errorf("%v, want dns_timeout", err)
		}
		f.check()
	})
}

// TestResend: a lost datagram is sent again after 2 s, the same one.
func TestResend(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var lost []byte
		f := newFakeNet(t, map[string]script{first: func(n int, q []byte) (time.Duration, []byte) {
			if n == 0 {
				lost = slices.Clone(q)
				return 0, nil
			}
			if !slices.Equal(q, lost) {
				t.Errorf("sent again as %x, first as %x", q, lost)
			}
			return ok(10*ms)(n, q)
		}})
		got, err := f.client(first, second, third).Lookup(t.Context(), query("A"))
		f.at(2010 * ms)
		wantGood(t, got, err)
		f.check(first+" at 0s", second+" at 200ms", third+" at 200ms", "tcp "+first+" at 2s")
	})
}

// TestBrokenSocket: a socket that cannot be read from is passed over at once.
func TestBrokenSocket(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet(t, map[string]script{first: ok(0), second: ok(5 * ms)})
		f.wrap = func(_, address string, c net.Conn) net.Conn {
			if address == first {
				return unreadable{c}
			}
			return c
		}
		got, err := f.client(first, second).Lookup(t.Context(), query("A"))
		f.at(5 * ms)
		wantGood(t, got, err)
		f.check(first+" at 0s", second+" at 0s")
	})
}

type unreadable struct{ net.Conn }

func (unreadable) SetReadDeadline(time.Time) error { return net.ErrClosed }

// TestFallbackSpares: the reply that is right behind stray ones, however many, is
// taken, and TCP is not asked.
func TestFallbackSpares(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet(t, nil)
		dials := 0
		c := dns.New(dns.Config{Resolvers: []string{first}, Dial: func(context.Context, string, string) (net.Conn, error) {
			near, far := net.Pipe()
			dials++
			go func() {
				defer far.Close()
				buf := make([]byte, 4096)
				n, err := far.Read(buf)
				if err != nil {
					t.Errorf("fake resolver: %v", err)
					return
				}
				for range 500 {
					far.Write(reply(buf[:n], otherID, answer(evil)))
				}
				time.Sleep(199 * ms) // in the bubble
				far.Write(reply(buf[:n], answer(good)))
			}()
			return near, nil
		}})
		got, err := lookup(t, c, "A")
		f.at(199 * ms)
		wantGood(t, got, err)
		if dials != 1 {
			t.Errorf("%d connections, want one", dials)
		}
	})
}

// TestNoLeak counts goroutines around many lookups that win, lose, fall back
// to TCP, time out and are cancelled. It is not parallel, so that nothing else
// runs.
func TestNoLeak(t *testing.T) {
	winner, failing := resolver(t, answer(good)), resolver(t, rcode(miekg.RcodeServerFailure))
	muteUDP, muteTCP := server(t, nil, nil), server(t, says(truncate), nil)
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
			c.Lookup(ctx, query("A")) // any outcome will do
			cancel()
		}
		// The servers' own goroutines take a moment to end.
		end := time.Now().Add(time.Minute)
		for runtime.NumGoroutine() > before && time.Now().Before(end) {
			runtime.Gosched()
		}
		if n := runtime.NumGoroutine(); n > before {
			stacks := make([]byte, 1<<16)
			t.Errorf("%s: %d goroutines before, %d after\n%s", name, before, n, stacks[:runtime.Stack(stacks, true)])
		}
	}
}

// ways to ask a resolver.
var ways = map[string]func(ctx context.Context, c *dns.Client) error{
	"lookup": func(ctx context.Context, c *dns.Client) error {
		_, err := c.Lookup(ctx, query("A"))
		return err
	},
	"addresses": func(ctx context.Context, c *dns.Client) error {
		_, err := c.Addresses(ctx, "example.com")
		return err
	},
	"probe": func(ctx context.Context, c *dns.Client) error { return c.Probe(ctx) },
}

// TestReturnsAfterClose: a lookup returns when all that it opened is closed,
// not when it only cannot be read from any more.
func TestReturnsAfterClose(t *testing.T) {
	eachInBubble(t, ways, func(t *testing.T, ask func(context.Context, *dns.Client) error) {
		f := newFakeNet(t, map[string]script{first: mute, "tcp " + first: mute})
		var open atomic.Int64
		f.wrap = reluctantly(&open)
		ctx, cancel := context.WithTimeout(t.Context(), 100*ms)
		defer cancel()
		err := ask(ctx, f.client(first))
		if n := open.Load(); n != 0 || err == nil {
			t.Errorf("returned with %d connections open, %v", n, err)
		}
	})
}
