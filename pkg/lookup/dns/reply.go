package dns

import (
	"fmt"
	"net/netip"
	"slices"

	miekg "github.com/miekg/dns"

	"github.com/hostfacts/hostfacts/pkg/lookup"
)

// maxChain bounds the aliases followed from the name asked about. Resolvers
// give up earlier.
const maxChain = 16

// outcome is how far a resolver got.
type outcome int

const (
	silent    outcome = iota // no reply in time
	useless                  // nobody there, or a reply that says nothing about the name
	failing                  // SERVFAIL
	unproven                 // NXDOMAIN without its proof
	answering                // NOERROR, NXDOMAIN with its proof, or YXDOMAIN
)

// reply is what one resolver has to say about a name.
type reply struct {
	outcome  outcome
	err      error // why it does not answer
	resolver netip.Addr
	msg      *miekg.Msg

	// chain is the name and those that its aliases lead to. A question for CNAME is
	// about the alias and follows none. found are the records of the type asked for at
	// one of these, ttl is the lowest of the aliases that were followed.
	chain []string
	found []miekg.RR
	ttl   uint32
}

// newReply reads what a message says about a name. Of several aliases of one name,
// which none may have, the first counts. A chain that is a loop repeats its names.
// DNAMEs need no care: the CNAMEs that resolvers make from them are there too.
func newReply(m *miekg.Msg, resolver netip.Addr, name string, qtype uint16) *reply {
	of := func(rtype uint16, owners []string) (found []miekg.RR) {
		for _, rr := range m.Answer {
			if h := rr.Header(); h.Rrtype == rtype && h.Class == miekg.ClassINET && slices.Contains(owners, lower(h.Name)) {
				found = append(found, rr)
			}
		}
		return found
	}
	r := &reply{msg: m, resolver: resolver, chain: []string{lower(miekg.Fqdn(name))}, ttl: ^uint32(0)}
	for qtype != miekg.TypeCNAME && len(r.chain) <= maxChain {
		aliases := of(miekg.TypeCNAME, r.chain[len(r.chain)-1:])
		if len(aliases) == 0 {
			break
		}
		r.ttl = min(r.ttl, ttl(aliases[0]))
		r.chain = append(r.chain, lower(aliases[0].(*miekg.CNAME).Target)) //nolint:forcetypeassert // the parser makes one of that type
	}
	r.found = of(qtype, r.chain)
	r.outcome = r.judge()
	r.err = fmt.Errorf("resolver %s: %s, %d questions, %d answers, %d authorities",
		r.resolver, miekg.RcodeToString[m.Rcode], len(m.Question), len(m.Answer), len(m.Ns))
	return r
}

// aliased reports whether an NXDOMAIN has the alias that was asked for. It is about
// what the alias leads to, which was not: some servers look that up all the same
// (RFC 6604 §3).
func (r *reply) aliased() bool {
	return r.msg.Rcode == miekg.RcodeNameError && len(r.found) > 0 && r.found[0].Header().Rrtype == miekg.TypeCNAME
}

// judge tells what a reply says about the name from what a resolver says about
// itself. A reply without a question is the latter whatever its code.
//
// NXDOMAIN is proven by the SOA record of a zone that the name, or one that its aliases
// lead to, is in (RFC 2308 §2.1). Whatever asked the servers of the zone has it. What
// answers in their place, such as a filter or the portal of a network, often has none,
// or that of a zone that it made up. A name with an SOA record exists, so its own
// proves nothing.
//
// A NOERROR without an answer and with servers, but no SOA, sends us to those servers
// (RFC 2308 §2.2). A resolver that does not recurse says that, and it is not a fact
// about the name.
func (r *reply) judge() outcome {
	proven, soa, servers := false, false, false
	for _, rr := range r.msg.Ns {
		zone := lower(rr.Header().Name)
		switch rr.(type) {
		case *miekg.NS:
			servers = true
		case *miekg.SOA:
			soa = true
			proven = proven || slices.ContainsFunc(r.chain, func(name string) bool { return name != zone && miekg.IsSubDomain(zone, name) })
		}
	}
	refers := len(r.found) == 0 && servers && !soa
	switch rcode := r.msg.Rcode; {
	case len(r.msg.Question) == 0:
		return useless
	case rcode == miekg.RcodeSuccess && !refers, rcode == miekg.RcodeYXDomain,
		rcode == miekg.RcodeNameError && (proven || r.aliased()):
		return answering
	case rcode == miekg.RcodeNameError:
		return unproven
	case rcode == miekg.RcodeServerFailure:
		return failing
	}
	return useless
}

// result is a reply in the shape of spec §2.1. NXDOMAIN is an error, also when
// it is about the target of an alias (RFC 6604 §3), unless the alias itself is what
// was asked for.
func (r *reply) result(q Query) (Result, error) {
	switch {
	case r.msg.Rcode != miekg.RcodeNameError || r.aliased():
	case len(r.chain) > 1:
		return Result{}, lookup.Faultf(lookup.NXDomain, nil, "The domain name is an alias, and the name it leads to does not exist.")
	default:
		return Result{}, lookup.Fault(lookup.NXDomain, nil)
	}
	out := Result{
		Domain: q.Domain, Type: q.Type, Records: []Record{},
		Rcode: miekg.RcodeToString[r.msg.Rcode], Resolver: r.resolver.String(),
	}
	if r.aliased() || r.msg.Rcode == miekg.RcodeSuccess {
		out.Records, out.TTL = r.records()
	}
	return out, nil
}
