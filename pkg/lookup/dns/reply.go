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
	noReply        outcome = iota // no reply in time
	uselessReply                  // no connection, or a reply that says nothing about the name
	servfailReply                 // SERVFAIL
	unprovenDenial                // NXDOMAIN without proof
	usableAnswer                  // NOERROR, NXDOMAIN with proof, or YXDOMAIN
)

// reply is the reply of one resolver to the question about a name.
type reply struct {
	outcome  outcome
	failure  *failure // why the reply does not answer the question
	resolver netip.Addr
	msg      *miekg.Msg

	chain    []string   // the queried name, followed by the targets of its aliases
	records  []miekg.RR // the records of the queried type that belong to a name in the chain
	aliasTTL uint32     // the lowest TTL of the aliases that were followed, in seconds
}

// newReply extracts the facts about a name from a message. If the question is for CNAME,
// newReply follows no alias. A name must not have several aliases; if it does, the first
// counts. newReply follows each alias only once. It ignores DNAME records, because resolvers
// add the CNAME records that follow from them.
func newReply(m *miekg.Msg, resolver netip.Addr, name string, qtype uint16) *reply {
	r := &reply{
		msg:      m,
		resolver: resolver,
		chain:    []string{lowerName(miekg.Fqdn(name))},
		aliasTTL: ^uint32(0),
	}
	if qtype != miekg.TypeCNAME {
		r.followAliases()
	}
	inChain := map[string]bool{}
	for _, name := range r.chain {
		inChain[name] = true
	}
	for _, rr := range m.Answer {
		h := rr.Header()
		isQueried := h.Rrtype == qtype && h.Class == miekg.ClassINET
		if isQueried && inChain[lowerName(h.Name)] {
			r.records = append(r.records, rr)
		}
	}
	r.outcome = r.classify()
	r.failure = replyFailure(r.resolver.String(), r.describe())
	return r
}

// followAliases extends the chain along the aliases of the message. The chain is finite,
// because it has each alias at most once and the size of a message limits the number of
// aliases.
func (r *reply) followAliases() {
	aliases := map[string]*miekg.CNAME{}
	for _, rr := range r.msg.Answer {
		alias, ok := rr.(*miekg.CNAME)
		if !ok || alias.Hdr.Class != miekg.ClassINET {
			continue
		}
		if owner := lowerName(alias.Hdr.Name); aliases[owner] == nil {
			aliases[owner] = alias
		}
	}
	at := r.chain[0]
	for alias := aliases[at]; alias != nil; alias = aliases[at] {
		r.aliasTTL = min(r.aliasTTL, ttlOf(alias))
		delete(aliases, at)
		at = lowerName(alias.Target)
		r.chain = append(r.chain, at)
	}
}

// deniesAliasTarget reports whether the question was for the CNAME record of a name, and the
// reply is an NXDOMAIN that contains that record. The name then exists: some servers also look
// up the target of the alias, and NXDOMAIN is about the target (RFC 6604 §3).
func (r *reply) deniesAliasTarget() bool {
	return r.msg.Rcode == miekg.RcodeNameError && len(r.records) > 0 && r.records[0].Header().Rrtype == miekg.TypeCNAME
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
		return uselessReply
	}
	isProven := false
	hasSOA := false
	hasNS := false
	for _, rr := range r.msg.Ns {
		zone := lowerName(rr.Header().Name)
		switch rr.(type) {
		case *miekg.NS:
			hasNS = true
		case *miekg.SOA:
			if !hasSOA { // only the first SOA record counts; an honest reply has only one
				isProven = zone != "." && r.hasNameBelow(zone)
			}
			hasSOA = true
		}
	}
	isReferral := len(r.records) == 0 && hasNS && !hasSOA
	switch r.msg.Rcode {
	case miekg.RcodeSuccess:
		if isReferral {
			return uselessReply
		}
		return usableAnswer
	case miekg.RcodeYXDomain:
		return usableAnswer
	case miekg.RcodeNameError:
		if isProven || r.deniesAliasTarget() {
			return usableAnswer
		}
		return unprovenDenial
	case miekg.RcodeServerFailure:
		return servfailReply
	default:
		return uselessReply
	}
}

// hasNameBelow reports whether the name, or the target of one of its aliases, is a subdomain of
// zone.
func (r *reply) hasNameBelow(zone string) bool {
	return slices.ContainsFunc(r.chain, func(name string) bool { return name != zone && miekg.IsSubDomain(zone, name) })
}

// result converts a reply to the form of spec §2.1. NXDOMAIN is an error, even if it is about
// the target of an alias (RFC 6604 §3). It is not an error if the alias itself was queried.
func (r *reply) result(q Query) (Result, error) {
	switch {
	case r.msg.Rcode != miekg.RcodeNameError || r.deniesAliasTarget():
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
	if r.msg.Rcode != miekg.RcodeSuccess && !r.deniesAliasTarget() {
		return out, nil
	}
	lowest := r.aliasTTL
	text := 0
	for _, rr := range r.records {
		record := convertRecord(rr)
		if record == nil {
			continue
		}
		text += record.size()
		if len(out.Records) == maxRecords || text > maxText {
			break
		}
		out.Records = append(out.Records, record)
		lowest = min(lowest, ttlOf(rr))
		out.TTL = &lowest
	}
	return out, nil
}

// ttlOf returns a record's TTL in seconds. A TTL with the top bit set is 0 (RFC 2181 §8).
func ttlOf(rr miekg.RR) uint32 {
	if t := rr.Header().Ttl; t < 1<<31 {
		return t
	}
	return 0
}

// lowerName returns a name in lower case. The name must be in presentation form, which writes
// every byte outside ASCII as an escape of digits. lowerName does not change these escapes. Two
// names are equal if lowerName returns the same for both.
func lowerName(name string) string { return strings.ToLower(name) }
