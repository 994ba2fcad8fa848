// Package guard decides which names and addresses the service may look up (spec §1, domain
// guard). It refuses a name with invalid_domain. The message says what is wrong, and repeats
// at most one character of the input, escaped.
//
// A name that passes is spelled like a public fully-qualified domain name. It may still
// resolve to a private address. The operations that connect check its addresses after
// resolving it.
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

	// maxInput is the largest size of a raw value in bytes, checked before any other work. A
	// name in Unicode can need up to about four times the bytes of its A-label form.
	maxInput = 1024
)

// Codes returns the error codes for a name, including those of a Connector.
func Codes() []fault.Code {
	return []fault.Code{lookup.InvalidDomain, lookup.BlockedAddress, lookup.NXDomain, lookup.ConnectFailed}
}

// Query is the query of a tool whose only parameter is a host name.
type Query struct {
	Domain string // as Domain returns it for the grammar Hostname
}

// ParseQuery parses the parameter domain and ignores others. Its error is invalid_domain.
func ParseQuery(q url.Values) (Query, error) {
	domain, err := DomainParam(q, Hostname)
	return Query{Domain: domain}, err
}

// Values returns the normalised parameters. Requests with equal values are the same request.
func (q Query) Values() url.Values { return url.Values{"domain": {q.Domain}} }

// DomainParam returns the domain parameter of a query, normalised by Domain. A missing, empty
// or repeated parameter is invalid_domain.
func DomainParam(q url.Values, g Grammar) (string, error) {
	switch v := q["domain"]; len(v) {
	case 0:
		return "", refuse("is missing: pass one public fully-qualified domain name, such as example.com.")
	case 1:
		return Domain(v[0], g)
	}
	return "", refuse("is repeated: pass it once.")
}

// Domain returns raw as a normalised name: A-labels, lower case, no trailing dot. The error is
// invalid_domain if raw is not a public fully-qualified name under the grammar. A name that
// Domain has returned is returned unchanged.
//
// Internationalised names are first mapped by UTS #46 and then checked, because the mapping
// turns other characters into digits, dots and slashes, and drops invisible characters.
func Domain(raw string, g Grammar) (string, error) {
	switch {
	case raw == "":
		return "", refuse("is empty.")
	case len(raw) > maxInput:
		return "", refuse(tooLong)
	case !utf8.ValidString(raw):
		return "", refuse("is not valid UTF-8.")
	}
	// UTS #46 §2.3 has three more dots: ideographic, fullwidth and halfwidth ideographic. The
	// capital sharp s is mapped to the small one since Unicode 15.1. The library has Unicode
	// 15.0 and would map it to "ss".
	raw = strings.NewReplacer("\u3002", ".", "\uff0e", ".", "\uff61", ".", "\u1e9e", "\u00df").Replace(raw)
	if isAddress(raw) {
		return "", refuse(isAnAddress)
	}
	pieces := []string{raw}
	if g == DNSName && strings.Contains(raw, "_") { // IDNA does not allow underscores, so map each label alone
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

// isAddress reports whether raw is an IP address that the function check would refuse only
// because of a colon or a bracket.
func isAddress(raw string) bool {
	if _, err := netip.ParseAddrPort(raw); err == nil {
		return true
	}
	bare := strings.TrimSuffix(strings.TrimPrefix(raw, "["), "]")
	_, err := netip.ParseAddr(bare)
	return err == nil
}

// check returns an error unless a mapped name, without its trailing dot, follows the grammar
// and belongs to the public DNS.
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
// rule. These rules would refuse real ASCII hosts that have "--" in the third and fourth
// place, so plain ASCII names are only converted to lower case. The function check tests
// lengths and empty labels.
func mapIDNA(name string) (string, error) {
	lower := strings.ToLower(name)
	plain := !strings.ContainsFunc(name, func(r rune) bool { return r >= utf8.RuneSelf })
	if plain && !strings.HasPrefix(lower, "xn--") && !strings.Contains(lower, ".xn--") {
		return lower, nil
	}
	p := idna.New(idna.MapForLookup(), idna.BidiRule(), idna.CheckHyphens(false))
	a, err := p.ToASCII(name)
	if err == nil {
		// The library looks for right-to-left characters before it maps the name, but a symbol
		// can map to a letter of such a script. So its output is checked as well.
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
	// The error of the library quotes the label, and names that are looked up must not be
	// logged. So the error is dropped.
	return "", refuse("is not a valid internationalised name.")
}

// isNumber reports whether URL parsers and inet_aton would take a name with this last label
// for an IPv4 address. That is the case if the label is all digits, or 0x and any hexadecimal
// digits (WHATWG URL, "ends in a number"). No top-level domain looks like that.
func isNumber(label string) bool {
	if rest, ok := strings.CutPrefix(label, "0x"); ok {
		return strings.Trim(rest, "0123456789abcdef") == ""
	}
	return strings.Trim(label, "0123456789") == ""
}

// isSpecial reports whether a normalised name is, or is below, a name that is not part of the
// public DNS or must not be looked up.
func isSpecial(name string) bool {
	for {
		switch name {
		case
			// Special-use domain names (the IANA registry of RFC 6761 and its successors: RFC
			// 6762, 7686, 9476 and the whole of arpa).
			"localhost", "local", "test", "example", "invalid", "onion", "alt", "arpa",
			// Reserved for private use, or refused delegation, by ICANN.
			"internal", "corp", "home", "mail",
			// Private in practice (RFC 6762 appendix G).
			"lan", "intranet", "private", "localdomain", "domain", "workgroup",
			// The metadata service of a cloud, under a public top-level domain.
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
