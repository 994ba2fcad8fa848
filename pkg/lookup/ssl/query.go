package ssl

import (
	"cmp"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"math/big"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/guard"
	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/origin"
)

// Query is a normalised question; the port is always origin.Port.
type Query struct {
	Domain string // as guard.Domain returns it
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
	// it; nil when it chose another. A handshake that did not go on after the
	// certificate has one, too.
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
	// SANs are the dNSName entries in the order and the letter case of the
	// certificate, at most 5,000 of them and 256 KiB of text; never nil. Bytes
	// that are not UTF-8 are U+FFFD.
	SANs              []string `json:"sans" doc:"DNS names of the subjectAltName"`
	FingerprintSHA256 string   `json:"fingerprint_sha256" doc:"SHA-256 of the leaf certificate in DER form, hex"`
	// SignatureAlgorithm is the name that the algorithm's RFC gives it, the
	// dotted OID for one without a name here.
	SignatureAlgorithm string `json:"signature_algorithm" doc:"Leaf signature algorithm name"`
}

// result joins what was seen with the question. The only error is errNotACertificate.
func (f flight) result(q Query, peer netip.Addr, now time.Time) (Result, error) {
	c, err := readCertificate(f.leaf)
	if err != nil {
		return Result{}, err
	}
	sum := sha256.Sum256(c.der)
	const stamp = "2006-01-02T15:04:05Z"
	r := Result{
		Domain: q.Domain, Port: origin.Port, SNI: q.Domain, PeerIP: peer.String(),
		Subject: c.subject, Issuer: c.issuer, Serial: serialText(c.serial),
		NotBefore: c.notBefore.Format(stamp), NotAfter: c.notAfter.Format(stamp),
		Expired: now.After(c.notAfter), NotYetValid: now.Before(c.notBefore),
		// RFC 9525: dNSName entries only; the wildcard is the whole left-most label and
		// stands for exactly one.
		HostnameMatch:      (&x509.Certificate{DNSNames: c.names}).VerifyHostname(q.Domain) == nil,
		SANs:               namesText(c.names),
		FingerprintSHA256:  hex.EncodeToString(sum[:]),
		SignatureAlgorithm: cmp.Or(algorithmNames()[c.algorithm], c.algorithm),
	}
	versions := map[uint16]string{tls.VersionTLS10: "tlsv1", tls.VersionTLS11: "tlsv1.1", tls.VersionTLS12: "tlsv1.2", tls.VersionTLS13: "tlsv1.3"}
	if v, ok := versions[f.version]; ok {
		r.TLSVersion = &v
	}
	if name := suiteName(f.suite); name != "" {
		r.Cipher = new(strings.ToLower(name))
	}
	return r, nil
}

// serialText writes the content of a DER INTEGER.
func serialText(twos []byte) string {
	n, sign := new(big.Int).SetBytes(twos), ""
	if twos[0]&0x80 != 0 {
		n.Sub(new(big.Int).Lsh(big.NewInt(1), uint(8*len(twos))), n)
		sign = "-"
	}
	return sign + cmp.Or(hex.EncodeToString(n.Bytes()), "00")
}

func namesText(names []string) []string {
	out := make([]string, 0, min(len(names), maxNames))
	size := 0
	for _, n := range names {
		n = strings.ToValidUTF8(n, "\uFFFD")
		if size += len(n); len(out) == maxNames || size > maxNamesText {
			break
		}
		out = append(out, n)
	}
	return out
}
