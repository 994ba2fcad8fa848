// Package guard decides which names and addresses the service may look up (spec §1, domain
// guard). It refuses a name with invalid_domain and a message that says what is wrong and
// repeats at most one escaped character of the input.
//
// A name that passes is spelled like a public fully-qualified domain name. It may still resolve
// to a private address: the operations that connect check that when they resolve it.
package guard

import (
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"

	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// Grammar says which labels a name may have.
type Grammar int

const (
	// Hostname takes letters, digits and inner hyphens only (RFC 1123).
	Hostname Grammar = iota
	// DNSName takes underscores as well, as in _dmarc.example.com, but not in the last label.
	DNSName
)

const (
	// Limits of a name in its A-label form, without the dot of the root (RFC 1035 §2.3.4).
	maxName  = 253
	maxLabel = 63

	// maxInput bounds the bytes of a raw value before any work is done on it. A name in
	// Unicode can need up to about four times the bytes of its A-label form.
	maxInput = 1024
)

// Codes returns the codes of a name, and those of a Connector about it.
func Codes() []fault.Code {
	return []fault.Code{lookup.InvalidDomain, lookup.BlockedAddress, lookup.NXDomain, lookup.ConnectFailed}
}

// Query is the query of a tool that takes the name of a host and nothing else.
type Query struct {
	Domain string // as Domain returns it for a Hostname
}

// ParseQuery parses domain, and ignores other parameters. Its error is invalid_domain.
func ParseQuery(q url.Values) (Query, error) {
	domain, err := DomainParam(q, Hostname)
	return Query{Domain: domain}, err
}

// Values returns the parameters as they were understood. Requests with equal ones are the same.
func (q Query) Values() url.Values { return url.Values{"domain": {q.Domain}} }

// DomainParam returns the domain parameter of a query, normalised like
// Domain. No value, an empty one or several are invalid_domain.
func DomainParam(q url.Values, g Grammar) (string, error) {
	switch v := q["domain"]; len(v) {
	case 0:
		return "", refuse("is missing: pass one public fully-qualified domain name, such as example.com.")
	case 1:
		return Domain(v[0], g)
	}
	return "", refuse("is repeated: pass it once.")
}

// Domain returns raw as a normalised name: A-labels, lower case, no trailing
// dot. Everything that is not a public fully-qualified name under the grammar
// is invalid_domain. A name that Domain returned is returned as it is.
//
// Internationalised names are mapped by UTS #46 first and checked afterwards, because the
// mapping turns other characters into digits, dots and slashes and drops invisible ones.
func Domain(raw string, g Grammar) (string, error) {
	switch {
	case raw == "":
		return "", refuse("is empty.")
	case len(raw) > maxInput:
		return "", refuse(tooLong)
	case !utf8.ValidString(raw):
		return "", refuse("is not valid UTF-8.")
	}
	// The dots of UTS #46 §2.3: ideographic, fullwidth and halfwidth ideographic. The capital
	// sharp s is a small one since Unicode 15.1, and "ss" to the library, which has 15.0.
	raw = strings.NewReplacer("\u3002", ".", "\uff0e", ".", "\uff61", ".", "\u1e9e", "\u00df").Replace(raw)
	if isAddress(raw) {
		return "", refuse(isAnAddress)
	}
	pieces := []string{raw}
	if g == DNSName && strings.Contains(raw, "_") { // which IDNA does not know: label by label
		pieces = strings.Split(raw, ".")
	}
	for i, piece := range pieces {
		mapped, err := mapIDNA(piece)
		if err != nil {
			return "", err
		}
		pieces[i] = mapped
	}
	name := strings.TrimSuffix(strings.Join(pieces, "."), ".")
	if err := check(name, g); err != nil {
		return "", err
	}
	return name, nil
}

// isAddress recognises forms of IP addresses that check would refuse for a colon or a bracket.
func isAddress(raw string) bool {
	if _, err := netip.ParseAddrPort(raw); err == nil {
		return true
	}
	bare := strings.TrimSuffix(strings.TrimPrefix(raw, "["), "]")
	_, err := netip.ParseAddr(bare)
	return err == nil
}

// check holds a mapped name without its trailing dot to the grammar and to the public DNS.
func check(name string, g Grammar) error {
	switch {
	case name == "":
		return refuse("is the root: pass a fully-qualified domain name.")
	case len(name) > maxName:
		return refuse(tooLong)
	}
	labels := strings.Split(name, ".")
	last := len(labels) - 1
	for i, label := range labels {
		switch {
		case label == "":
			return refuse("has an empty label: dots must not be first, doubled or more than one at the end.")
		case len(label) > maxLabel:
			return refuse("has a label that is too long: a label has at most 63 characters.")
		}
		underscores := g == DNSName && i != last
		for _, r := range label {
			allowed := isHostRune(r) || (r == '_' && underscores)
			if !allowed {
				return refuseRune(r)
			}
		}
		if strings.Trim(label, "-") != label {
			return refuse("has a label that starts or ends with a hyphen.")
		}
	}
	switch {
	case isNumber(labels[last]):
		return refuse(isAnAddress)
	case last == 0:
		return refuse("is a single label: pass a fully-qualified domain name.")
	case isSpecial(name):
		return refuse("is not public: it lies under a special-use, private or metadata name.")
	}
	return nil
}

// mapIDNA maps a name to lower-case A-labels by UTS #46 with strict ASCII rules and the bidi
// rule. It would refuse real hosts in plain ASCII with "--" in the third and fourth place.
// Lengths and empty labels are left to check.
func mapIDNA(name string) (string, error) {
	lower := strings.ToLower(name)
	plain := !strings.ContainsFunc(name, func(r rune) bool { return r >= utf8.RuneSelf })
	if plain && !strings.HasPrefix(lower, "xn--") && !strings.Contains(lower, ".xn--") {
		return lower, nil
	}
	p := idna.New(idna.MapForLookup(), idna.BidiRule(), idna.CheckHyphens(false))
	a, err := p.ToASCII(name)
	if err == nil {
		// The library looks for right-to-left characters before it maps, and a symbol can
		// map to a letter of such a script. So its output is checked as well.
		a, err = p.ToASCII(a)
	}
	if err == nil {
		return a, nil
	}
	for _, r := range lower {
		if r < utf8.RuneSelf && !isHostRune(r) && r != '.' {
			return "", refuseRune(r)
		}
	}
	// The library's error quotes the label; names that are looked up are not logged.
	return "", refuse("is not a valid internationalised name.")
}

// isNumber reports whether a last label makes the name an IPv4 address to
// URL parsers and inet_aton: all digits, or 0x and hexadecimal digits, if any
// (WHATWG URL, "ends in a number"). No top-level domain looks like that.
func isNumber(label string) bool {
	if rest, ok := strings.CutPrefix(label, "0x"); ok {
		return strings.Trim(rest, "0123456789abcdef") == ""
	}
	return strings.Trim(label, "0123456789") == ""
}

// isSpecial reports whether a normalised name is, or lies under, a name that
// is not part of the public DNS or that must not be looked up.
func isSpecial(name string) bool {
	for {
		switch name {
		case
			// Special-use domain names (IANA registry of RFC 6761 and its
			// successors: RFC 6762, 7686, 9476 and the whole of arpa).
			"localhost", "local", "test", "example", "invalid", "onion", "alt", "arpa",
			// Kept for private use, or refused delegation, by ICANN.
			"internal", "corp", "home", "mail",
			// Private by practice (RFC 6762 appendix G).
			"lan", "intranet", "private", "localdomain", "domain", "workgroup",
			// A cloud's metadata service under a public top-level domain.
			"metadata.goog":
			return true
		}
		_, parent, more := strings.Cut(name, ".")
		if !more {
			return false
		}
		name = parent
	}
}

func isHostRune(r rune) bool {
	return 'a' <= r && r <= 'z' || '0' <= r && r <= '9' || r == '-'
}

// Texts of more than one refusal.
const (
	tooLong     = "is too long: a name has at most 253 characters."
	isAnAddress = "is an IP address: pass a domain name."
)

func refuse(what string) error {
	return lookup.Faultf(lookup.InvalidDomain, nil, "domain %s", what)
}

func refuseRune(r rune) error {
	q := strconv.QuoteRuneToASCII(r)
	switch {
	case r == '_':
		return refuse("has an underscore where a host name has none.")
	case strings.ContainsRune(":/@?#[]\\", r):
		return refuse("has the character " + q + ": pass a bare name, without scheme, user, port, path or query.")
	}
	return refuse("has the character " + q + ", which no domain name has.")
}
