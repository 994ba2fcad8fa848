package dns

import (
	"net/url"
	"slices"
	"strings"

	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/lookup/guard"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// DefaultType is the record type of a query without a type (spec §4.2).
const DefaultType = "A"

// Query is a normalised question, as returned by ParseQuery.
type Query struct {
	Domain string // as guard.Domain returns it
	Type   string // A, AAAA, MX, TXT, CNAME, NS or SOA
}

// Codes returns the codes of the errors that ParseQuery and Client.Lookup can return.
func Codes() []fault.Code {
	return []fault.Code{
		lookup.InvalidDomain,
		lookup.InvalidType,
		lookup.NXDomain,
		lookup.UpstreamUnavailable,
		lookup.DNSTimeout,
	}
}

// ParseQuery parses the parameters domain and type of spec §4.2 and ignores all others. Its
// errors are invalid_domain and invalid_type.
func ParseQuery(q url.Values) (Query, error) {
	domain, err := guard.DomainParam(q, guard.DNSName)
	if err != nil {
		return Query{}, err
	}
	typ, err := TypeParam(q, "type")
	return Query{Domain: domain, Type: typ}, err
}

// TypeParam parses a record type, in upper or lower case, from the parameter called name. It
// returns DefaultType if the parameter is absent.
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
	if !known || len(t) != len(values[0]) { // the length changes if ToUpper turns U+017F, of two bytes, into S
		return "", lookup.Fault(lookup.InvalidType, nil)
	}
	return t, nil
}

// Values returns the normalised parameters. Two requests are the same if their values are
// equal.
func (q Query) Values() url.Values {
	return url.Values{"domain": {q.Domain}, "type": {q.Type}}
}

// Result is the DNS result of spec §2.1.
type Result struct {
	Domain string `json:"domain" doc:"Normalized FQDN queried"`
	Type   string `json:"type" doc:"Record type queried" enum:"A,AAAA,MX,TXT,CNAME,NS,SOA" schema:"RecordType"`
	// Rcode is NOERROR, YXDOMAIN, SERVFAIL or NXDOMAIN. SERVFAIL means that a resolver replied
	// SERVFAIL and none gave an answer. NXDOMAIN means that the queried alias, which is then
	// in Records, leads to a name that does not exist.
	Rcode    string `json:"rcode" doc:"Such as NOERROR; SERVFAIL and YXDOMAIN have no records"`
	Resolver string `json:"resolver" doc:"Resolver that answered"`
	// TTL is the lowest TTL of the records and of the aliases that lead to them.
	TTL *uint32 `json:"ttl" doc:"Lowest TTL, in seconds; null without records" show:"seconds"`
	// Records has only records of the queried type, in the order received. It is never nil.
	Records []Record `json:"records" doc:"At most 1,000; type decides their fields"`
}

// Verdicts returns the rules for the line that summarises a Result.
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
		{If: "type = SOA", Says: "Primary server {records.0.mname name}, serial {records.0.serial}", Tone: lookup.Good},
	}
}
