package ssl

import (
	"cmp"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"math/big"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"

	"github.com/hostfacts/hostfacts/pkg/lookup/origin"
)

// errNotACertificate means that the received bytes do not have the structure of RFC 5280 §4.1
// in DER.
var errNotACertificate = errors.New("ssl: not an X.509 certificate")

// maxOID is the largest size, in bytes of DER, of an object identifier (OID) that parseOID
// accepts. The longest identifiers in use have about twenty bytes.
const maxOID = 256

// certificate has the facts about an X.509 certificate that a result reports.
type certificate struct {
	der       []byte
	algorithm string // the OID of the signature algorithm, in dotted form
	serial    []byte // the content of a DER INTEGER: the serial number in two's complement
	issuer    string
	subject   string
	notBefore time.Time
	notAfter  time.Time
	dnsNames  []string
}

// parseCertificate parses the fields of a certificate that a result needs. It also accepts
// many certificates that crypto/x509 refuses. If crypto/x509 accepts a certificate, the values
// are the same as those of crypto/x509. The only error is errNotACertificate.
func parseCertificate(leaf []byte) (certificate, error) {
	var der, body, tbs, algorithm cryptobyte.String
	input := cryptobyte.String(leaf)
	if !input.ReadASN1Element(&der, asn1.SEQUENCE) {
		return certificate{}, errNotACertificate
	}
	c := certificate{der: der}
	rest := der
	if !rest.ReadASN1(&body, asn1.SEQUENCE) || !body.ReadASN1(&tbs, asn1.SEQUENCE) {
		return certificate{}, errNotACertificate
	}
	if !body.ReadASN1(&algorithm, asn1.SEQUENCE) || !parseOID(&algorithm, &c.algorithm) {
		return certificate{}, errNotACertificate
	}
	if !c.parseTBS(tbs) {
		return certificate{}, errNotACertificate
	}
	return c, nil
}

// parseTBS parses the fields of a TBSCertificate, in the order of RFC 5280 §4.1.2. It returns
// false if it cannot.
func (c *certificate) parseTBS(tbs cryptobyte.String) bool {
	var serial, issuer, validity, subject cryptobyte.String
	version := asn1.Tag(0).ContextSpecific().Constructed()
	if !tbs.SkipOptionalASN1(version) {
		return false
	}
	if !tbs.ReadASN1(&serial, asn1.INTEGER) || len(serial) == 0 {
		return false
	}
	c.serial = serial
	if !tbs.SkipASN1(asn1.SEQUENCE) { // skip the field "signature"
		return false
	}
	if !tbs.ReadASN1(&issuer, asn1.SEQUENCE) || !parseName(issuer, &c.issuer) {
		return false
	}
	if !tbs.ReadASN1(&validity, asn1.SEQUENCE) || !parseTime(&validity, &c.notBefore) || !parseTime(&validity, &c.notAfter) {
		return false
	}
	if !tbs.ReadASN1(&subject, asn1.SEQUENCE) || !parseName(subject, &c.subject) {
		return false
	}
	if !tbs.SkipASN1(asn1.SEQUENCE) { // skip the field "subjectPublicKeyInfo"
		return false
	}
	c.dnsNames = alternativeNames(tbs)
	return true
}

// result returns the Result for the query q. The flight came from the server at the address
// peer. The parameter now decides whether the certificate is expired or not yet valid. The only
// error is errNotACertificate.
func (f flight) result(q Query, peer netip.Addr, now time.Time) (Result, error) {
	c, err := parseCertificate(f.leaf)
	if err != nil {
		return Result{}, err
	}
	const stamp = "2006-01-02T15:04:05Z"
	sum := sha256.Sum256(c.der)
	r := Result{
		Domain:             q.Domain,
		Port:               origin.Port,
		SNI:                q.Domain,
		PeerIP:             peer.String(),
		Subject:            c.subject,
		Issuer:             c.issuer,
		Serial:             serialText(c.serial),
		NotBefore:          c.notBefore.Format(stamp),
		NotAfter:           c.notAfter.Format(stamp),
		SANs:               namesText(c.dnsNames),
		FingerprintSHA256:  hex.EncodeToString(sum[:]),
		SignatureAlgorithm: cmp.Or(algorithmNames()[c.algorithm], c.algorithm),
	}
	r.Expired = now.After(c.notAfter)
	r.NotYetValid = now.Before(c.notBefore)
	// By RFC 9525, only the dNSName entries of a certificate count. A wildcard must be the
	// whole left-most label of an entry, and matches exactly one label of a name.
	r.HostnameMatch = (&x509.Certificate{DNSNames: c.dnsNames}).VerifyHostname(q.Domain) == nil
	versions := map[uint16]string{
		tls.VersionTLS10: "tlsv1",
		tls.VersionTLS11: "tlsv1.1",
		tls.VersionTLS12: "tlsv1.2",
		tls.VersionTLS13: "tlsv1.3",
	}
	if v, ok := versions[f.version]; ok {
		r.TLSVersion = &v
	}
	if name := suiteName(f.suite); name != "" {
		r.Cipher = new(strings.ToLower(name))
	}
	return r, nil
}

// serialText returns a serial number in hex. The parameter number holds it in two's
// complement, as DER encodes it.
func serialText(number []byte) string {
	n := new(big.Int).SetBytes(number)
	sign := ""
	if number[0]&0x80 != 0 {
		n.Sub(new(big.Int).Lsh(big.NewInt(1), uint(8*len(number))), n)
		sign = "-"
	}
	return sign + cmp.Or(hex.EncodeToString(n.Bytes()), "00")
}

func namesText(names []string) []string {
	out := make([]string, 0, min(len(names), maxNames))
	size := 0
	for _, name := range names {
		name = strings.ToValidUTF8(name, "\uFFFD")
		size += len(name)
		if len(out) == maxNames || size > maxNamesText {
			break
		}
		out = append(out, name)
	}
	return out
}

// alternativeNames returns the dNSName entries of every subjectAltName extension (RFC 5280
// §4.2.1.6). rest must be the part of the TBSCertificate after the public key.
// alternativeNames skips malformed parts.
func alternativeNames(rest cryptobyte.String) []string {
	var names []string
	var tag asn1.Tag
	var field, extensions, extension cryptobyte.String
	for rest.ReadAnyASN1(&field, &tag) {
		if tag != asn1.Tag(3).ContextSpecific().Constructed() || !field.ReadASN1(&extensions, asn1.SEQUENCE) {
			continue
		}
		for extensions.ReadASN1(&extension, asn1.SEQUENCE) {
			names = append(names, extensionNames(extension)...)
		}
	}
	return names
}

// extensionNames returns the dNSName entries of a subjectAltName extension. It returns nil for
// any other extension.
func extensionNames(extension cryptobyte.String) []string {
	const subjectAltName = "2.5.29.17"
	var oid string
	if !parseOID(&extension, &oid) || oid != subjectAltName {
		return nil
	}
	var value, general, name cryptobyte.String
	if !extension.SkipOptionalASN1(asn1.BOOLEAN) || // the field "critical"
		!extension.ReadASN1(&value, asn1.OCTET_STRING) ||
		!value.ReadASN1(&general, asn1.SEQUENCE) {
		return nil
	}
	var names []string
	var tag asn1.Tag
	for general.ReadAnyASN1(&name, &tag) {
		if tag == asn1.Tag(2).ContextSpecific() {
			names = append(names, string(name))
		}
	}
	return names
}

// parseTime parses a Time (RFC 5280 §4.1.2.5). It also accepts times that only X.680 allows:
// without seconds, with a fraction of a second, or with an offset. It reads a GeneralizedTime
// without a zone as UTC. It returns false if it cannot parse the time.
func parseTime(s *cryptobyte.String, out *time.Time) bool {
	var tag asn1.Tag
	var text cryptobyte.String
	if !s.ReadAnyASN1(&text, &tag) || len(text) > 64 {
		return false
	}
	layouts := map[asn1.Tag][]string{
		asn1.UTCTime: {"060102150405Z0700", "0601021504Z0700"},
		asn1.GeneralizedTime: {
			"20060102150405Z0700",
			"200601021504Z0700",
			"2006010215Z0700",
			"20060102150405",
			"200601021504",
			"2006010215",
		},
	}
	for _, layout := range layouts[tag] {
		t, err := time.Parse(layout, string(text))
		if err != nil {
			continue
		}
		// A UTCTime has a two-digit year, and 50 to 99 mean 1950 to 1999. But time.Parse reads
		// 50 to 68 as 2050 to 2068.
		if tag == asn1.UTCTime && t.Year() >= 2050 {
			t = t.AddDate(-100, 0, 0)
		}
		*out = t.UTC().Truncate(time.Second)
		return 0 <= out.Year() && out.Year() <= 9999
	}
	return false
}

// parseOID parses an OBJECT IDENTIFIER into its dotted form.
func parseOID(s *cryptobyte.String, out *string) bool {
	var raw cryptobyte.String
	var oid x509.OID
	if !s.ReadASN1(&raw, asn1.OBJECT_IDENTIFIER) || len(raw) > maxOID || oid.UnmarshalBinary(raw) != nil {
		return false
	}
	*out = oid.String()
	return true
}

// algorithmNames returns the names of signature algorithms by OID, without the prefix "id-".
// The names come from RFC 8017 and 5754 (RSA, DSA), 5758 (ECDSA), 8410 (Edwards curves) and
// 9881 (ML-DSA).
func algorithmNames() map[string]string {
	return numbered(map[string]string{
		"1.2.840.113549.1.1.": "2 md2WithRSAEncryption 4 md5WithRSAEncryption 5 sha1WithRSAEncryption 10 rsassaPss " +
			"11 sha256WithRSAEncryption 12 sha384WithRSAEncryption 13 sha512WithRSAEncryption " +
			"14 sha224WithRSAEncryption 15 sha512-224WithRSAEncryption 16 sha512-256WithRSAEncryption",
		"1.2.840.10045.4.":      "1 ecdsa-with-SHA1",
		"1.2.840.10045.4.3.":    "1 ecdsa-with-SHA224 2 ecdsa-with-SHA256 3 ecdsa-with-SHA384 4 ecdsa-with-SHA512",
		"1.2.840.10040.4.":      "3 dsa-with-sha1",
		"2.16.840.1.101.3.4.3.": "1 dsa-with-sha224 2 dsa-with-sha256 17 ml-dsa-44 18 ml-dsa-65 19 ml-dsa-87",
		"1.3.101.":              "112 Ed25519 113 Ed448",
	})
}

// numbered returns a map from OIDs to names. In lines, {"1.2.": "3 a 4 b"} means that the OID
// 1.2.3 has the name a, and the OID 1.2.4 has the name b.
func numbered(lines map[string]string) map[string]string {
	names := map[string]string{}
	for below, line := range lines {
		for pair := range slices.Chunk(strings.Fields(line), 2) {
			names[below+pair[0]] = pair[1]
		}
	}
	return names
}
