package dns

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"unicode/utf8"

	miekg "github.com/miekg/dns"
)

const (
	// Bounds of a result. A reply over TCP has room for 4,000 addresses, and
	// compression lets it repeat a long name in every record. 512 KiB hold any TXT
	// answer, each byte escaped.
	maxRecords = 1000
	maxText    = 512 << 10

	// The shortest MX and SOA on the wire: numbers, and one or two roots. The parser
	// takes a shorter one for a record with zeros.
	minMX  = 2 + 1
	minSOA = 5*4 + 2
)

// records are the answers in the result's shape, and the lowest TTL among them
// and the aliases that lead to them; nil without records.
func (r *reply) records() ([]Record, *uint32) {
	out, lowest, text := []Record{}, r.ttl, 0
	for _, rr := range r.found {
		record := record(rr)
		if record == nil {
			continue
		}
		if text += record.size(); len(out) == maxRecords || text > maxText {
			break
		}
		out = append(out, record)
		lowest = min(lowest, ttl(rr))
	}
	if len(out) == 0 {
		return out, nil
	}
	return out, &lowest
}

// ttl is a record's TTL in seconds; one with the top bit set counts as 0
// (RFC 2181 §8).
func ttl(rr miekg.RR) uint32 {
	if t := rr.Header().Ttl; t < 1<<31 {
		return t
	}
	return 0
}

// record is a resource record in the result's shape, nil for one without
// proper data: the parser takes empty or short data for absent fields.
func record(rr miekg.RR) Record {
	shortest := map[uint16]uint16{miekg.TypeMX: minMX, miekg.TypeSOA: minSOA}
	if h := rr.Header(); h.Rdlength < max(1, shortest[h.Rrtype]) {
		return nil
	}
	switch r := rr.(type) {
	case *miekg.A:
		return Address{Address: r.A.String()}
	case *miekg.AAAA:
		return Address{Address: netip.AddrFrom16([16]byte(r.AAAA)).String()} // also a mapped one
	case *miekg.MX:
		return MX{Preference: r.Preference, Exchange: host(r.Mx)}
	case *miekg.TXT:
		return text(r.Txt)
	case *miekg.CNAME:
		return Target{Target: host(r.Target)}
	case *miekg.NS:
		return Target{Target: host(r.Ns)}
	case *miekg.SOA:
		if r.Mbox != "" {
			return SOA{
				MName: host(r.Ns), RName: host(r.Mbox), Serial: r.Serial,
				Refresh: r.Refresh, Retry: r.Retry, Expire: r.Expire, Minimum: r.Minttl,
			}
		}
	}
	return nil
}

// lower lowers a name in presentation form, which is ASCII whatever bytes it
// stands for; so no escape changes. Two names are equal if this is equal.
func lower(name string) string { return strings.ToLower(name) }

// host is a name from the wire as results show it: lower case, without the dot
// of the root, which itself stays ".".
func host(name string) string {
	if name == "." {
		return name
	}
	return strings.TrimSuffix(lower(name), ".")
}

// text makes a TXT record of character-strings in presentation form.
func text(escaped []string) TXT {
	var all []byte
	out := TXT{Strings: make([]string, len(escaped))}
	for i, s := range escaped {
		b := unescape(s)
		out.Strings[i] = readable(b)
		all = append(all, b...)
	}
	out.Text = readable(all)
	return out
}

// unescape gives the bytes of a character-string in the DNS library's form: \DDD for
// bytes outside printable ASCII, \X for the character X.
func unescape(s string) (out []byte) {
	for ; s != ""; s = s[1:] {
		if s[0] == '\\' {
			if s = s[1:]; threeDigits(s) {
				n, _ := strconv.Atoi(s[:3]) // below 256
				out = append(out, byte(n))
				s = s[2:]
				continue
			}
		}
		out = append(out, s[0])
	}
	return out
}

// readable writes bytes as valid UTF-8 by the rule that TXT documents.
func readable(b []byte) string {
	var out strings.Builder
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		if r == utf8.RuneError && n == 1 || r == '\\' && threeDigits(string(b[1:min(4, len(b))])) {
			fmt.Fprintf(&out, `\%03d`, b[0])
		} else {
			out.Write(b[:n])
		}
		b = b[n:]
	}
	return out.String()
}

func threeDigits(s string) bool { return len(s) >= 3 && strings.Trim(s[:3], "0123456789") == "" }
