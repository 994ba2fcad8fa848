package simnet

import (
	"bytes"
	"encoding/binary"
	"strings"

	"github.com/miekg/dns"
)

// asked is one query at one resolver, and the honest answer to it.
type asked struct {
	w             dns.ResponseWriter
	query, honest *dns.Msg
	udp           bool
	at            string // the resolver's address
}

// trick answers, or does not, in a resolver's place.
type trick func(asked)

func (a asked) send(m *dns.Msg) { _ = a.w.WriteMsg(m) } // the client may be gone
func (a asked) raw(b []byte)    { _, _ = a.w.Write(b) }

// packed is the honest answer on the wire.
func (a asked) packed() []byte {
	b, err := a.honest.Pack()
	if err != nil {
		panic(err) // a mistake in the table of hosts
	}
	return b
}

// copied is the honest answer, to be spoiled.
func (a asked) copied() *dns.Msg { return a.honest.Copy() }

// changes sends the answer with a change.
func changes(change func(*dns.Msg)) trick {
	return func(a asked) {
		change(a.honest)
		a.send(a.honest)
	}
}

// eachRecord changes what every record of the answer begins with.
func eachRecord(change func(*dns.RR_Header)) trick {
	return changes(func(m *dns.Msg) {
		for _, rr := range m.Answer {
			change(rr.Header())
		}
	})
}

// rcodes answers with a return code and nothing else.
func rcodes(code int) trick {
	return func(a asked) {
		a.honest.Rcode, a.honest.Answer = code, nil
		if code > 15 {
			a.honest.SetEdns0(1232, false) // its upper bits are there
		}
		a.send(a.honest)
	}
}

// refers sends the client on to the servers of com after some records, as a
// server does that does not recurse.
func refers(records ...string) trick {
	return changes(func(m *dns.Msg) {
		m.Answer, m.RecursionAvailable = written(m, records), false
		for _, ns := range []string{"a", "b"} {
			m.Ns = append(m.Ns, record("com.", "172800 IN NS "+ns+".gtld-servers.net."))
			m.Extra = append(m.Extra, record(ns+".gtld-servers.net.", "172800 IN A 93.184.1.1"))
		}
	})
}

// counts changes one of the counts in a packed answer's header: 6 is that of
// the answers, 8 that of the authorities, 10 that of the rest.
func counts(at int, change int8) func([]byte) []byte {
	return func(b []byte) []byte {
		b[at+1] += byte(change)
		return b
	}
}

// padded leaves a byte behind the last record.
func padded(b []byte) []byte { return append(b, 0) }

func honestly(a asked) { a.send(a.honest) }
func nothing(asked)    {}

// each gives every resolver a trick of its own, in the order of the defaults.
func each(first, second, third trick) trick {
	return func(a asked) {
		for i, t := range []trick{first, second, third} {
			if a.at == resolverAddrs()[i] {
				t(a)
			}
		}
	}
}

// overUDP plays a trick with datagrams and is honest over TCP; overTCP sends
// the client to TCP and tricks it there.
func overUDP(t trick) trick { return transports(t, honestly) }
func overTCP(t trick) trick {
	return transports(changes(func(m *dns.Msg) { m.Truncated, m.Answer = true, nil }), t)
}

func transports(udp, tcp trick) trick {
	return func(a asked) {
		if a.udp {
			udp(a)
			return
		}
		tcp(a)
	}
}

// noEDNS refuses queries with EDNS only.
func noEDNS(code int) trick {
	return func(a asked) {
		if a.query.IsEdns0() != nil {
			rcodes(code)(a)
			return
		}
		a.send(a.honest)
	}
}

// preceded sends a spoiled copy of the answer, and then the answer.
func preceded(spoil func(*dns.Msg)) trick {
	return func(a asked) {
		m := a.copied()
		spoil(m)
		a.send(m)
		a.send(a.honest)
	}
}

// bytesOf sends what a function makes of the packed answer.
func bytesOf(f func([]byte) []byte) trick { return func(a asked) { a.raw(f(a.packed())) } }

// junk has the ID of the query and a header that promises a question.
func junk(a asked) {
	b := binary.BigEndian.AppendUint16(nil, a.query.Id)
	a.raw(append(b, 0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0x3f))
}

// header is the twelve bytes of a return code alone.
func header(code int) trick {
	return func(a asked) {
		b := binary.BigEndian.AppendUint16(nil, a.query.Id)
		a.raw(append(b, 0x81, 0x80|byte(code), 0, 0, 0, 0, 0, 0, 0, 0))
	}
}

// spoiled keeps a packed answer's question and overwrites what follows.
func spoiled(b []byte) []byte {
	end := bytes.IndexByte(b[12:], 0) + 12 + 5
	return append(b[:end:end], bytes.Repeat([]byte{0xff}, len(b)-end)...)
}

func truncated(b []byte) []byte {
	b[2] |= 0x02
	return b
}

// otherCase turns every letter of a name's case.
func otherCase(name string) string {
	return strings.Map(func(r rune) rune {
		if l := r | 0x20; 'a' <= l && l <= 'z' {
			return r ^ 0x20
		}
		return r
	}, name)
}

// aliases answers with a chain of n names that ends in an address.
func aliases(n int) trick {
	return changes(func(m *dns.Msg) {
		m.Answer = nil
		owner := m.Question[0].Name
		for i := range n {
			next := "hop" + strings.Repeat("x", i) + ".example.com."
			m.Answer = append(m.Answer, record(owner, "60 IN CNAME "+next))
			owner = next
		}
		if m.Question[0].Qtype == dns.TypeA {
			m.Answer = append(m.Answer, record(owner, "30 IN A 93.184.2.20"))
		}
	})
}

// answers answers whatever the type with records in zone file form; @ is the
// name that was asked.
func answers(records ...string) trick {
	return changes(func(m *dns.Msg) { m.Answer = written(m, records) })
}

func written(m *dns.Msg, records []string) []dns.RR {
	var out []dns.RR
	for _, text := range records {
		owner, rest, _ := strings.Cut(strings.ReplaceAll(text, "@", m.Question[0].Name), " ")
		out = append(out, record(owner, rest))
	}
	return out
}

// empty is a record of a type without data.
func empty(name string, rrtype uint16, data string) dns.RR {
	return &dns.RFC3597{Hdr: dns.RR_Header{Name: name, Rrtype: rrtype, Class: dns.ClassINET, Ttl: 60}, Rdata: data}
}

// many answers over TCP with n addresses, the last of which is special.
func many(n int, last string) trick {
	return overTCP(func(a asked) {
		m := a.honest
		m.Answer, m.Compress = nil, true
		for i := 1; i < n && m.Question[0].Qtype == dns.TypeA; i++ {
			m.Answer = append(m.Answer, record(m.Question[0].Name, "60 IN A "+closedAddr))
		}
		if m.Question[0].Qtype == dns.TypeA {
			m.Answer = append(m.Answer, record(m.Question[0].Name, "60 IN A "+last))
		}
		a.send(m)
	})
}

// families has a trick for queries for AAAA, and one for the others.
func families(v4, v6 trick) trick {
	return func(a asked) {
		if a.query.Question[0].Qtype == dns.TypeAAAA {
			v6(a)
			return
		}
		v4(a)
	}
}

// flood sends stray replies, one after the other, and no other.
func flood(a asked) {
	a.honest.Id++
	b := a.packed()
	for range 200 {
		a.raw(b)
	}
}
