package simnet

import (
	"strings"

	"github.com/miekg/dns"
)

// asked is one query at one resolver, and the honest answer to it.
type asked struct {
	w      dns.ResponseWriter
	honest *dns.Msg
	udp    bool
	at     string // the resolver's address
}

// trick answers, or does not, in a resolver's place.
type trick func(asked)

func (a asked) send(m *dns.Msg) { _ = a.w.WriteMsg(m) } // the client may be gone

// changes sends the answer with a change.
func changes(change func(*dns.Msg)) trick {
	return func(a asked) {
		change(a.honest)
		a.send(a.honest)
	}
}

// rcodes answers with a return code and nothing else.
func rcodes(code int) trick {
	return func(a asked) {
		a.honest.Rcode, a.honest.Answer = code, nil
		a.send(a.honest)
	}
}

// refers sends the client on to the servers of com, as a server does that does not
// recurse.
func refers() trick {
	return changes(func(m *dns.Msg) {
		m.Answer, m.RecursionAvailable = nil, false
		for _, ns := range []string{"a", "b"} {
			m.Ns = append(m.Ns, record("com.", "172800 IN NS "+ns+".gtld-servers.net."))
			m.Extra = append(m.Extra, record(ns+".gtld-servers.net.", "172800 IN A 93.184.1.1"))
		}
	})
}

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

// turned is a name with every letter in the other case.
func turned(name string) string {
	return strings.Map(func(r rune) rune {
		if l := r | 0x20; 'a' <= l && l <= 'z' {
			return r ^ 0x20
		}
		return r
	}, name)
}

// answers answers whatever the type with records in zone file form; @ is the
// name that was asked.
func answers(records ...string) trick {
	return changes(func(m *dns.Msg) {
		m.Answer = nil
		for _, text := range records {
			owner, rest, _ := strings.Cut(strings.ReplaceAll(text, "@", m.Question[0].Name), " ")
			m.Answer = append(m.Answer, record(owner, rest))
		}
	})
}
