package testbed

import (
	"strings"
	"testing"

	"github.com/miekg/dns"
)

// Zone is what a resolver knows. As a dns.Handler it answers every query out of
// what it knows.
type Zone struct {
	// Records are by owner, in lower case with the final dot. Those of the owner
	// "*." are the records of every name that has none.
	Records map[string][]dns.RR
}

// ReadZone reads records in the form of a zone file. Without $TTL and $ORIGIN,
// each has a TTL and a complete owner.
func ReadZone(tb testing.TB, text string) Zone {
	tb.Helper()
	z := Zone{Records: map[string][]dns.RR{}}
	parser := dns.NewZoneParser(strings.NewReader(text), "", "zone")
	for rr, ok := parser.Next(); ok; rr, ok = parser.Next() {
		owner := strings.ToLower(rr.Header().Name)
		z.Records[owner] = append(z.Records[owner], rr)
	}
	if err := parser.Err(); err != nil {
		tb.Fatal(err)
	}
	return z
}

// ServeDNS implements dns.Handler.
func (z Zone) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	name, qtype, ok := Question(q)
	if !ok {
		return
	}
	m := Reply(q)
	z.Answer(m, name, qtype)
	Send(w, q, m)
}

// Answer looks a name up, as a recursive resolver answers: the aliases first, then
// what they lead to. Negative answers carry the SOA record of the root.
func (z Zone) Answer(m *dns.Msg, name string, qtype uint16) {
	for range 8 {
		set, exists := z.of(name)
		var alias *dns.CNAME
		found := false
		for _, rr := range set {
			if rr.Header().Rrtype == qtype {
				m.Answer, found = append(m.Answer, rr), true
			} else if c, ok := rr.(*dns.CNAME); ok {
				alias = c
			}
		}
		switch {
		case found:
			return
		case alias != nil:
			m.Answer = append(m.Answer, alias)
			name = strings.ToLower(alias.Target)
			continue
		case !exists:
			m.Rcode = dns.RcodeNameError
		}
		m.Ns = []dns.RR{&dns.SOA{
			Hdr: dns.RR_Header{Name: ".", Rrtype: dns.TypeSOA, Class: dns.ClassINET, Ttl: 5},
			Ns:  "a.root-servers.net.", Mbox: "nstld.verisign-grs.com.", Serial: 2026110501, Refresh: 1800, Retry: 900, Expire: 604800, Minttl: 5,
		}}
		return
	}
}

// of are the records of a name, and whether there is such a name.
func (z Zone) of(name string) (set []dns.RR, exists bool) {
	if set, exists = z.Records[name]; exists {
		return set, true
	}
	wildcard, exists := z.Records["*."]
	for _, rr := range wildcard {
		rr = dns.Copy(rr)
		rr.Header().Name = name
		set = append(set, rr)
	}
	return set, exists
}
