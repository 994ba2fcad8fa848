package ssl

import (
	"net/url"
	"slices"
	"strconv"

	"github.com/hostfacts/hostfacts/pkg/guard"
	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/origin"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// Query is a normalised question; the port is always origin.Port.
type Query struct {
	Domain string // as guard.Domain returns it
}

// Codes are those that a query and its lookup can answer.
func Codes() []fault.Code {
	return append(guard.Codes(), lookup.InvalidPort, lookup.HandshakeFailed, lookup.SSLTimeout)
}

// ParseQuery reads domain and port of spec §4.3. It returns invalid_domain or
// invalid_port. Other parameters are ignored.
func ParseQuery(q url.Values) (Query, error) {
	domain, err := guard.DomainParam(q, guard.Hostname)
	if err != nil {
		return Query{}, err
	}
	switch p, ok := q["port"]; {
	case len(p) > 1:
		return Query{}, lookup.Faultf(lookup.InvalidPort, nil, "port is repeated: leave it out or pass 443 once.")
	case ok && !slices.Equal(p, []string{strconv.Itoa(origin.Port)}): // a port that needs interpretation is not 443
		return Query{}, lookup.Fault(lookup.InvalidPort, nil)
	}
	return Query{Domain: domain}, nil
}

// Values are the parameters as understood, defaults filled in. Two requests
// with equal values ask the same question.
func (q Query) Values() url.Values {
	return url.Values{"domain": {q.Domain}, "port": {strconv.Itoa(origin.Port)}}
}

// Bounds of sans. They cut what is shown, not what hostname_match looks at.
const (
	maxNames     = 5000
	maxNamesText = 256 << 10 // bytes
)

// Result is the SSL result of spec §2.2. Its text comes from the server and
// is untrusted; it is valid UTF-8.
type Result struct {
	Domain string `json:"domain" doc:"Normalized FQDN inspected"`
	Port   int    `json:"port" doc:"TLS port; always 443"`
	SNI    string `json:"sni" doc:"SNI hostname sent in the handshake"`
	PeerIP string `json:"peer_ip" doc:"Connected peer IP address"`
	// TLSVersion is tlsv1, tlsv1.1, tlsv1.2 or tlsv1.3, as the server chose
	// it; nil when it chose another.
	TLSVersion *string `json:"tls_version" doc:"Negotiated TLS protocol, such as tlsv1.3; null if none was"`
	// Cipher is the IANA name in lower case of what the server chose; nil when it
	// has none.
	Cipher *string `json:"cipher" doc:"Negotiated cipher suite, lower case with underscores; null if none was"`
	// Subject and Issuer are in the form of RFC 4514; "" for an empty name.
	Subject string `json:"subject" doc:"Leaf certificate subject DN"`
	Issuer  string `json:"issuer" doc:"Leaf certificate issuer DN"`
	// Serial is the integer in whole bytes without sign padding, "00" for
	// zero; a negative one has a "-" before its absolute value.
	Serial string `json:"serial" doc:"Leaf serial number, lowercase hex"`
	// NotBefore and NotAfter are in whole seconds; both are inclusive.
	NotBefore     string `json:"not_before" doc:"Validity start, ISO 8601 UTC" show:"time"`
	NotAfter      string `json:"not_after" doc:"Validity end, ISO 8601 UTC" show:"time"`
	Expired       bool   `json:"expired" doc:"True when now is after not_after"`
	NotYetValid   bool   `json:"not_yet_valid" doc:"True when now is before not_before"`
	HostnameMatch bool   `json:"hostname_match" doc:"True when the leaf matches the requested hostname"`
	// SANs are the dNSName entries as in the certificate, at most 5,000 of them and
	// 256 KiB of text; never nil. Bytes that are not UTF-8 are U+FFFD.
	SANs              []string `json:"sans" doc:"DNS names of the subjectAltName"`
	FingerprintSHA256 string   `json:"fingerprint_sha256" doc:"SHA-256 of the leaf certificate in DER form, hex"`
	// SignatureAlgorithm is the name that its RFC gives it, else the dotted OID.
	SignatureAlgorithm string `json:"signature_algorithm" doc:"Leaf signature algorithm name"`
}

// Verdicts are the rules for the line that says in words what a Result found.
func Verdicts() []lookup.Verdict {
	return []lookup.Verdict{
		{If: "expired = true", Says: "Expired {not_after date}, {not_after distance}", Tone: lookup.Bad},
		{If: "not_yet_valid = true", Says: "Not valid before {not_before date}, {not_before distance}", Tone: lookup.Bad},
		{If: "hostname_match = false", Says: "The certificate is not for {domain}", Tone: lookup.Bad},
		{Says: "In date, and for {domain}, until {not_after date} ({not_after distance})", Tone: lookup.Good},
	}
}
