// Package guard decides which names and addresses the service may look up (spec §1, domain
// guard). For a name that it refuses, the error is invalid_domain. The message says what is
// wrong, and repeats at most one character of the input, escaped.
//
// A name that the guard accepts is spelled like a public fully-qualified domain name. It may
// still resolve to a private address. So the lookups that connect to a host check the
// addresses after resolving the name.
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

// Grammar selects the labels that a name may have.
type Grammar int

const (
	// Hostname allows only letters, digits and inner hyphens (RFC 1123).
	Hostname Grammar = iota
	// DNSName also allows underscores, as in _dmarc.example.com, except in the last label.
	DNSName
)

const (
	// Limits of a name in its A-label form, without the trailing dot (RFC 1035 §2.3.4).
	maxName  = 253
	maxLabel = 63

	// maxInput is the largest size, in bytes, of a value that is examined at all. A name in
	// Unicode may need up to about four times the bytes of its A-label form.
	maxInput = 1024
)

// Codes returns the codes of the errors that a name can cause: the code for a name that the
// guard refuses, and the codes that a Connector returns.
func Codes() []fault.Code {
	return []fault.Code{lookup.InvalidDomain, lookup.BlockedAddress, lookup.NXDomain, lookup.ConnectFailed}
}

// Query is the query of a lookup whose only parameter is a host name.
type Query struct {
	Domain string // the normalised host name
}

// ParseQuery parses the parameter domain and ignores all others. Its error is invalid_domain.
func ParseQuery(q url.Values) (Query, error) {
	domain, err := DomainParam(q, Hostname)
	return Query{Domain: domain}, err
}

// Values returns the normalised parameters. Two requests are the same if their values are
// equal.
func (q Query) Values() url.Values { return url.Values{"domain": {q.Domain}} }

// DomainParam returns the parameter domain of a query, normalised by Domain. The error is
// invalid_domain if the parameter is missing or repeated, or if Domain refuses it.
func DomainParam(q url.Values, g Grammar) (string, error) {
	switch v := q["domain"]; len(v) {
	case 0:
		return "", invalidDomain("is missing: pass one public fully-qualified domain name, such as example.com.")
	case 1:
		return Domain(v[0], g)
	}
	return "", invalidDomain("is repeated: pass it once.")
}

// Domain returns raw as a normalised name: A-labels, lower case, no trailing dot. The error is
// invalid_domain if raw is not a public fully-qualified name that follows the grammar g.
// Domain returns a normalised name unchanged.
//
// Domain first maps an internationalised name by UTS #46, and checks the name only afterwards,
// because the mapping turns other characters into digits, dots and slashes, and drops
// invisible characters.
func Domain(raw string, g Grammar) (string, error) {
	switch {
	case raw == "":
		return "", invalidDomain("is empty.")
	case len(raw) > maxInput:
		return "", invalidDomain(tooLongText)
	case !utf8.ValidString(raw):
		return "", invalidDomain("is not valid UTF-8.")
	}
	// Apart from the full stop, UTS #46 §2.3 has three other dots between labels: the
	// ideographic, the fullwidth and the halfwidth ideographic full stop. Since Unicode 15.1,
	// the capital sharp s is mapped to the small one. Package idna has Unicode 15.0 and would
	// map it to "ss".
	raw = strings.NewReplacer("\u3002", ".", "\uff0e", ".", "\uff61", ".", "\u1e9e", "\u00df").Replace(raw)
	if isAddress(raw) {
		return "", invalidDomain(isAddressText)
	}
	pieces := []string{raw}
	if g == DNSName && strings.Contains(raw, "_") { // IDNA does not allow underscores, so each label is mapped alone
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
	if err := checkName(name, g); err != nil {
		return "", err
	}
	return name, nil
}

// isAddress reports whether raw is an IP address: alone, in brackets, or with a port. Such a
// text needs a special error. For most of these texts, the usual error would only complain
// about a colon or a bracket.
func isAddress(raw string) bool {
	if _, err := netip.ParseAddrPort(raw); err == nil {
		return true
	}
	unbracketed := strings.TrimSuffix(strings.TrimPrefix(raw, "["), "]")
	_, err := netip.ParseAddr(unbracketed)
	return err == nil
}

// checkName returns an error unless a name follows the grammar and belongs to the public DNS.
// The name must be mapped and have no trailing dot.
func checkName(name string, g Grammar) error {
	switch {
	case name == "":
		return invalidDomain("is the root: pass a fully-qualified domain name.")
	case len(name) > maxName:
		return invalidDomain(tooLongText)
	}
	labels := strings.Split(name, ".")
	last := len(labels) - 1
	for i, label := range labels {
		switch {
		case label == "":
			return invalidDomain("has an empty label: dots must not be first, doubled or more than one at the end.")
		case len(label) > maxLabel:
			return invalidDomain("has a label that is too long: a label has at most 63 characters.")
		}
		allowUnderscore := g == DNSName && i != last
		for _, r := range label {
			isAllowed := isHostRune(r) || (r == '_' && allowUnderscore)
			if !isAllowed {
				return invalidRune(r)
			}
		}
		if strings.Trim(label, "-") != label {
			return invalidDomain("has a label that starts or ends with a hyphen.")
		}
	}
	switch {
	case isNumber(labels[last]):
		return invalidDomain(isAddressText)
	case last == 0:
		return invalidDomain("is a single label: pass a fully-qualified domain name.")
	case isSpecial(name):
		return invalidDomain("is not public: it lies under a special-use, private or metadata name.")
	}
	return nil
}

// mapIDNA maps a name to lower-case A-labels by UTS #46 with strict ASCII rules and the bidi
// rule. Some real hosts have "--" in the third and fourth place, so hyphens are not checked. A
// plain ASCII name is only converted to lower case, because the strict rules would refuse an
// underscore. Lengths and empty labels are checked later, by the function checkName.
func mapIDNA(name string) (string, error) {
	lower := strings.ToLower(name)
	isASCII := !strings.ContainsFunc(name, func(r rune) bool { return r >= utf8.RuneSelf })
	if isASCII && !strings.HasPrefix(lower, "xn--") && !strings.Contains(lower, ".xn--") {
		return lower, nil
	}
	p := idna.New(idna.MapForLookup(), idna.BidiRule(), idna.CheckHyphens(false))
	a, err := p.ToASCII(name)
	if err == nil {
		// Package idna looks for right-to-left characters before it maps the name, but a
		// symbol can map to a letter of a right-to-left script. So the mapped name is checked
		// once more.
		a, err = p.ToASCII(a)
	}
	if err == nil {
		return a, nil
	}
	for _, r := range lower {
		if r < utf8.RuneSelf && !isHostRune(r) && r != '.' {
			return "", invalidRune(r)
		}
	}
	// The error of package idna is dropped, because it quotes the label, and names that are
	// looked up must not be logged.
	return "", invalidDomain("is not a valid internationalised name.")
}

// isNumber reports whether URL parsers and inet_aton would take a name for an IPv4 address
// because of its last label. They do so if the label consists of digits, or of 0x and any
// number of hexadecimal digits (WHATWG URL, "ends in a number"). No top-level domain looks
// like that.
func isNumber(label string) bool {
	if rest, ok := strings.CutPrefix(label, "0x"); ok {
		return strings.Trim(rest, "0123456789abcdef") == ""
	}
	return strings.Trim(label, "0123456789") == ""
}

// isSpecial reports whether a normalised name is special, or is below a special name. A
// special name is not part of the public DNS, or must not be looked up.
func isSpecial(name string) bool {
	for {
		switch name {
		case
			// The special-use domain names of IANA's registry (RFC 6761, 6762, 7686 and 9476).
			// The registry has only some names under arpa; the guard refuses all of them.
			"localhost", "local", "test", "example", "invalid", "onion", "alt", "arpa",
			// ICANN has reserved these for private use, or refused to delegate them.
			"internal", "corp", "home", "mail",
			// Private in practice (RFC 6762 appendix G).
			"lan", "intranet", "private", "localdomain", "domain", "workgroup",
			// The metadata service of Google Cloud, below the public top-level domain goog.
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

// Messages that more than one refusal uses.
const (
	tooLongText   = "is too long: a name has at most 253 characters."
	isAddressText = "is an IP address: pass a domain name."
)

func invalidDomain(problem string) error {
	return lookup.Faultf(lookup.InvalidDomain, nil, "domain %s", problem)
}

func invalidRune(r rune) error {
	q := strconv.QuoteRuneToASCII(r)
	switch {
	case r == '_':
		return invalidDomain("has an underscore where a host name has none.")
	case strings.ContainsRune(":/@?#[]\\", r):
		return invalidDomain("has the character " + q + ": pass a bare name, without scheme, user, port, path or query.")
	}
	return invalidDomain("has the character " + q + ", which no domain name has.")
}
