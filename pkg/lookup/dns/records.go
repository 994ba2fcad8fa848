package dns

import (
	"net"
	"net/netip"

	miekg "github.com/miekg/dns"
)

const (
	// maxChain bounds the aliases followed from the name asked about.
	// Resolvers give up earlier.
	maxChain = 16

	// maxRecords and maxText bound what one result can hold. A reply over TCP
	// has room for 4,000 addresses, and compression lets it repeat a long name
	// in every record. 512 KiB hold any TXT answer, each byte escaped.
	maxRecords = 1000
	maxText    = 512 << 10
)

// minSOA is the shortest SOA on the wire: two roots and five numbers. The
// parser takes a shorter one for a record with zeros.
const minSOA = 2 + 5*4

// records picks the records of a type that are reached from name through the
// aliases in the answer section, and the lowest TTL among both; nil without
// records. DNAMEs need no care: the CNAMEs that resolvers make from them are
// there too.
func records(answer []miekg.RR, name string, qtype uint16) ([]Record, *uint32) {
	out := []Record{}
	owners, lowest := chain(answer, name, qtype)
	text := 0
	for _, rr := range answer {
		if !answers(rr, owners, qtype) {
			continue
		}
		r := record(rr)
		if r == nil {
			continue
		}
		if text += r.size(); len(out) == maxRecords || text > maxText {
			break
		}
		out = append(out, r)
		lowest = min(lowest, ttl(rr.Header()))
	}
	if len(out) == 0 {
		return out, nil
	}
	return out, &lowest
}

// answers reports whether a record is of the type asked for and at one of the
// names that chain has reached.
func answers(rr miekg.RR, owners map[string]bool, qtype uint16) bool {
	h := rr.Header()
	return h.Rrtype == qtype && h.Class == miekg.ClassINET && owners[lower(h.Name)]
}

// chain returns the names that the aliases lead to from name, itself included,
// and the lowest TTL of those aliases. It ends at a loop. Of several aliases of
// one name, which none may have, the first counts. A question for CNAME
// is about the alias itself and follows none.
func chain(answer []miekg.RR, name string, qtype uint16) (map[string]bool, uint32) {
	name = lower(miekg.Fqdn(name))
	owners, lowest := map[string]bool{name: true}, ^uint32(0)
	if qtype == miekg.TypeCNAME {
		return owners, lowest
	}
	alias := map[string]*miekg.CNAME{}
	for _, rr := range answer {
		c, ok := rr.(*miekg.CNAME)
		if !ok || c.Hdr.Class != miekg.ClassINET {
			continue
		}
		if owner := lower(c.Hdr.Name); alias[owner] == nil {
			alias[owner] = c
		}
	}
	for range maxChain {
		c := alias[name]
		if c == nil {
			break
		}
		lowest = min(lowest, ttl(&c.Hdr))
		if name = lower(c.Target); owners[name] {
			break
		}
		owners[name] = true
	}
	return owners, lowest
}

// ttl is a record's TTL in seconds; one with the top bit set counts as 0
// (RFC 2181 §8).
func ttl(h *miekg.RR_Header) uint32 {
	if h.Ttl > 1<<31-1 {
		return 0
	}
	return h.Ttl
}

// record is a resource record in the result's shape, nil for one without
// proper data: the parser takes empty or short data for absent fields.
func record(rr miekg.RR) Record {
	switch r := rr.(type) {
	case *miekg.A:
		return address(r.A)
	case *miekg.AAAA:
		return address(r.AAAA)
	case *miekg.MX:
		if r.Mx != "" {
			return MX{Preference: r.Preference, Exchange: host(r.Mx)}
		}
	case *miekg.TXT:
		if len(r.Txt) > 0 {
			return text(r.Txt)
		}
	case *miekg.CNAME:
		if r.Target != "" {
			return Target{Target: host(r.Target)}
		}
	case *miekg.NS:
		if r.Ns != "" {
			return Target{Target: host(r.Ns)}
		}
	case *miekg.SOA:
		if r.Mbox != "" && r.Hdr.Rdlength >= minSOA {
			return SOA{
				MName: host(r.Ns), RName: host(r.Mbox), Serial: r.Serial,
				Refresh: r.Refresh, Retry: r.Retry, Expire: r.Expire, Minimum: r.Minttl,
			}
		}
	}
	return nil
}

func address(ip net.IP) Record {
	if a, ok := netip.AddrFromSlice(ip); ok {
		return Address{Address: a.String()}
	}
	return nil
}
