package dns

import (
	"net/url"
	"slices"
	"strings"

	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/lookup/guard"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// DefaultType is the record type of a query that names none (spec §4.2).
const DefaultType = "A"

// Query is a normalised question, as ParseQuery returns it.
type Query struct {
	Domain string // as guard.Domain returns it
	Type   string // A, AAAA, MX, TXT, CNAME, NS or SOA
}

// Codes returns the codes that a query and its lookup can answer.
func Codes() []fault.Code {
	return []fault.Code{
		lookup.InvalidDomain,
		lookup.InvalidType,
		lookup.NXDomain,
		lookup.UpstreamUnavailable,
		lookup.DNSTimeout,
	}
}

// ParseQuery parses domain and type of spec §4.2, and ignores other parameters. It
// returns invalid_domain or invalid_type.
func ParseQuery(q url.Values) (Query, error) {
	domain, err := guard.DomainParam(q, guard.DNSName)
	if err != nil {
		return Query{}, err
	}
	typ, err := TypeParam(q, "type")
	return Query{Domain: domain, Type: typ}, err
}

// TypeParam parses a record type in either letter case from the parameter with
// the given name, DefaultType if it is absent.
func TypeParam(q url.Values, name string) (string, error) {
	values, ok := q[name]
	switch {
	case !ok:
		return DefaultType, nil
	case len(values) != 1:
		return "", lookup.Faultf(lookup.InvalidType, nil, "%s is repeated: pass one of A, AAAA, MX, TXT, CNAME, NS, SOA.", name)
	}
	t := strings.ToUpper(values[0])
	known := slices.Contains([]string{"A", "AAAA", "MX", "TXT", "CNAME", "NS", "SOA"}, t)
	if !known || len(t) != len(values[0]) { // U+017F, two bytes, becomes an S
		return "", lookup.Fault(lookup.InvalidType, nil)
	}
	return t, nil
}

// Values returns the parameters as they were understood. Requests with equal ones are the same.
func (q Query) Values() url.Values {
	return url.Values{"domain": {q.Domain}, "type": {q.Type}}
}

// Result is the DNS result of spec §2.1.
type Result struct {
	Domain string `json:"domain" doc:"Normalized FQDN queried"`
	Type   string `json:"type" doc:"Record type queried" enum:"A,AAAA,MX,TXT,CNAME,NS,SOA" schema:"RecordType"`
	// Rcode is NOERROR, YXDOMAIN, SERVFAIL when that is all the resolvers say, or
	// NXDOMAIN beside the alias that was queried.
	Rcode    string `json:"rcode" doc:"Such as NOERROR; SERVFAIL and YXDOMAIN have no records"`
	Resolver string `json:"resolver" doc:"Resolver that answered"`
	// TTL is the lowest of the records and of the aliases that lead to them.
	TTL *uint32 `json:"ttl" doc:"Lowest TTL, in seconds; null without records" show:"seconds"`
	// Records are of the queried type only, in the order received; never nil.
	Records []Record `json:"records" doc:"At most 1,000; their shape depends on type"`
}

// Verdicts returns the rules for the line that says in words what a Result found.
func Verdicts() []lookup.Verdict {
	return []lookup.Verdict{
		{If: "rcode = SERVFAIL", Says: "No resolver could answer for {domain} (SERVFAIL)", Tone: lookup.Bad},
		{If: "rcode = YXDOMAIN", Says: "A DNAME leads {domain} to a name that is too long (YXDOMAIN)", Tone: lookup.Bad},
		{If: "rcode = NXDOMAIN", Says: "An alias of {records.0.target name}, which does not exist", Tone: lookup.Warn},
		{If: "records.length = 0", Says: "No {type} records"},
		{If: "records.length = 1 and records.0.address != null", Says: "Address {records.0.address}", Tone: lookup.Good},
		{If: "records.0.address != null", Says: "{records.length} addresses", Tone: lookup.Good},
		{If: "records.length = 1 and records.0.exchange = .", Says: "The domain accepts no mail"},
		{If: "type = MX", Says: "{records count mail server}", Tone: lookup.Good},
		{If: "type = TXT", Says: "{records count text record}", Tone: lookup.Good},
		{If: "type = CNAME", Says: "An alias of {records.0.target name}", Tone: lookup.Good},
		{If: "type = NS", Says: "{records count name server}", Tone: lookup.Good},
		{If: "type = SOA", Says: "Kept by {records.0.mname name}, serial {records.0.serial}", Tone: lookup.Good},
	}
}
