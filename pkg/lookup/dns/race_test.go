package dns_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	miekg "github.com/miekg/dns"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
)

// script is what one fake resolver does with the nth datagram (from 0) that
// it gets: after a time it sends a reply, or nothing if reply is nil.
type script func(n int, query []byte) (after time.Duration, reply []byte)

// fakeNet connects the client to scripts over pipes, inside a synctest bubble.
// A resolver without a script refuses the connection. Scripts and dials over
// TCP have "tcp " before the address.
type fakeNet struct {
	t       *testing.T
	scripts map[string]script
	begin   time.Time

	near  atomic.Int64 // connections that the client has not closed
	mu    sync.Mutex
	dials []string // "1.1.1.1:53 at 200ms", "tcp 1.1.1.1:53 at 2s"
	far   int      // connections that the resolvers have not seen closed
}

func (f *fakeNet) dial(ctx context.Context, network, address string) (net.Conn, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if network == "tcp" {
		address = "tcp " + address
	}
	f.dials = append(f.dials, fmt.Sprintf("%s at %v", address, time.Since(f.begin)))
	s, ok := f.scripts[address]
	if !ok {
		return nil, &net.OpError{Op: "dial", Net: network, Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	}
	near, far := net.Pipe()
	f.near.Add(1)
	f.far++
	go f.serve(far, s)
	return &counted{Conn: near, open: &f.near}, nil
}

func (f *fakeNet) serve(conn net.Conn, s script) {
	defer func() {
		conn.Close()
		f.mu.Lock()
		f.far--
		f.mu.Unlock()
	}()
	queries := make(chan []byte)
	go func() {
		defer close(queries)
		for {
			buf := make([]byte, 4096)
			n, err := conn.Read(buf)
			if err != nil {
				if !errors.Is(err, io.EOF) {
					f.t.Errorf("fake resolver: %v", err)
				}
				return
			}
			queries <- buf[:n]
		}
	}()
	var ready <-chan time.Time
	var answer []byte
	for n := 0; ; {
		select {
		case q, ok := <-queries:
			if !ok {
				return
			}
			if after, b := s(n, q); b != nil && ready == nil {
				ready, answer = time.After(after), b
			}
			n++
		case <-ready:
			ready = nil
			conn.Write(answer) // fails when the client has lost interest
		}
	}
}

// The behaviours of the table below.
func (f *fakeNet) says(after time.Duration, rcode int, records ...string) script {
	return func(_ int, q []byte) (time.Duration, []byte) {
		return after, reply(f.t, q, func(m *miekg.Msg) { m.Rcode = rcode }, records...)
	}
}

func mute(int, []byte) (time.Duration, []byte) { return 0, nil }

const (
	ms      = time.Millisecond
	servers = "1.1.1.1:53,8.8.8.8:53,9.9.9.10:53"
)

// TestRace holds the order of questions, the moment of the verdict and the
// verdict to the rules, for three resolvers and a deadline of 8 s.
func TestRace(t *testing.T) {
	t.Parallel()
	type outcome struct {
		code     fault.Code
		rcode    string
		resolver string
		at       time.Duration
		dials    []string
	}
	const (
		first  = "1.1.1.1:53"
		second = "8.8.8.8:53"
		third  = "9.9.9.10:53"
		limit  = 8*time.Second - 50*ms
	)
	hedged := []string{first + " at 0s", second + " at 200ms", third + " at 600ms"}
	both := append(hedged[:3:3], "tcp "+first+" at 2s", "tcp "+second+" at 2.2s", "tcp "+third+" at 2.6s")
	f := &fakeNet{}
	ok := func(after time.Duration) script {
		return func(n int, q []byte) (time.Duration, []byte) {
			return f.says(after, miekg.RcodeSuccess, good)(n, q)
		}
	}
	says := func(after time.Duration, rcode int) script { return f.says(after, rcode) }
	fail, refuse, gone := miekg.RcodeServerFailure, miekg.RcodeRefused, miekg.RcodeNameError
	noerror := func(resolver string, at time.Duration, dials ...string) outcome {
		return outcome{rcode: "NOERROR", resolver: resolver, at: at, dials: dials}
	}
	for _, c := range []struct {
		name    string
		a, b, c script // nil refuses connections
		want    outcome
	}{
		{"the first answers", ok(20 * ms), mute, mute, noerror("1.1.1.1", 20*ms, hedged[:1]...)},
		{"the first is slow, the second answers", ok(300 * ms), ok(20 * ms), mute, noerror("8.8.8.8", 220*ms, hedged[:2]...)},
		{"the first is slow and still wins", ok(250 * ms), ok(100 * ms), mute, noerror("1.1.1.1", 250*ms, hedged[:2]...)},
		{"two are mute", mute, mute, ok(20 * ms), noerror("9.9.9.10", 620*ms, hedged...)},
		{"SERVFAIL goes on at once", says(20*ms, fail), ok(30 * ms), mute, noerror("8.8.8.8", 50*ms, first+" at 0s", second+" at 20ms")},
		{"REFUSED goes on at once", says(20*ms, refuse), says(10*ms, refuse), ok(5 * ms), noerror("9.9.9.10", 35*ms, first+" at 0s", second+" at 20ms", third+" at 30ms")},
		{"nobody there goes on at once", nil, nil, ok(5 * ms), noerror("9.9.9.10", 5*ms, first+" at 0s", second+" at 0s", third+" at 0s")},
		{"a late answer beats SERVFAIL", ok(5 * time.Second), says(10*ms, fail), says(10*ms, fail), noerror("1.1.1.1", 5*time.Second, first+" at 0s", second+" at 200ms", third+" at 210ms", "tcp "+first+" at 2s")},
		{"NXDOMAIN is final", says(20*ms, gone), ok(0), ok(0), outcome{code: fault.NXDomain, at: 20 * ms, dials: hedged[:1]}},
		{"SERVFAIL from all", says(10*ms, fail), says(20*ms, fail), says(30*ms, fail), outcome{rcode: "SERVFAIL", resolver: "1.1.1.1", at: 60 * ms}},
		{"SERVFAIL from those that are there", nil, says(20*ms, fail), nil, outcome{rcode: "SERVFAIL", resolver: "8.8.8.8", at: 20 * ms}},
		{"SERVFAIL and REFUSED", says(10*ms, refuse), says(20*ms, fail), says(30*ms, refuse), outcome{rcode: "SERVFAIL", resolver: "8.8.8.8", at: 60 * ms}},
		{"SERVFAIL and silence", mute, says(20*ms, fail), mute, outcome{rcode: "SERVFAIL", resolver: "8.8.8.8", at: limit}},
		{"SERVFAIL, silence and nobody there", nil, mute, says(20*ms, fail), outcome{rcode: "SERVFAIL", resolver: "9.9.9.10", at: limit}},
		{"REFUSED from all", says(10*ms, refuse), says(10*ms, refuse), says(10*ms, refuse), outcome{code: fault.UpstreamUnavailable, at: 30 * ms}},
		{"REFUSED and nobody there", says(10*ms, refuse), nil, nil, outcome{code: fault.UpstreamUnavailable, at: 10 * ms}},
		{"nobody there", nil, nil, nil, outcome{code: fault.UpstreamUnavailable, dials: []string{first + " at 0s", second + " at 0s", third + " at 0s"}}},
		{"silence", mute, mute, mute, outcome{code: fault.DNSTimeout, at: limit, dials: both}},
		{"silence and nobody there", nil, mute, nil, outcome{code: fault.DNSTimeout, at: limit}},
		{"silence and REFUSED", says(10*ms, refuse), mute, says(10*ms, refuse), outcome{code: fault.DNSTimeout, at: limit}},
		{"too late", ok(9 * time.Second), mute, mute, outcome{code: fault.DNSTimeout, at: limit, dials: both}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				*f = fakeNet{t: t, scripts: map[string]script{}, begin: time.Now()}
				for address, s := range map[string]script{first: c.a, second: c.b, third: c.c} {
					if s != nil {
						f.scripts[address] = s
					}
				}
				ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
				defer cancel()
				got, err := f.client(t).Lookup(ctx, dns.Query{Domain: "example.com", Type: "A"})
				at := time.Since(f.begin)
				if code(err) != c.want.code || got.Rcode != c.want.rcode || got.Resolver != c.want.resolver || at != c.want.at {
					t.Errorf("got %+v, %v at %v, want %+v", got, err, at, c.want)
				}
				if got.Rcode == "SERVFAIL" && (got.TTL != nil || got.Records == nil || len(got.Records) > 0) {
					t.Errorf("SERVFAIL came with %+v", got)
				}
				f.check(c.want.dials)
			})
		})
	}
}

func (f *fakeNet) client(t *testing.T) *dns.Client {
	t.Helper()
	list, err := dns.ParseResolvers(servers)
	if err != nil {
		t.Fatal(err)
	}
	return dns.New(dns.Config{Resolvers: list, Dial: f.dial})
}

// check compares the dials, if any are given. The client must have closed its
// connections by now, and the resolvers must see it.
func (f *fakeNet) check(dials []string) {
	f.t.Helper()
	if n := f.near.Load(); n != 0 {
		f.t.Errorf("%d connections were open when the lookup returned", n)
	}
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	if dials != nil && !slices.Equal(f.dials, dials) {
		f.t.Errorf("dialled %q, want %q", f.dials, dials)
	}
	if f.far != 0 {
		f.t.Errorf("%d connections were left open", f.far)
	}
}

// TestCancel: a cancelled lookup ends at that moment, whatever it waits for,
// and counts nothing that it has heard.
func TestCancel(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]func(f *fakeNet) script{
		"mute":     func(*fakeNet) script { return mute },
		"SERVFAIL": func(f *fakeNet) script { return f.says(10*ms, miekg.RcodeServerFailure) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fakeNet{t: t, begin: time.Now()}
				f.scripts = map[string]script{"1.1.1.1:53": s(f), "8.8.8.8:53": mute, "9.9.9.10:53": mute}
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(700*ms, cancel)
				_, err := f.client(t).Lookup(ctx, dns.Query{Domain: "example.com", Type: "A"})
				if code(err) != fault.DNSTimeout || !errors.Is(err, context.Canceled) || time.Since(f.begin) != 700*ms {
					t.Errorf("%v at %v, want dns_timeout at 700ms", err, time.Since(f.begin))
				}
				f.check(nil)
			})
		})
	}
}

// TestBudget: the verdict comes before the deadline, and without a deadline
// after the default of 8 s.
func TestBudget(t *testing.T) {
	t.Parallel()
	for deadline, want := range map[time.Duration]time.Duration{
		0:                       8 * time.Second,
		-time.Second:            0,
		100 * ms:                90 * ms,
		3 * time.Second:         2950 * ms,
		20 * time.Second:        20*time.Second - 50*ms,
		500 * time.Millisecond:  450 * ms,
		time.Nanosecond * 1_000: 900 * time.Nanosecond,
	} {
		synctest.Test(t, func(t *testing.T) {
			f := &fakeNet{t: t, begin: time.Now()}
			f.scripts = map[string]script{"1.1.1.1:53": mute, "8.8.8.8:53": mute, "9.9.9.10:53": mute}
			ctx, cancel := t.Context(), context.CancelFunc(func() {})
			if deadline != 0 {
				ctx, cancel = context.WithDeadline(ctx, time.Now().Add(deadline))
			}
			defer cancel()
			_, err := f.client(t).Lookup(ctx, dns.Query{Domain: "example.com", Type: "A"})
			if at := time.Since(f.begin); code(err) != fault.DNSTimeout || at != want {
				t.Errorf("deadline %v: %v at %v, want dns_timeout at %v", deadline, err, at, want)
			}
			f.check(nil)
		})
	}
}

// TestResend: a lost datagram is sent again after 2 s, the same one.
func TestResend(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fakeNet{t: t, begin: time.Now()}
		var lost []byte
		f.scripts = map[string]script{"1.1.1.1:53": func(n int, q []byte) (time.Duration, []byte) {
			if n == 0 {
				lost = slices.Clone(q)
				return 0, nil
			}
			if !slices.Equal(q, lost) {
				t.Errorf("sent again as %x, first as %x", q, lost)
			}
			return 10 * ms, reply(t, q, nil, good)
		}}
		got, err := f.client(t).Lookup(t.Context(), dns.Query{Domain: "example.com", Type: "A"})
		wantAddress(t, got, err, "192.0.2.1")
		if at := time.Since(f.begin); at != 2010*ms {
			t.Errorf("answered at %v, want 2.01s", at)
		}
		f.check([]string{"1.1.1.1:53 at 0s", "8.8.8.8:53 at 200ms", "9.9.9.10:53 at 200ms", "tcp 1.1.1.1:53 at 2s"})
	})
}

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
