package dns

import (
	"net/url"
	"strings"

	miekg "github.com/miekg/dns"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/guard"
)

// DefaultType is the record type when none is asked for (spec §4.2).
const DefaultType = "A"

// Query is a normalised question.
type Query struct {
	Domain string // as guard.Domain returns it
	Type   string // A, AAAA, MX, TXT, CNAME, NS or SOA
}

// ParseQuery reads domain and type of spec §4.2. It returns invalid_domain or
// invalid_type. Other parameters are ignored.
func ParseQuery(q url.Values) (Query, error) {
	domain, err := guard.DomainParam(q, guard.DNSName)
	if err != nil {
		return Query{}, err
	}
	typ, err := TypeParam(q, "type")
	if err != nil {
		return Query{}, err
	}
	return Query{Domain: domain, Type: typ}, nil
}

// TypeParam reads a record type in either letter case from the parameter with
// the given name, DefaultType if it is absent. An unknown, empty or repeated
// value is invalid_type.
func TypeParam(q url.Values, name string) (string, error) {
	values, ok := q[name]
	switch {
	case !ok:
		return DefaultType, nil
	case len(values) != 1:
		return "", fault.Newf(fault.InvalidType, nil, "%s is repeated: pass one of A, AAAA, MX, TXT, CNAME, NS, SOA.", name)
	}
	// Longer than any type, and strings.ToUpper would make an S of U+017F.
	if v := values[0]; len(v) <= len("CNAME") && !strings.ContainsFunc(v, func(r rune) bool { return r > '~' }) {
		if t := strings.ToUpper(v); qtype(t) != miekg.TypeNone {
			return t, nil
		}
	}
	return "", fault.New(fault.InvalidType, nil)
}

// Values are the parameters as understood, defaults filled in. Two requests
// with equal values ask the same question.
func (q Query) Values() url.Values {
	return url.Values{"domain": {q.Domain}, "type": {q.Type}}
}

// qtype is the number of a record type, TypeNone for one that cannot be asked
// for.
func qtype(t string) uint16 {
	switch t {
	case "A":
		return miekg.TypeA
	case "AAAA":
		return miekg.TypeAAAA
	case "MX":
		return miekg.TypeMX
	case "TXT":
		return miekg.TypeTXT
	case "CNAME":
		return miekg.TypeCNAME
	case "NS":
		return miekg.TypeNS
	case "SOA":
		return miekg.TypeSOA
	}
	return miekg.TypeNone
}
