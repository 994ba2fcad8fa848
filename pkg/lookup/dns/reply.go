package dns

import (
	"net/netip"
	"slices"
	"strings"

	miekg "github.com/miekg/dns"

	"github.com/hostfacts/hostfacts/pkg/lookup"
)

const (
	// Limits of a result: the number of its records, and the size of their text in bytes. They
	// are necessary because a reply over TCP has room for 4,000 addresses, and compression
	// lets it repeat a long name in every record. maxText is enough for any TXT answer, even
	// if each byte is escaped.
	maxRecords = 1000
	maxText    = 512 << 10
)

// outcome classifies the result of querying one resolver.
type outcome int

const (
	silent    outcome = iota // no reply in time
	useless                  // no connection, or a reply that says nothing about the name
	failing                  // SERVFAIL
	unproven                 // NXDOMAIN without proof
	answering                // NOERROR, NXDOMAIN with proof, or YXDOMAIN
)

// reply is the reply of one resolver to the question about a name.
type reply struct {
	outcome  outcome
	failure  *failure // why the reply does not answer the question
	resolver netip.Addr
	msg      *miekg.Msg

	chain []string   // the queried name, followed by the targets of its aliases
	found []miekg.RR // the records of the queried type that belong to a name in the chain
	ttl   uint32     // the lowest TTL of the aliases that were followed, in seconds
}

// newReply extracts the facts about a name from a message. If the question is for CNAME,
// newReply follows no alias. A name must not have several aliases; if it does, the first
// counts. newReply follows each alias only once. It ignores DNAME records, because resolvers
// add the CNAME records that follow from them.
func newReply(m *miekg.Msg, resolver netip.Addr, name string, qtype uint16) *reply {
	r := &reply{
		msg:      m,
		resolver: resolver,
		chain:    []string{lower(miekg.Fqdn(name))},
		ttl:      ^uint32(0),
	}
	if qtype != miekg.TypeCNAME {
		r.follow()
	}
	passed := map[string]bool{}
	for _, name := range r.chain {
		passed[name] = true
	}
	for _, rr := range m.Answer {
		h := rr.Header()
		isQueried := h.Rrtype == qtype && h.Class == miekg.ClassINET
		if isQueried && passed[lower(h.Name)] {
			r.found = append(r.found, rr)
		}
	}
	r.outcome = r.classify()
	r.failure = answered(r.resolver.String(), r.says())
	return r
}

// follow extends the chain along the aliases of the message. The chain is finite, because it
// has each alias at most once and the size of a message limits the number of aliases.
func (r *reply) follow() {
	aliases := map[string]*miekg.CNAME{}
	for _, rr := range r.msg.Answer {
		alias, ok := rr.(*miekg.CNAME)
		if !ok || alias.Hdr.Class != miekg.ClassINET {
			continue
		}
		if owner := lower(alias.Hdr.Name); aliases[owner] == nil {
			aliases[owner] = alias
		}
	}
	at := r.chain[0]
	for alias := aliases[at]; alias != nil; alias = aliases[at] {
		r.ttl = min(r.ttl, ttl(alias))
		delete(aliases, at)
		at = lower(alias.Target)
		r.chain = append(r.chain, at)
	}
}

// aliased reports whether the question was for the CNAME record of a name and an NXDOMAIN
// reply contains that record. The name then exists: some servers also look up the target of
// the alias, and NXDOMAIN is about the target (RFC 6604 §3).
func (r *reply) aliased() bool {
	return r.msg.Rcode == miekg.RcodeNameError && len(r.found) > 0 && r.found[0].Header().Rrtype == miekg.TypeCNAME
}

// classify separates replies about the name from replies that say something only about the
// resolver. A reply without a question says something only about the resolver, whatever its
// rcode.
//
// NXDOMAIN is proven by the SOA record of a zone that contains the name or the target of one
// of its aliases (RFC 2308 §2.1). Filters and the portals of networks often send no SOA
// record, or the SOA record of an invented zone. If the SOA record is that of the name itself,
// it proves nothing: a name with an SOA record exists. The SOA record of the root proves
// nothing either: for a name under com, it would deny com itself.
//
// A NOERROR reply is a referral if it has NS records, but neither an answer nor an SOA record
// (RFC 2308 §2.2).
func (r *reply) classify() outcome {
	if len(r.msg.Question) == 0 {
		return useless
	}
	proven := false
	soa := false
	servers := false
	for _, rr := range r.msg.Ns {
		zone := lower(rr.Header().Name)
		switch rr.(type) {
		case *miekg.NS:
			servers = true
		case *miekg.SOA:
			if !soa { // only the first SOA record counts; an honest reply has only one
				proven = zone != "." && r.leadsInto(zone)
			}
			soa = true
		}
	}
	refers := len(r.found) == 0 && servers && !soa
	switch r.msg.Rcode {
	case miekg.RcodeSuccess:
		if refers {
			return useless
		}
		return answering
	case miekg.RcodeYXDomain:
		return answering
	case miekg.RcodeNameError:
		if proven || r.aliased() {
			return answering
		}
		return unproven
	case miekg.RcodeServerFailure:
		return failing
	default:
		return useless
	}
}

// leadsInto reports whether the name, or the target of one of its aliases, is a subdomain of
// zone.
func (r *reply) leadsInto(zone string) bool {
	return slices.ContainsFunc(r.chain, func(name string) bool { return name != zone && miekg.IsSubDomain(zone, name) })
}

// result converts a reply to the form of spec §2.1. NXDOMAIN is an error, even if it is about
// the target of an alias (RFC 6604 §3). It is not an error if the alias itself was queried.
func (r *reply) result(q Query) (Result, error) {
	switch {
	case r.msg.Rcode != miekg.RcodeNameError || r.aliased():
	case len(r.chain) > 1:
		return Result{}, lookup.Faultf(lookup.NXDomain, nil, "The domain name is an alias, and the name it leads to does not exist.")
	default:
		return Result{}, lookup.Fault(lookup.NXDomain, nil)
	}
	out := Result{
		Domain:   q.Domain,
		Type:     q.Type,
		Records:  []Record{},
		Rcode:    miekg.RcodeToString[r.msg.Rcode],
		Resolver: r.resolver.String(),
	}
	if r.msg.Rcode != miekg.RcodeSuccess && !r.aliased() {
		return out, nil
	}
	lowest := r.ttl
	text := 0
	for _, rr := range r.found {
		record := record(rr)
		if record == nil {
			continue
		}
		text += record.size()
		if len(out.Records) == maxRecords || text > maxText {
			break
		}
		out.Records = append(out.Records, record)
		lowest = min(lowest, ttl(rr))
		out.TTL = &lowest
	}
	return out, nil
}

// ttl returns a record's TTL in seconds. A TTL with the top bit set is 0 (RFC 2181 §8).
func ttl(rr miekg.RR) uint32 {
	if t := rr.Header().Ttl; t < 1<<31 {
		return t
	}
	return 0
}

// lower returns a name in lower case. The name must be in presentation form, which is ASCII
// whatever bytes the name has, so lower does not change escapes. Two names are equal if their
// lower forms are equal.
func lower(name string) string { return strings.ToLower(name) }
