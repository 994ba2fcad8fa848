package dns_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	miekg "github.com/miekg/dns"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
	"github.com/hostfacts/hostfacts/pkg/origin/origintest"
)

// TestStrayDatagrams: whatever is not the reply to our question is passed
// over, and the wait goes on for the one that is.
func TestStrayDatagrams(t *testing.T) {
	one := func(changes ...change) func([]byte) []byte {
		return func(q []byte) []byte { return reply(q, append(changes, answer(evil))...) }
	}
	noise := func(b byte, n int) []byte { return bytes.Repeat([]byte{b}, n) }
	name := func(f func(string) string) change {
		return func(m *miekg.Msg) { m.Question[0].Name = f(m.Question[0].Name) }
	}
	other := name(func(string) string { return "a." })
	origintest.Each(t, map[string]func(q []byte) []byte{
		"empty":             func([]byte) []byte { return nil },
		"one byte":          func(q []byte) []byte { return q[:1] },
		"cut header":        func(q []byte) []byte { return reply(q, answer(evil))[:11] },
		"noise":             func([]byte) []byte { return noise(0xff, 600) },
		"noise with the ID": func(q []byte) []byte { return append(q[:2:2], noise(0x80, 600)...) },
		"header and noise":  func(q []byte) []byte { return append(reply(q)[:12], noise(0xc0, 90)...) },
		"endless pointer":   func(q []byte) []byte { return append(reply(q)[:12], 0xc0, 12, 0, 1, 0, 1) },
		"the query itself":  func(q []byte) []byte { return q },
		"wrong ID":          one(otherID),
		"no QR":             one(func(m *miekg.Msg) { m.Response = false }),
		"opcode NOTIFY":     one(func(m *miekg.Msg) { m.Opcode = miekg.OpcodeNotify }),
		"other name":        one(name(func(string) string { return "example.net." })),
		"longer name":       one(name(func(s string) string { return "www." + s })),
		"other case":        one(name(swapCase)),
		"other type":        one(func(m *miekg.Msg) { m.Question[0].Qtype = miekg.TypeAAAA }),
		"other class":       one(func(m *miekg.Msg) { m.Question[0].Qclass = miekg.ClassCHAOS }),
		"two questions":     one(func(m *miekg.Msg) { m.Question = append(m.Question, m.Question[0]) }),
		"two counted":       func(q []byte) []byte { b := reply(q); b[5] = 2; return b },
		"no question":       one(noQuestion),
		"REFUSED, damaged": func(q []byte) []byte {
			return less(1, reply(q, rcode(miekg.RcodeRefused), noQuestion, answer(evil)))
		},
		"NXDOMAIN, other":    one(rcode(miekg.RcodeNameError), other),
		"bare NOERROR":       bare(miekg.RcodeSuccess),
		"bare NXDOMAIN":      bare(miekg.RcodeNameError),
		"SERVFAIL, other ID": one(rcode(miekg.RcodeServerFailure), func(m *miekg.Msg) { m.Id ^= 0x8000 }),
		"TC, other question": one(truncate, other),
	}, func(t *testing.T, stray func(q []byte) []byte) {
		wantGoodFrom(t, server(t, func(q []byte) [][]byte {
			s := stray(q)
			return [][]byte{s, s, reply(q, answer(good))}
		}, saysOverTCP(answer(evil))))
	})
}

// wantGoodFrom asks servers, and holds the result to the address of good.
func wantGoodFrom(t *testing.T, servers ...string) {
	t.Helper()
	got, err := lookup(t, client(t, servers...), "A")
	wantGood(t, got, err)
}

// bare is a reply of just the header.
func bare(code int) func(q []byte) []byte {
	return func(q []byte) []byte { return reply(q, rcode(code))[:12] }
}

// padded fills a reply up (RFC 7830).
func padded(n int) change {
	return func(m *miekg.Msg) {
		withEDNS(m)
		m.IsEdns0().Option = []miekg.EDNS0{&miekg.EDNS0_PADDING{Padding: make([]byte, n)}}
	}
}

// less is a message without its last bytes.
func less(n int, b []byte) []byte { return b[:len(b)-n] }

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
	// counts changes a byte of the header's counts.
	counts := func(at int, n byte, changes ...change) func([]byte) []byte {
		return func(q []byte) []byte {
			b := reply(q, append(changes, answer(evil))...)
			b[at] = n
			return b
		}
	}
	origintest.Each(t, map[string]func(q []byte) []byte{
		"TC":                  func(q []byte) []byte { return reply(q, truncate) },
		"TC with some":        func(q []byte) []byte { return reply(q, truncate, answer(evil)) },
		"TC and damaged":      func(q []byte) []byte { return less(3, reply(q, truncate, answer(evil))) },
		"TC without question": func(q []byte) []byte { return reply(q, truncate)[:12] },
		"cut in a record":     func(q []byte) []byte { return less(3, reply(q, answer(evil))) },
		"cut after header":    func(q []byte) []byte { return reply(q, answer(evil))[:12+17] },
		"answers too many":    counts(7, 9),
		"answers too few":     counts(7, 0),
		"authority too many":  counts(9, 1),
		"authority too few": func(q []byte) []byte {
			b := reply(q, authority(evil))
			b[9] = 0
			return b
		},
		"additional too many": counts(10, 1),
		"additional too few":  counts(11, 0, withEDNS),
		"one byte more":       func(q []byte) []byte { return append(reply(q, withEDNS, answer(evil)), 0) },
		// And so NOERROR, with the upper half of the rcode gone.
		"cut before the OPT": func(q []byte) []byte { return less(11, reply(q, withEDNS, rcode(miekg.RcodeBadVers))) },
		// The first 4,096 bytes are whole, and whatever follows is lost.
		"cut by the buffer": func(q []byte) []byte {
			room := 4096 - len(reply(q, answer(evil), padded(0)))
			return append(reply(q, answer(evil), padded(room)), 0)
		},
	}, func(t *testing.T, cut func(q []byte) []byte) {
		whole := saysOverTCP(answer(good))
		wantGoodFrom(t, server(t, sends(cut), whole), dead(t))
		// Nor does it matter how many datagrams of others come before it.
		wantGoodFrom(t, server(t, func(q []byte) [][]byte {
			return append(slices.Repeat([][]byte{reply(q, otherID, answer(evil))}, 50), cut(q))
		}, whole), dead(t))
	})
}

// TestWhole: what a whole reply can hold beside the answer is not taken for
// damage.
func TestWhole(t *testing.T) {
	origintest.Each(t, map[string]change{
		"EDNS":          withEDNS,
		"padding":       padded(400),
		"TSIG":          func(m *miekg.Msg) { withEDNS(m); m.SetTsig("key.", miekg.HmacSHA256, 300, 1) },
		"unknown types": authority(`example.com. 60 IN TYPE65400 \# 4 01020304`, `example.com. 60 IN TYPE65401 \# 0`),
		"all sections": func(m *miekg.Msg) {
			m.Compress = true
			m.Ns = parse([]string{"example.com. 60 IN NS a.example.com.", "example.com. 60 IN NS b.example.com."})
			m.Extra = parse([]string{"a.example.com. 60 IN A 192.0.2.2", "b.example.com. 60 IN AAAA ::2"})
			withEDNS(m)
		},
	}, func(t *testing.T, beside change) {
		asked := func([]byte) [][]byte { t.Error("asked over TCP"); return nil }
		wantGoodFrom(t, server(t, says(answer(good), beside), asked))
	})
}

// TestTCPWhole reads a message of nearly 64 KiB that comes in small pieces.
func TestTCPWhole(t *testing.T) {
	t.Parallel()
	long := `example.com. 7 IN TXT "` + strings.Repeat("x", 230) + `"`
	records := answer(slices.Repeat([]string{long}, 250)...)
	whole := server(t, says(truncate), func(q []byte) [][]byte {
		b := framed(reply(q, records))
		if len(b) < 60000 {
			t.Errorf("the message has only %d bytes", len(b))
		}
		return slices.Collect(slices.Chunk(b, 1000))
	})
	got, err := lookup(t, client(t, whole), "TXT")
	if err != nil || len(got.Records) != 250 || *got.TTL != 7 {
		t.Errorf("%d records, %v, want 250", len(got.Records), err)
	}
}

// TestTCPBad: a resolver whose TCP is no better is passed over; when it is the
// only one, the lookup says upstream_unavailable.
func TestTCPBad(t *testing.T) {
	bytes := func(b ...byte) wire { return sends(func([]byte) []byte { return b }) }
	origintest.Each(t, map[string]wire{
		"closed":         func([]byte) [][]byte { return nil },
		"half a length":  bytes(0),
		"empty frame":    bytes(0, 0),
		"short frame":    func(q []byte) [][]byte { return [][]byte{{0xff, 0xff}, reply(q, answer(evil))} },
		"wrong ID":       saysOverTCP(otherID, answer(evil)),
		"still TC":       saysOverTCP(truncate, answer(evil)),
		"damaged":        sends(func(q []byte) []byte { return framed(less(1, reply(q, answer(evil)))) }),
		"one byte more":  sends(func(q []byte) []byte { return framed(append(reply(q, answer(evil)), 0)) }),
		"other question": saysOverTCP(answer(evil), func(m *miekg.Msg) { m.Question[0].Qtype = 2 }),
		"not DNS":        bytes([]byte("HTTP/1.1 400 Bad Request\r\n\r\n")...),
	}, func(t *testing.T, stream wire) {
		bad := server(t, says(truncate), stream)
		wantCode(t, fault.UpstreamUnavailable, "A", bad)
		wantGoodFrom(t, bad, resolver(t, answer(good)))
	})
}

// TestEDNS: the question offers 1232 bytes, and is asked once more without
// EDNS of a resolver that refuses it, over UDP or TCP.
func TestEDNS(t *testing.T) {
	formerr := says(rcode(miekg.RcodeFormatError))
	type row struct {
		refuses wire
		tcp     bool
	}
	origintest.Each(t, map[string]row{
		"FORMERR":                  {formerr, false},
		"FORMERR, header only":     {sends(bare(miekg.RcodeFormatError)), false},
		"FORMERR without question": {says(rcode(miekg.RcodeFormatError), noQuestion), false},
		"BADVERS":                  {says(withEDNS, rcode(miekg.RcodeBadVers)), false},
		"FORMERR over TCP":         {formerr, true},
	}, func(t *testing.T, c row) {
		var mu sync.Mutex
		var sizes []uint16
		old := func(query []byte) []byte {
			mu.Lock()
			defer mu.Unlock()
			opt := unpacked(query).IsEdns0()
			if opt == nil {
				sizes = append(sizes, 0)
				return reply(query, answer(good))
			}
			sizes = append(sizes, opt.UDPSize())
			return c.refuses(query)[0]
		}
		overUDP := sends(old)
		if c.tcp {
			overUDP = says(truncate)
		}
		overTCP := sends(func(q []byte) []byte { return framed(old(q)) })
		wantGoodFrom(t, server(t, overUDP, overTCP), dead(t))
		mu.Lock()
		defer mu.Unlock()
		if fmt.Sprint(sizes) != "[1232 0]" {
			t.Errorf("EDNS sizes %v, want 1232 and then none", sizes)
		}
	})
}

// TestRefusalsGoOn: what a resolver says of itself is no answer; the next one
// is asked at once. Once all have said so, the lookup is upstream_unavailable.
func TestRefusalsGoOn(t *testing.T) {
	origintest.Each(t, map[string]wire{
		"REFUSED":                   says(rcode(miekg.RcodeRefused), answer(evil)),
		"NOTIMP":                    says(rcode(miekg.RcodeNotImplemented), answer(evil)),
		"FORMERR":                   says(rcode(miekg.RcodeFormatError), answer(evil)),
		"NOTAUTH":                   says(rcode(miekg.RcodeNotAuth), answer(evil)),
		"bare":                      sends(bare(miekg.RcodeRefused)),
		"bare SERVFAIL":             sends(bare(miekg.RcodeServerFailure)),
		"bare YXDOMAIN":             sends(bare(miekg.RcodeYXDomain)),
		"SERVFAIL without question": says(rcode(miekg.RcodeServerFailure), noQuestion, answer(evil)),
	}, func(t *testing.T, no wire) {
		one, two := server(t, no, nil), server(t, no, nil)
		wantCode(t, fault.UpstreamUnavailable, "A", one, two, dead(t))
		wantGoodFrom(t, one, two, resolver(t, answer(good)))
	})
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
	works := resolver(t, answer(good))
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
			return new(net.Dialer).DialContext(ctx, network, works)
		}})
		if got, err := lookup(t, c, "A"); err != nil || got.Resolver != want {
			t.Errorf("%s: resolver %q, %v, want %q", configured, got.Resolver, err, want)
		}
	}
}
