package dns

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	miekg "github.com/miekg/dns"

	"github.com/hostfacts/hostfacts/pkg/lookup"
)

const (
	// A reply over TCP has room for 4,000 addresses, and compression lets it repeat a
	// long name in every record. 512 KiB hold any TXT answer, each byte escaped.
	maxRecords = 1000
	maxText    = 512 << 10
)

// outcome is how far a resolver got.
type outcome int

const (
	silent    outcome = iota // no reply in time
	useless                  // nobody there, or a reply that says nothing about the name
	failing                  // SERVFAIL
	unproven                 // NXDOMAIN without its proof
	answering                // NOERROR, NXDOMAIN with its proof, or YXDOMAIN
)

// reply is the reply of one resolver to the question about a name.
type reply struct {
	outcome  outcome
	err      error // why it does not answer
	resolver netip.Addr
	msg      *miekg.Msg

	chain []string   // the name and those that its aliases lead to
	found []miekg.RR // records of the queried type at one of these
	ttl   uint32     // the lowest of the aliases that were followed
}

// newReply takes from a message what it says about a name. A question for CNAME follows none.
// Of several aliases of one name, which none may have, the first counts; a chain ends where it
// would come back to itself. DNAMEs need no care: the CNAMEs that resolvers make from them are
// there as well.
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
	r.err = fmt.Errorf("resolver %s: %s, %d questions, %d answers, %d authorities",
		r.resolver, miekg.RcodeToString[m.Rcode], len(m.Question), len(m.Answer), len(m.Ns))
	return r
}

// follow makes the chain as long as the aliases of the message lead. Their number is bounded by
// the size of a message, and none is looked at twice.
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

// aliased reports whether an NXDOMAIN has the alias that was queried. It is about the target of
// the alias, which some servers look up all the same (RFC 6604 §3).
func (r *reply) aliased() bool {
	return r.msg.Rcode == miekg.RcodeNameError && len(r.found) > 0 && r.found[0].Header().Rrtype == miekg.TypeCNAME
}

// classify tells a reply about the name from one that a resolver gives about itself. A reply
// without a question is the latter whatever its code.
//
// NXDOMAIN is proven by the SOA record of a zone that the name, or one that its aliases lead
// to, is in (RFC 2308 §2.1). A filter or a network's portal often sends none, or that of a
// zone that it made up. A name with an SOA record exists, so that its own record proves
// nothing. Nor does that of the root: sent for a name of com, it would deny com itself.
//
// A NOERROR without an answer and with servers, but no SOA, is a referral (RFC 2308 §2.2).
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
			if !soa { // an honest reply has one
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

// leadsInto reports whether the name, or one that its aliases lead to, is below a zone.
func (r *reply) leadsInto(zone string) bool {
	return slices.ContainsFunc(r.chain, func(name string) bool { return name != zone && miekg.IsSubDomain(zone, name) })
}

// result is a reply in the shape of spec §2.1. NXDOMAIN is an error, also when it is about the
// target of an alias (RFC 6604 §3), unless the alias was queried.
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

// ttl is a record's TTL in seconds, 0 with the top bit set (RFC 2181 §8).
func ttl(rr miekg.RR) uint32 {
	if t := rr.Header().Ttl; t < 1<<31 {
		return t
	}
	return 0
}

// lower lowers a name in presentation form, which is ASCII whatever bytes it
// stands for; so no escape changes. Two names are equal if this is equal.
func lower(name string) string { return strings.ToLower(name) }
