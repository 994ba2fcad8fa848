package dns_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	miekg "github.com/miekg/dns"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
)

// stream is a script over TCP: what it hears and says there has its length
// before it.
func stream(s script) script {
	return func(n int, frame []byte) (time.Duration, []byte) {
		after, b := s(n, frame[2:])
		if b == nil {
			return 0, nil
		}
		return after, framed(b)
	}
}

// spoofs replies with another ID.
func (f *fakeNet) spoofs(after time.Duration) script {
	return func(_ int, q []byte) (time.Duration, []byte) {
		return after, reply(f.t, q, func(m *miekg.Msg) { m.Id++ }, evil)
	}
}

// TestFallback holds the moment at which resolvers are asked over TCP, the
// number of their connections and the verdict to the rules. Three resolvers do
// the same over UDP, and the same over TCP; nil refuses connections.
func TestFallback(t *testing.T) {
	t.Parallel()
	const first, second, third = "1.1.1.1:53", "8.8.8.8:53", "9.9.9.10:53"
	f := &fakeNet{}
	says := func(after time.Duration, rcode int, records ...string) script {
		return func(n int, q []byte) (time.Duration, []byte) { return f.says(after, rcode, records...)(n, q) }
	}
	ok := func(after time.Duration) script { return says(after, miekg.RcodeSuccess, good) }
	spoofed := func(_ int, q []byte) (time.Duration, []byte) { return f.spoofs(10*ms)(0, q) }
	cut := func(after time.Duration) script {
		return func(_ int, q []byte) (time.Duration, []byte) { return after, reply(f.t, q, truncate) }
	}
	tcpSpoofed := func(_ int, q []byte) (time.Duration, []byte) { return f.spoofs(0)(0, q) }
	noEDNS := func(n int, q []byte) (time.Duration, []byte) {
		m := new(miekg.Msg)
		if err := m.Unpack(q); err == nil && m.IsEdns0() != nil {
			return says(10*ms, miekg.RcodeFormatError)(n, q)
		}
		return ok(10*ms)(n, q)
	}
	udp := []string{first + " at 0s", second + " at 200ms", third + " at 600ms"}
	silence := append(udp[:3:3], "tcp "+first+" at 2s", "tcp "+second+" at 2.2s", "tcp "+third+" at 2.6s")
	strays := []string{first + " at 0s", second + " at 200ms", "tcp " + first + " at 210ms", "tcp " + second + " at 410ms", third + " at 600ms", "tcp " + third + " at 810ms"}
	const whole = 8 * time.Second
	for _, c := range []struct {
		name     string
		udp, tcp script
		budget   time.Duration
		code     fault.Code
		rcode    string
		at       time.Duration
		dials    []string
	}{
		{"UDP works", ok(20 * ms), ok(0), whole, "", "NOERROR", 20 * ms, udp[:1]},
		{"UDP is slow", ok(1900 * ms), ok(0), whole, "", "NOERROR", 1900 * ms, udp},
		{"silent", mute, ok(20 * ms), whole, "", "NOERROR", 2020 * ms, silence[:4]},
		{"silent, TCP takes its time", mute, ok(time.Second), whole, "", "NOERROR", 3 * time.Second, silence},
		{"silent, half of a short budget", mute, ok(20 * ms), time.Second, "", "NOERROR", 495 * ms, []string{first + " at 0s", second + " at 200ms", "tcp " + first + " at 475ms"}},
		{"silent, EDNS refused", mute, noEDNS, whole, "", "NOERROR", 4020 * ms, nil},
		{"spoofed", spoofed, ok(20 * ms), whole, "", "NOERROR", 230 * ms, strays[:3]},
		{"spoofed, a short budget", spoofed, ok(20 * ms), 300 * ms, "", "NOERROR", 155 * ms, []string{first + " at 0s", "tcp " + first + " at 135ms"}},
		{"cut", cut(10 * ms), ok(20 * ms), whole, "", "NOERROR", 30 * ms, []string{first + " at 0s", "tcp " + first + " at 10ms"}},
		{"cut when TCP is under way", cut(2100 * ms), ok(150 * ms), whole, "", "NOERROR", 2150 * ms, silence[:4]},
		{"silent, NXDOMAIN over TCP", mute, says(20*ms, miekg.RcodeNameError), whole, fault.NXDomain, "", 2020 * ms, silence[:4]},
		{"silent, SERVFAIL over TCP", mute, says(20*ms, miekg.RcodeServerFailure), whole, "", "SERVFAIL", 2620 * ms, silence},
		{"silent, REFUSED over TCP", mute, says(20*ms, miekg.RcodeRefused), whole, fault.UpstreamUnavailable, "", 2620 * ms, silence},
		{"UDP after 5 s, TCP mute", ok(5 * time.Second), mute, whole, "", "NOERROR", 5 * time.Second, silence},
		{"UDP after 5 s, TCP refused", ok(5 * time.Second), nil, whole, "", "NOERROR", 5 * time.Second, silence},
		{"UDP after 5 s, TCP spoofed", ok(5 * time.Second), tcpSpoofed, whole, "", "NOERROR", 5 * time.Second, silence},
		{"dead on both", mute, mute, whole, fault.DNSTimeout, "", whole - 50*ms, silence},
		{"silent, TCP refused", mute, nil, whole, fault.DNSTimeout, "", whole - 50*ms, silence},
		{"spoofed, TCP mute", spoofed, mute, whole, fault.DNSTimeout, "", whole - 50*ms, strays},
		{"spoofed, TCP refused", spoofed, nil, whole, fault.DNSTimeout, "", whole - 50*ms, strays},
		{"spoofed on both", spoofed, tcpSpoofed, whole, fault.DNSTimeout, "", whole - 50*ms, strays},
		{"nobody there over UDP", nil, ok(0), whole, fault.UpstreamUnavailable, "", 0, []string{first + " at 0s", second + " at 0s", third + " at 0s"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				*f = fakeNet{t: t, scripts: map[string]script{}, begin: time.Now()}
				for _, server := range []string{first, second, third} {
					if c.udp != nil {
						f.scripts[server] = c.udp
					}
					if c.tcp != nil {
						f.scripts["tcp "+server] = stream(c.tcp)
					}
				}
				ctx, cancel := context.WithTimeout(t.Context(), c.budget)
				defer cancel()
				got, err := f.client(t).Lookup(ctx, dns.Query{Domain: "example.com", Type: "A"})
				if at := time.Since(f.begin); code(err) != c.code || got.Rcode != c.rcode || at != c.at {
					t.Errorf("got %+v, %v at %v, want %s %s at %v", got, err, at, c.code, c.rcode, c.at)
				}
				if c.rcode == "NOERROR" {
					wantAddress(t, got, err, "192.0.2.1")
				}
				f.check(c.dials)
			})
		})
	}
}

// TestFallbackSpares: the reply that is right behind a stray one is taken, and
// TCP is not asked.
func TestFallbackSpares(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fakeNet{t: t, begin: time.Now()}
		c := dns.New(dns.Config{Resolvers: []string{"1.1.1.1:53"}, Dial: func(context.Context, string, string) (net.Conn, error) {
			near, far := net.Pipe()
			f.dials = append(f.dials, "one")
			go func() {
				defer far.Close()
				buf := make([]byte, 4096)
				n, err := far.Read(buf)
				if err != nil {
					t.Errorf("fake resolver: %v", err)
					return
				}
				_, stray := f.spoofs(0)(0, buf[:n])
				far.Write(stray)
				time.Sleep(199 * ms) // in the bubble
				far.Write(reply(t, buf[:n], nil, good))
			}()
			return near, nil
		}})
		got, err := lookup(t, c, "A")
		wantAddress(t, got, err, "192.0.2.1")
		if at := time.Since(f.begin); at != 199*ms || len(f.dials) != 1 {
			t.Errorf("answered at %v with %d connections, want 199ms and one", at, len(f.dials))
		}
	})
}

// TestUDPMisbehaves: over UDP every resolver does the same wrong thing, and is
// honest over TCP: every lookup is answered, with a connection for each resolver
// at the most.
func TestUDPMisbehaves(t *testing.T) {
	t.Parallel()
	one := func(f func(q []byte) []byte) func([]byte) [][]byte {
		return func(q []byte) [][]byte { return [][]byte{f(q)} }
	}
	change := func(f func(*miekg.Msg)) func([]byte) [][]byte {
		return one(func(q []byte) []byte { return reply(t, q, f, evil) })
	}
	for name, overUDP := range map[string]func(q []byte) [][]byte{
		"silent":         nil,
		"blank":          one(func([]byte) []byte { return nil }),
		"garbage":        one(func(q []byte) []byte { return []byte(strings.Repeat("\xff", 600)) }),
		"garbage, ID":    one(func(q []byte) []byte { return append(q[:2:2], strings.Repeat("\x80", 600)...) }),
		"echo":           one(func(q []byte) []byte { return q }),
		"spoofed ID":     change(func(m *miekg.Msg) { m.Id++ }),
		"spoofed name":   change(func(m *miekg.Msg) { m.Question[0].Name = "example.net." }),
		"lower case":     change(func(m *miekg.Msg) { m.Question[0].Name = strings.ToLower(m.Question[0].Name) }),
		"spoofed type":   change(func(m *miekg.Msg) { m.Question[0].Qtype = miekg.TypeTXT }),
		"spoofed gone":   change(func(m *miekg.Msg) { m.Question, m.Rcode = nil, miekg.RcodeNameError }),
		"TC":             one(func(q []byte) []byte { return reply(t, q, truncate) }),
		"cut":            one(func(q []byte) []byte { b := reply(t, q, nil, evil); return b[:len(b)-3] }),
		"cut header":     one(func(q []byte) []byte { return reply(t, q, nil, evil)[:11] }),
		"spoofed, flood": func(q []byte) [][]byte { return slices.Repeat([][]byte{swapped(q)}, 500) },
		"spoofed, TC": func(q []byte) [][]byte {
			return [][]byte{reply(t, q, func(m *miekg.Msg) { m.Id++ }, evil), reply(t, q, truncate)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			servers := make([]string, 3)
			records := map[uint16]string{miekg.TypeA: good, miekg.TypeAAAA: "example.com. 60 IN AAAA 2001:db8::1", miekg.TypeNS: com}
			for i := range servers {
				servers[i] = raw(t, overUDP, one(func(q []byte) []byte {
					m := new(miekg.Msg)
					if err := m.Unpack(q); err != nil {
						t.Errorf("query: %v", err)
						return nil
					}
					return framed(reply(t, q, nil, records[m.Question[0].Qtype]))
				}))
			}
			var asking sync.WaitGroup
			for what, way := range ways {
				asking.Go(func() {
					var streams atomic.Int64
					c := dns.New(dns.Config{Resolvers: servers, HedgeDelay: 50 * ms, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
						if network == "tcp" {
							streams.Add(1)
						}
						return new(net.Dialer).DialContext(ctx, network, address)
					}})
					ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
					defer cancel()
					if err := way.ask(ctx, c); err != nil {
						t.Errorf("%s: %v", what, err)
					}
					if n, most := streams.Load(), int64(way.questions*len(servers)); n < 1 || n > most {
						t.Errorf("%s: %d connections over TCP, want 1 to %d", what, n, most)
					}
				})
			}
			asking.Wait()
		})
	}
}

// ways to ask a resolver that knows good and com.
var ways = map[string]struct {
	questions int
	ask       func(ctx context.Context, c *dns.Client) error
}{
	"lookup": {1, func(ctx context.Context, c *dns.Client) error {
		got, err := c.Lookup(ctx, dns.Query{Domain: "example.com", Type: "A"})
		if err == nil && (len(got.Records) != 1 || got.Records[0] != (dns.Address{Address: "192.0.2.1"})) {
			return fmt.Errorf("got %+v", got)
		}
		return err
	}},
	"addresses": {2, func(ctx context.Context, c *dns.Client) error {
		got, err := c.Addresses(ctx, "example.com")
		if err == nil && (len(got) == 0 || got[0].String() != "192.0.2.1") {
			return fmt.Errorf("got %v", got)
		}
		return err
	}},
	"probe": {1, func(ctx context.Context, c *dns.Client) error { return c.Probe(ctx) }},
}

// swapped is the header of a reply to a query with another ID.
func swapped(q []byte) []byte {
	b := binary.BigEndian.AppendUint16(nil, ^binary.BigEndian.Uint16(q))
	return append(b, 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0)
}

// TestBothTransportsDead: who is silent over UDP and says nothing of use over
// TCP has timed out at the deadline, as without TCP.
func TestBothTransportsDead(t *testing.T) {
	t.Parallel()
	for name, overTCP := range map[string]func(q []byte) [][]byte{
		"silent":  nil,
		"closes":  func([]byte) [][]byte { return [][]byte{} },
		"garbage": func([]byte) [][]byte { return [][]byte{[]byte("HTTP/1.1 400 Bad Request\r\n\r\n")} },
		"spoofed": func(q []byte) [][]byte {
			return [][]byte{framed(reply(t, q, func(m *miekg.Msg) { m.Id++ }, evil))}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := client(t, raw(t, nil, overTCP))
			ctx, cancel := context.WithTimeout(t.Context(), 300*ms)
			defer cancel()
			_, err := c.Lookup(ctx, dns.Query{Domain: "example.com", Type: "A"})
			if code(err) != fault.DNSTimeout || errors.Is(err, context.Canceled) {
				t.Errorf("%v, want dns_timeout", err)
			}
		})
	}
}
