package dns_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"

	miekg "github.com/miekg/dns"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
)

const (
	good = "example.com. 60 IN A 192.0.2.1"
	evil = "example.com. 60 IN A 192.0.2.66"
)

// wantAddress holds a result to one address.
func wantAddress(t *testing.T, got dns.Result, err error, address string) {
	t.Helper()
	if err != nil || len(got.Records) != 1 || got.Records[0] != (dns.Address{Address: address}) {
		t.Errorf("got %+v, %v, want %s", got, err, address)
	}
}

// TestStrayDatagrams: whatever is not the reply to our question is passed
// over, and the wait goes on for the one that is.
func TestStrayDatagrams(t *testing.T) {
	t.Parallel()
	change := func(f func(*miekg.Msg)) func([]byte) []byte {
		return func(q []byte) []byte { return reply(t, q, f, evil) }
	}
	for name, stray := range map[string]func(q []byte) []byte{
		"empty":             func(q []byte) []byte { return nil },
		"one byte":          func(q []byte) []byte { return q[:1] },
		"cut header":        func(q []byte) []byte { return reply(t, q, nil, evil)[:11] },
		"noise":             func(q []byte) []byte { return bytes.Repeat([]byte{0xff}, 600) },
		"noise with the ID": func(q []byte) []byte { return append(q[:2:2], bytes.Repeat([]byte{0x80}, 600)...) },
		"header and noise":  func(q []byte) []byte { return append(reply(t, q, nil)[:12], bytes.Repeat([]byte{0xc0}, 90)...) },
		"endless pointer":   func(q []byte) []byte { return append(reply(t, q, nil)[:12], 0xc0, 12, 0, 1, 0, 1) },
		"the query itself":  func(q []byte) []byte { return q },
		"wrong ID":          change(func(m *miekg.Msg) { m.Id++ }),
		"no QR":             change(func(m *miekg.Msg) { m.Response = false }),
		"opcode NOTIFY":     change(func(m *miekg.Msg) { m.Opcode = miekg.OpcodeNotify }),
		"other name":        change(func(m *miekg.Msg) { m.Question[0].Name = "example.net." }),
		"longer name":       change(func(m *miekg.Msg) { m.Question[0].Name = "www." + m.Question[0].Name }),
		"other case":        change(func(m *miekg.Msg) { m.Question[0].Name = swapCase(m.Question[0].Name) }),
		"other type":        change(func(m *miekg.Msg) { m.Question[0].Qtype = miekg.TypeAAAA }),
		"other class":       change(func(m *miekg.Msg) { m.Question[0].Qclass = miekg.ClassCHAOS }),
		"two questions":     change(func(m *miekg.Msg) { m.Question = append(m.Question, m.Question[0]) }),
		"two counted":       func(q []byte) []byte { b := reply(t, q, nil); b[5] = 2; return b },
		"no question":       change(func(m *miekg.Msg) { m.Question = nil }),
		"REFUSED, damaged": func(q []byte) []byte {
			b := reply(t, q, func(m *miekg.Msg) { m.Rcode, m.Question = miekg.RcodeRefused, nil }, evil)
			return b[:len(b)-1]
		},
		"NXDOMAIN, other":    change(func(m *miekg.Msg) { m.Rcode = miekg.RcodeNameError; m.Question[0].Name = "a." }),
		"bare NOERROR":       func(q []byte) []byte { return bare(t, q, miekg.RcodeSuccess) },
		"bare NXDOMAIN":      func(q []byte) []byte { return bare(t, q, miekg.RcodeNameError) },
		"SERVFAIL, other ID": change(func(m *miekg.Msg) { m.Id ^= 0x8000; m.Rcode = miekg.RcodeServerFailure }),
		"TC, other question": change(func(m *miekg.Msg) { m.Truncated = true; m.Question[0].Name = "a." }),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := raw(t, func(q []byte) [][]byte {
				s := stray(q)
				return [][]byte{s, s, reply(t, q, nil, good)}
			}, func(q []byte) [][]byte { return [][]byte{framed(reply(t, q, nil, evil))} })
			got, err := lookup(t, client(t, server), "A")
			wantAddress(t, got, err, "192.0.2.1")
		})
	}
}

// bare is a reply of just the header.
func bare(t *testing.T, q []byte, rcode int) []byte {
	return reply(t, q, func(m *miekg.Msg) { m.Rcode = rcode })[:12]
}

// swapCase changes the case of one letter.
func swapCase(s string) string {
	if s[0] >= 'a' {
		return strings.ToUpper(s[:1]) + s[1:]
	}
	return strings.ToLower(s[:1]) + s[1:]
}

// TestTCP: a reply that is cut over UDP is fetched over TCP from the same
// resolver.
func TestTCP(t *testing.T) {
	t.Parallel()
	for name, cut := range map[string]func(q []byte) []byte{
		"TC":                  func(q []byte) []byte { return reply(t, q, truncate) },
		"TC with some":        func(q []byte) []byte { return reply(t, q, truncate, evil) },
		"TC and damaged":      func(q []byte) []byte { b := reply(t, q, truncate, evil); return b[:len(b)-3] },
		"TC without question": func(q []byte) []byte { return reply(t, q, truncate)[:12] },
		"cut in a record":     func(q []byte) []byte { b := reply(t, q, nil, evil); return b[:len(b)-3] },
		"cut after header":    func(q []byte) []byte { b := reply(t, q, nil, evil); return b[:12+17] },
		"answers too many":    func(q []byte) []byte { b := reply(t, q, nil, evil); b[7] = 9; return b },
		"answers too few":     func(q []byte) []byte { b := reply(t, q, nil, evil); b[7] = 0; return b },
		"authority too many":  func(q []byte) []byte { b := reply(t, q, nil, evil); b[9] = 1; return b },
		"authority too few":   func(q []byte) []byte { b := reply(t, q, authority(t, evil)); b[9] = 0; return b },
		"additional too many": func(q []byte) []byte { b := reply(t, q, nil, evil); b[10] = 1; return b },
		"additional too few":  func(q []byte) []byte { b := reply(t, q, withEDNS, evil); b[11] = 0; return b },
		"one byte more":       func(q []byte) []byte { return append(reply(t, q, withEDNS, evil), 0) },
		"cut before the OPT": func(q []byte) []byte { // and so NOERROR, with the upper half of the rcode gone
			b := reply(t, q, func(m *miekg.Msg) { withEDNS(m); m.Rcode = miekg.RcodeBadVers })
			return b[:len(b)-11]
		},
		"cut by the buffer": func(q []byte) []byte {
			b := reply(t, q, nil, evil) // parses, and whatever follows is lost
			return append(b, make([]byte, 5000-len(b))...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := raw(t, func(q []byte) [][]byte { return [][]byte{cut(q)} },
				func(q []byte) [][]byte { return [][]byte{framed(reply(t, q, nil, good))} })
			got, err := lookup(t, client(t, server, dead(t)), "A")
			wantAddress(t, got, err, "192.0.2.1")
		})
	}
}

func truncate(m *miekg.Msg) { m.Truncated = true }
func withEDNS(m *miekg.Msg) { m.SetEdns0(1232, false) }

// authority puts records into the authority section.
func authority(t *testing.T, records ...string) func(*miekg.Msg) {
	return func(m *miekg.Msg) { m.Ns = parse(t, records...) }
}

// TestWhole: what a whole reply can hold beside the answer is not taken for
// damage.
func TestWhole(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*miekg.Msg){
		"EDNS": withEDNS,
		"padding": func(m *miekg.Msg) {
			withEDNS(m)
			m.IsEdns0().Option = []miekg.EDNS0{&miekg.EDNS0_PADDING{Padding: make([]byte, 400)}}
		},
		"TSIG":          func(m *miekg.Msg) { withEDNS(m); m.SetTsig("key.", miekg.HmacSHA256, 300, 1) },
		"unknown types": authority(t, `example.com. 60 IN TYPE65400 \# 4 01020304`, `example.com. 60 IN TYPE65401 \# 0`),
		"all sections": func(m *miekg.Msg) {
			m.Compress = true
			m.Ns = parse(t, "example.com. 60 IN NS a.example.com.", "example.com. 60 IN NS b.example.com.")
			m.Extra = parse(t, "a.example.com. 60 IN A 192.0.2.2", "b.example.com. 60 IN AAAA ::2")
			withEDNS(m)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := raw(t, func(q []byte) [][]byte { return [][]byte{reply(t, q, change, good)} },
				func([]byte) [][]byte { t.Error("asked over TCP"); return nil })
			got, err := lookup(t, client(t, server), "A")
			wantAddress(t, got, err, "192.0.2.1")
		})
	}
}

// TestTCPWhole reads a message of nearly 64 KiB that comes in small pieces.
func TestTCPWhole(t *testing.T) {
	t.Parallel()
	server := raw(t, func(q []byte) [][]byte { return [][]byte{reply(t, q, truncate)} },
		func(q []byte) [][]byte {
			b := framed(reply(t, q, func(m *miekg.Msg) {
				for range 250 {
					m.Answer = append(m.Answer, &miekg.TXT{
						Hdr: miekg.RR_Header{Name: "example.com.", Rrtype: miekg.TypeTXT, Class: miekg.ClassINET, Ttl: 7},
						Txt: []string{strings.Repeat("x", 230)},
					})
				}
			}))
			if len(b) < 60000 {
				t.Errorf("the message has only %d bytes", len(b))
			}
			var pieces [][]byte
			for len(b) > 1000 {
				pieces, b = append(pieces, b[:1000]), b[1000:]
			}
			return append(pieces, b)
		})
	got, err := lookup(t, client(t, server), "TXT")
	if err != nil || len(got.Records) != 250 || *got.TTL != 7 {
		t.Errorf("%d records, %v, want 250", len(got.Records), err)
	}
}

// TestTCPBad: a resolver whose TCP is no better is passed over; when it is the
// only one, the lookup says upstream_unavailable.
func TestTCPBad(t *testing.T) {
	t.Parallel()
	for name, stream := range map[string]func(q []byte) [][]byte{
		"closed":        func(q []byte) [][]byte { return nil },
		"half a length": func(q []byte) [][]byte { return [][]byte{{0}} },
		"empty frame":   func(q []byte) [][]byte { return [][]byte{{0, 0}} },
		"short frame":   func(q []byte) [][]byte { return [][]byte{{0xff, 0xff}, reply(t, q, nil, evil)} },
		"wrong ID":      func(q []byte) [][]byte { return [][]byte{framed(reply(t, q, func(m *miekg.Msg) { m.Id++ }, evil))} },
		"still TC":      func(q []byte) [][]byte { return [][]byte{framed(reply(t, q, truncate, evil))} },
		"damaged":       func(q []byte) [][]byte { b := reply(t, q, nil, evil); return [][]byte{framed(b[:len(b)-1])} },
		"one byte more": func(q []byte) [][]byte { return [][]byte{framed(append(reply(t, q, nil, evil), 0))} },
		"other question": func(q []byte) [][]byte {
			return [][]byte{framed(reply(t, q, func(m *miekg.Msg) { m.Question[0].Qtype = 2 }, evil))}
		},
		"not DNS": func(q []byte) [][]byte { return [][]byte{[]byte("HTTP/1.1 400 Bad Request\r\n\r\n")} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bad := raw(t, func(q []byte) [][]byte { return [][]byte{reply(t, q, truncate)} }, stream)
			_, err := lookup(t, client(t, bad), "A")
			if code(err) != fault.UpstreamUnavailable {
				t.Errorf("alone: %v, want upstream_unavailable", err)
			}
			got, err := lookup(t, client(t, bad, resolver(t, answer(t, good))), "A")
			wantAddress(t, got, err, "192.0.2.1")
		})
	}
}

// TestEDNS: the question offers 1232 bytes, and is asked once more without
// EDNS of a resolver that refuses it, over UDP or TCP.
func TestEDNS(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		change func(*miekg.Msg)
		bare   bool
		tcp    bool
	}{
		{name: "FORMERR", change: func(m *miekg.Msg) { m.Rcode = miekg.RcodeFormatError }},
		{name: "FORMERR, header only", change: func(m *miekg.Msg) { m.Rcode = miekg.RcodeFormatError }, bare: true},
		{name: "FORMERR without question", change: func(m *miekg.Msg) { m.Rcode, m.Question = miekg.RcodeFormatError, nil }},
		{name: "BADVERS", change: func(m *miekg.Msg) { m.SetEdns0(1232, false); m.Rcode = miekg.RcodeBadVers }},
		{name: "FORMERR over TCP", change: func(m *miekg.Msg) { m.Rcode = miekg.RcodeFormatError }, tcp: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			var sizes []uint16
			old := func(query []byte) []byte {
				q := new(miekg.Msg)
				if err := q.Unpack(query); err != nil {
					t.Errorf("query: %v", err)
				}
				mu.Lock()
				defer mu.Unlock()
				opt := q.IsEdns0()
				if opt == nil {
					sizes = append(sizes, 0)
					return reply(t, query, nil, good)
				}
				sizes = append(sizes, opt.UDPSize())
				b := reply(t, query, c.change)
				if c.bare {
					b = b[:12]
				}
				return b
			}
			overUDP := func(q []byte) [][]byte { return [][]byte{old(q)} }
			if c.tcp {
				overUDP = func(q []byte) [][]byte { return [][]byte{reply(t, q, truncate)} }
			}
			server := raw(t, overUDP, func(q []byte) [][]byte { return [][]byte{framed(old(q))} })
			got, err := lookup(t, client(t, server, dead(t)), "A")
			wantAddress(t, got, err, "192.0.2.1")
			mu.Lock()
			defer mu.Unlock()
			if fmt.Sprint(sizes) != "[1232 0]" {
				t.Errorf("EDNS sizes %v, want 1232 and then none", sizes)
			}
		})
	}
}

// TestRefusalsGoOn: what a resolver says of itself is no answer; the next one
// is asked at once. Once all have said so, the lookup is upstream_unavailable.
func TestRefusalsGoOn(t *testing.T) {
	t.Parallel()
	for name, h := range map[string]func(q []byte) []byte{
		"REFUSED": func(q []byte) []byte { return reply(t, q, func(m *miekg.Msg) { m.Rcode = miekg.RcodeRefused }, evil) },
		"NOTIMP": func(q []byte) []byte {
			return reply(t, q, func(m *miekg.Msg) { m.Rcode = miekg.RcodeNotImplemented }, evil)
		},
		"FORMERR": func(q []byte) []byte {
			return reply(t, q, func(m *miekg.Msg) { m.Rcode = miekg.RcodeFormatError }, evil)
		},
		"NOTAUTH":       func(q []byte) []byte { return reply(t, q, func(m *miekg.Msg) { m.Rcode = miekg.RcodeNotAuth }, evil) },
		"bare":          func(q []byte) []byte { return bare(t, q, miekg.RcodeRefused) },
		"bare SERVFAIL": func(q []byte) []byte { return bare(t, q, miekg.RcodeServerFailure) },
		"bare YXDOMAIN": func(q []byte) []byte { return bare(t, q, miekg.RcodeYXDomain) },
		"SERVFAIL without question": func(q []byte) []byte {
			return reply(t, q, func(m *miekg.Msg) { m.Rcode, m.Question = miekg.RcodeServerFailure, nil }, evil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			no := func(q []byte) [][]byte { return [][]byte{h(q)} }
			_, err := lookup(t, client(t, raw(t, no, nil), raw(t, no, nil), dead(t)), "A")
			if code(err) != fault.UpstreamUnavailable {
				t.Errorf("all: %v, want upstream_unavailable", err)
			}
			got, err := lookup(t, client(t, raw(t, no, nil), raw(t, no, nil), resolver(t, answer(t, good))), "A")
			wantAddress(t, got, err, "192.0.2.1")
		})
	}
}

// TestDialTimeout: a connection that times out by itself is silence.
func TestDialTimeout(t *testing.T) {
	t.Parallel()
	c := dns.New(dns.Config{
		Resolvers: []string{"127.0.0.1:53", "[::1]:53"},
		Dial: func(_ context.Context, network, _ string) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Net: network, Err: os.NewSyscallError("connect", syscall.ETIMEDOUT)}
		},
	})
	if _, err := lookup(t, c, "A"); code(err) != fault.DNSTimeout {
		t.Errorf("%v, want dns_timeout", err)
	}
}

// TestResolverAddress: the result shows the plain IP address.
func TestResolverAddress(t *testing.T) {
	t.Parallel()
	server := resolver(t, answer(t, good))
	for configured, want := range map[string]string{
		"8.8.8.8":            "8.8.8.8",
		"9.9.9.10:5353":      "9.9.9.10",
		"2620:FE:0::10":      "2620:fe::10",
		"[fe80::1%eth0]:53":  "fe80::1",
		"[::ffff:127.0.0.1]": "127.0.0.1",
	} {
		list, err := dns.ParseResolvers(configured)
		if err != nil {
			t.Fatal(err)
		}
		c := dns.New(dns.Config{Resolvers: list, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			if address != list[0] {
				t.Errorf("dialled %s, want %s", address, list[0])
			}
			return new(net.Dialer).DialContext(ctx, network, server)
		}})
		if got, err := lookup(t, c, "A"); err != nil || got.Resolver != want {
			t.Errorf("%s: resolver %q, %v, want %q", configured, got.Resolver, err, want)
		}
	}
}
