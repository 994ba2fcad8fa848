package dns

import (
	"net/url"
	"slices"
	"strings"

	miekg "github.com/miekg/dns"

	"github.com/hostfacts/hostfacts/pkg/guard"
	"github.com/hostfacts/hostfacts/pkg/lookup"
)

// DefaultType is the record type when none is asked for (spec §4.2).
const DefaultType = "A"

// Query is a normalised question.
type Query struct {
	Domain string // as guard.Domain returns it
	Type   string // A, AAAA, MX, TXT, CNAME, NS or SOA
}

// ParseQuery reads domain and type of spec §4.2, and ignores other parameters. It
// returns invalid_domain or invalid_type.
func ParseQuery(q url.Values) (Query, error) {
	domain, err := guard.DomainParam(q, guard.DNSName)
	if err != nil {
		return Query{}, err
	}
	typ, err := TypeParam(q, "type")
	return Query{Domain: domain, Type: typ}, err
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
		return "", lookup.Faultf(lookup.InvalidType, nil, "%s is repeated: pass one of A, AAAA, MX, TXT, CNAME, NS, SOA.", name)
	}
	t := strings.ToUpper(values[0])
	if qtype(t) == miekg.TypeNone || len(t) != len(values[0]) { // U+017F, two bytes, becomes an S
		return "", lookup.Fault(lookup.InvalidType, nil)
	}
	return t, nil
}

// Values are the parameters as understood, defaults filled in. Two requests
// with equal values ask the same question.
func (q Query) Values() url.Values {
	return url.Values{"domain": {q.Domain}, "type": {q.Type}}
}

// qtype is the number of a record type, TypeNone for one that cannot be asked for.
func qtype(t string) uint16 {
	if slices.Contains([]string{"A", "AAAA", "MX", "TXT", "CNAME", "NS", "SOA"}, t) {
		return miekg.StringToType[t]
	}
	return miekg.TypeNone
}

// Result is the DNS result of spec §2.1.
type Result struct {
	Domain string `json:"domain" doc:"Normalized FQDN that was queried"`
	Type   string `json:"type" doc:"Record type queried" enum:"A,AAAA,MX,TXT,CNAME,NS,SOA" schema:"RecordType"`
	// Rcode is NOERROR, YXDOMAIN, SERVFAIL when that is all the resolvers say, or
	// NXDOMAIN beside the alias that was asked for.
	Rcode    string `json:"rcode" doc:"Resolver response code, such as NOERROR; SERVFAIL and YXDOMAIN come without records"`
	Resolver string `json:"resolver" doc:"Public recursive resolver that answered"`
	// TTL is the lowest of the records and of the aliases that lead to them,
	// in seconds; nil without records.
	TTL *uint32 `json:"ttl" doc:"Lowest TTL among the answers, in seconds; null without records"`
	// Records are of the queried type only, in the order received, at most
	// 1,000 of them and 512 KiB of text; never nil.
	Records []Record `json:"records" doc:"At most 1,000 records and 512 KiB of text; their shape depends on type"`
}

// Record is one of Address, MX, TXT, Target and SOA. Names in records are in
// lower case without the trailing dot, in the escapes of RFC 1035 §5.1; the
// root is ".".
type Record interface{ size() int }

// Address is a record of type A or AAAA, the latter as RFC 5952 writes it.
type Address struct {
	Address string `json:"address" doc:"IPv4 or IPv6 address"`
}

// MX is a mail exchanger; the exchange "." is a null MX (RFC 7505).
type MX struct {
	Preference uint16 `json:"preference" doc:"Lower is tried first"`
	Exchange   string `json:"exchange" doc:"Mail host; . is a null MX (RFC 7505)"`
}

// TXT is a text record: its character-strings as published, and joined
// without a separator.
//
// UTF-8 stands as it is, control characters included. A byte that is not part
// of UTF-8 is written \DDD in decimal, and so is a backslash that three digits follow
// in the record, as \092. So reading each \DDD as a byte gives back the record. Text
// is escaped after joining: a character that is cut in two by a string's end
// is whole there.
type TXT struct {
	Text    string   `json:"text" doc:"The strings joined without a separator; bytes that are not UTF-8 as \\DDD, a backslash before three digits as \\092"`
	Strings []string `json:"strings" doc:"The strings as published" item:"One character-string, written like text"`
}

// Target is a record of type CNAME or NS.
type Target struct {
	Target string `json:"target" doc:"Host name, lower case, no trailing dot"`
}

// SOA is a start of authority (RFC 1035 §3.3.13); the times are in seconds.
type SOA struct {
	MName   string `json:"mname" doc:"Primary name server"`
	RName   string `json:"rname" doc:"Mailbox of the zone, in name form"`
	Serial  uint32 `json:"serial" doc:"Zone version"`
	Refresh uint32 `json:"refresh" doc:"Seconds"`
	Retry   uint32 `json:"retry" doc:"Seconds"`
	Expire  uint32 `json:"expire" doc:"Seconds"`
	Minimum uint32 `json:"minimum" doc:"Negative-caching TTL, seconds"`
}

func (r Address) size() int { return len(r.Address) }
func (r MX) size() int      { return len(r.Exchange) }
func (r Target) size() int  { return len(r.Target) }
func (r SOA) size() int     { return len(r.MName) + len(r.RName) }

// size leaves the strings out: they are the text once more.
func (r TXT) size() int { return len(r.Text) }
