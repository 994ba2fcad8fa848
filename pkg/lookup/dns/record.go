package dns

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"unicode/utf8"

	miekg "github.com/miekg/dns"
)

// Record is an Address, MX, TXT, Target or SOA. Names in records are in lower case, without
// the trailing dot, and with the escapes of RFC 1035 §5.1. The root is ".". The method size
// returns the length of the record's texts and names. For a TXT it counts only the field Text.
type Record interface{ size() int }

// Address is a record of type A or AAAA. An IPv6 address is written as in RFC 5952.
type Address struct {
	Address string `json:"address" doc:"IPv4 or IPv6 address"`
}

// MX is a mail exchanger.
type MX struct {
	Preference uint16 `json:"preference" doc:"Lower is tried first"`
	Exchange   string `json:"exchange" doc:"Mail host; . is a null MX (RFC 7505)"`
}

// TXT is a text record. A byte that is not part of valid UTF-8 is written as \DDD in decimal.
// A backslash that is followed by three digits in the record is written the same way. So a
// reader can restore the original bytes by replacing each \DDD with its byte. The field Text
// is escaped after the strings are joined, so a character that is split over two strings is
// whole there.
type TXT struct {
	Text    string   `json:"text" doc:"The strings joined without a separator; a byte that is not UTF-8 becomes \\DDD (decimal), and a backslash before three digits becomes \\092"`
	Strings []string `json:"strings" doc:"The strings as published" item:"One character-string, written like text"`
}

// Target is a record of type CNAME or NS.
type Target struct {
	Target string `json:"target" doc:"Host name, lower case, no trailing dot"`
}

// SOA is a start-of-authority record (RFC 1035 §3.3.13).
type SOA struct {
	MName   string `json:"mname" doc:"Primary name server"`
	RName   string `json:"rname" doc:"Mailbox of the zone's administrator, as a name"`
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
func (r TXT) size() int     { return len(r.Text) }

// reader converts resource records of one type to Records.
type reader struct {
	minSize uint16 // the smallest number of bytes that valid data has
	read    func(miekg.RR) Record
}

func newReader[R miekg.RR](minSize uint16, read func(R) Record) reader {
	return reader{minSize, func(rr miekg.RR) Record {
		if r, ok := rr.(R); ok {
			return read(r)
		}
		return nil
	}}
}

// readers has a reader for each type that Lookup supports. TypeParam decides which of these
// types a parameter may name. The shortest MX record has a number and one root name. The
// shortest SOA record has two root names and five numbers.
var readers = sync.OnceValue(func() map[uint16]reader {
	return map[uint16]reader{
		miekg.TypeA:     newReader(1, func(r *miekg.A) Record { return Address{Address: r.A.String()} }),
		miekg.TypeAAAA:  newReader(1, readAAAA),
		miekg.TypeMX:    newReader(2+1, func(r *miekg.MX) Record { return MX{Preference: r.Preference, Exchange: resultName(r.Mx)} }),
		miekg.TypeTXT:   newReader(1, readTXT),
		miekg.TypeCNAME: newReader(1, func(r *miekg.CNAME) Record { return Target{Target: resultName(r.Target)} }),
		miekg.TypeNS:    newReader(1, func(r *miekg.NS) Record { return Target{Target: resultName(r.Ns)} }),
		miekg.TypeSOA:   newReader(5*4+2, readSOA),
	}
})

// convertRecord converts a resource record to a Record. It returns nil if the resource record
// has no valid data. It checks the length because the parser accepts empty or short data and
// leaves the missing fields zero.
func convertRecord(rr miekg.RR) Record {
	h := rr.Header()
	r, ok := readers()[h.Rrtype]
	if !ok || h.Rdlength < r.minSize {
		return nil
	}
	return r.read(rr)
}

// readAAAA converts an AAAA record and keeps an IPv4-mapped address as IPv6.
func readAAAA(r *miekg.AAAA) Record {
	return Address{Address: netip.AddrFrom16([16]byte(r.AAAA)).String()}
}

func readSOA(r *miekg.SOA) Record {
	if r.Mbox == "" {
		return nil
	}
	return SOA{
		MName:   resultName(r.Ns),
		RName:   resultName(r.Mbox),
		Serial:  r.Serial,
		Refresh: r.Refresh,
		Retry:   r.Retry,
		Expire:  r.Expire,
		Minimum: r.Minttl,
	}
}

// resultName converts a name in a message to the form that results use.
func resultName(name string) string {
	if name == "." {
		return name
	}
	return strings.TrimSuffix(lowerName(name), ".")
}

// readTXT reads the character-strings of a record from its wire form (RFC 1035 §3.3.14),
// because the parser returns them with escapes.
func readTXT(r *miekg.TXT) Record {
	var wire miekg.RFC3597
	if err := wire.ToRFC3597(r); err != nil {
		panic(fmt.Sprintf("pack what was parsed: %v", err))
	}
	rest, _ := hex.DecodeString(wire.Rdata)
	var all []byte
	var out TXT
	for len(rest) > 0 {
		end := 1 + int(rest[0])
		out.Strings = append(out.Strings, escapeText(rest[1:end]))
		all = append(all, rest[1:end]...)
		rest = rest[end:]
	}
	out.Text = escapeText(all)
	return out
}

// escapeText returns bytes as valid UTF-8, with the escapes that the type TXT documents.
func escapeText(b []byte) string {
	var out strings.Builder
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		invalid := r == utf8.RuneError && n == 1
		likeEscape := r == '\\' && beginsWithThreeDigits(string(b[1:min(4, len(b))]))
		if invalid || likeEscape {
			fmt.Fprintf(&out, `\%03d`, b[0])
		} else {
			out.Write(b[:n])
		}
		b = b[n:]
	}
	return out.String()
}

func beginsWithThreeDigits(s string) bool {
	return len(s) >= 3 && strings.Trim(s[:3], "0123456789") == ""
}
