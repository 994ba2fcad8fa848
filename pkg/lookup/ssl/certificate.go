package ssl

import (
	"cmp"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"net/netip"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"

	"github.com/hostfacts/hostfacts/pkg/lookup/origin"
)

// errNotACertificate says that bytes do not have the structure of RFC 5280 §4.1 in DER.
var errNotACertificate = errors.New("ssl: not an X.509 certificate")

// maxOID bounds the bytes of an object identifier; the longest in use have some twenty.
const maxOID = 256

// result joins what was seen with the question. It reads the certificate as far as a result
// needs it, and agrees with crypto/x509 where that reads one. Its only error is
// errNotACertificate.
func (f flight) result(q Query, peer netip.Addr, now time.Time) (Result, error) {
	r := Result{Domain: q.Domain, Port: origin.Port, SNI: q.Domain, PeerIP: peer.String()}
	var der, body, tbs, serial, algorithm, issuer, validity, subject cryptobyte.String
	var from, to time.Time
	in := cryptobyte.String(f.leaf)
	if !in.ReadASN1Element(&der, asn1.SEQUENCE) {
		return r, errNotACertificate
	}
	whole := der
	ok := whole.ReadASN1(&body, asn1.SEQUENCE) &&
		body.ReadASN1(&tbs, asn1.SEQUENCE) &&
		body.ReadASN1(&algorithm, asn1.SEQUENCE) && readOID(&algorithm, &r.SignatureAlgorithm) && // the outer one
		tbs.SkipOptionalASN1(asn1.Tag(0).ContextSpecific().Constructed()) && // version
		tbs.ReadASN1(&serial, asn1.INTEGER) && len(serial) > 0 &&
		tbs.SkipASN1(asn1.SEQUENCE) && // signature
		tbs.ReadASN1(&issuer, asn1.SEQUENCE) && readName(issuer, &r.Issuer) &&
		tbs.ReadASN1(&validity, asn1.SEQUENCE) && readTime(&validity, &from) && readTime(&validity, &to) &&
		tbs.ReadASN1(&subject, asn1.SEQUENCE) && readName(subject, &r.Subject) &&
		tbs.SkipASN1(asn1.SEQUENCE) // subjectPublicKeyInfo
	if !ok {
		return r, errNotACertificate
	}
	names := alternativeNames(tbs)
	// RFC 9525: dNSName entries only; the wildcard is the whole left-most label and
	// stands for exactly one.
	r.SANs = namesText(names)
	r.HostnameMatch = (&x509.Certificate{DNSNames: names}).VerifyHostname(q.Domain) == nil
	const stamp = "2006-01-02T15:04:05Z"
	r.NotBefore = from.Format(stamp)
	r.NotAfter = to.Format(stamp)
	r.Expired = now.After(to)
	r.NotYetValid = now.Before(from)
	sum := sha256.Sum256(der)
	r.Serial = serialText(serial)
	r.FingerprintSHA256 = hex.EncodeToString(sum[:])
	r.SignatureAlgorithm = cmp.Or(algorithmNames()[r.SignatureAlgorithm], r.SignatureAlgorithm)
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
	n := new(big.Int).SetBytes(twos)
	sign := ""
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

// alternativeNames collects the dNSName entries of every subjectAltName
// extension (RFC 5280 §4.2.1.6) in what follows the key. What is malformed is passed over.
func alternativeNames(rest cryptobyte.String) []string {
	var names []string
	var tag asn1.Tag
	var field, extensions, ext, value, general, name cryptobyte.String
	for rest.ReadAnyASN1(&field, &tag) {
		if tag != asn1.Tag(3).ContextSpecific().Constructed() || !field.ReadASN1(&extensions, asn1.SEQUENCE) {
			continue
		}
		for extensions.ReadASN1(&ext, asn1.SEQUENCE) {
			var oid string
			if !readOID(&ext, &oid) || oid != "2.5.29.17" || !ext.SkipOptionalASN1(asn1.BOOLEAN) ||
				!ext.ReadASN1(&value, asn1.OCTET_STRING) || !value.ReadASN1(&general, asn1.SEQUENCE) {
				continue
			}
			for general.ReadAnyASN1(&name, &tag) {
				if tag == asn1.Tag(2).ContextSpecific() {
					names = append(names, string(name))
				}
			}
		}
	}
	return names
}

// readTime reads a Time (RFC 5280 §4.1.2.5), in the other forms that X.680
// allows as well: without seconds, with a fraction, with an offset. A
// GeneralizedTime without a zone is taken as UTC.
func readTime(s *cryptobyte.String, out *time.Time) bool {
	var tag asn1.Tag
	var text cryptobyte.String
	if !s.ReadAnyASN1(&text, &tag) || len(text) > 64 {
		return false
	}
	layouts := map[asn1.Tag][]string{
		asn1.UTCTime:         {"060102150405Z0700", "0601021504Z0700"},
		asn1.GeneralizedTime: {"20060102150405Z0700", "200601021504Z0700", "2006010215Z0700", "20060102150405", "200601021504", "2006010215"},
	}
	for _, layout := range layouts[tag] {
		t, err := time.Parse(layout, string(text))
		if err != nil {
			continue
		}
		// Two digits from 50 on are of the last century, for time.Parse from 69 on.
		if tag == asn1.UTCTime && t.Year() >= 2050 {
			t = t.AddDate(-100, 0, 0)
		}
		*out = t.UTC().Truncate(time.Second)
		return 0 <= out.Year() && out.Year() <= 9999
	}
	return false
}

// readOID reads an OBJECT IDENTIFIER into its dotted form.
func readOID(s *cryptobyte.String, out *string) bool {
	var raw cryptobyte.String
	var oid x509.OID
	if !s.ReadASN1(&raw, asn1.OBJECT_IDENTIFIER) || len(raw) > maxOID || oid.UnmarshalBinary(raw) != nil {
		return false
	}
	*out = oid.String()
	return true
}

// readName writes the content of an RDNSequence by RFC 4514: the last RDN first, the attributes
// of one RDN joined by "+" in the order of the certificate.
func readName(rdns cryptobyte.String, out *string) bool {
	var parts []string
	for !rdns.Empty() {
		var rdn cryptobyte.String
		if !rdns.ReadASN1(&rdn, asn1.SET) {
			return false
		}
		var attributes []string
		for !rdn.Empty() {
			var a string
			if !readAttribute(&rdn, &a) {
				return false
			}
			attributes = append(attributes, a)
		}
		if len(attributes) > 0 {
			parts = append(parts, strings.Join(attributes, "+"))
		}
	}
	slices.Reverse(parts)
	*out = strings.Join(parts, ",")
	return true
}

// readAttribute reads one AttributeTypeAndValue. One whose type has a short name shows its
// value as text if it is text by its type; everything else is "#" and the value's DER.
func readAttribute(rdn *cryptobyte.String, out *string) bool {
	var attribute, element, value cryptobyte.String
	var tag asn1.Tag
	var oid string
	ok := rdn.ReadASN1(&attribute, asn1.SEQUENCE) && readOID(&attribute, &oid) && attribute.ReadAnyASN1Element(&element, &tag)
	if whole := element; !ok || !whole.ReadAnyASN1(&value, &tag) {
		return false
	}
	// RFC 4514 §2.3: a dotted type goes with a hex value.
	if name := attributeNames()[oid]; name != "" {
		if text, ok := stringText(tag, value); ok {
			*out = name + "=" + escape(text)
			return true
		}
		oid = name
	}
	*out = oid + "=#" + hex.EncodeToString(element)
	return true
}

// String types of X.680 that cryptobyte does not name.
const (
	numericString   = asn1.Tag(18)
	visibleString   = asn1.Tag(26)
	universalString = asn1.Tag(28)
	bmpString       = asn1.Tag(30)
)

// stringText decodes a value by its string type. It is more lenient than the
// types are (PrintableString takes any ASCII, BMPString is UTF-16), but never guesses
// an encoding; TeletexString is Latin-1, as everybody reads it.
func stringText(tag asn1.Tag, value []byte) (string, bool) {
	var text []rune
	switch tag {
	case asn1.UTF8String:
		return string(value), utf8.Valid(value)
	case asn1.PrintableString, asn1.IA5String, numericString, visibleString:
		return string(value), !slices.ContainsFunc(value, func(c byte) bool { return c >= utf8.RuneSelf })
	case asn1.T61String:
		for _, c := range value {
			text = append(text, rune(c))
		}
		return string(text), true
	case bmpString:
		var units []uint16
		for ; len(value) >= 2; value = value[2:] {
			units = append(units, binary.BigEndian.Uint16(value))
		}
		text = utf16.Decode(units)
	case universalString:
		for ; len(value) >= 4; value = value[4:] {
			text = append(text, rune(binary.BigEndian.Uint32(value)))
		}
	default:
		return "", false
	}
	// What is not a character becomes U+FFFD.
	return string(text), len(value) == 0 && !strings.ContainsRune(string(text), utf8.RuneError)
}

// escape applies RFC 4514 §2.4, and writes control characters as hex pairs.
func escape(s string) string {
	var b strings.Builder
	for i, r := range s {
		switch {
		case unicode.IsControl(r):
			for _, c := range []byte(string(r)) {
				fmt.Fprintf(&b, `\%02X`, c)
			}
			continue
		case strings.ContainsRune(`"+,;<>\`, r),
			r == '#' && i == 0,
			r == ' ' && (i == 0 || i == len(s)-1):
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}

// attributeNames are the short names of attribute types by OID: those of RFC 4514 §3, then
// the LDAP descriptors of RFC 4519 and 2985, then what the CA/Browser Forum's profiles
// and common practice call the rest.
func attributeNames() map[string]string {
	return numbered(map[string]string{
		"2.5.4.": "3 CN 4 SN 5 serialNumber 6 C 7 L 8 ST 9 STREET 10 O 11 OU 12 title 13 description " +
			"15 businessCategory 17 postalCode 18 postOfficeBox 20 telephoneNumber 41 name 42 givenName " +
			"43 initials 44 generationQualifier 46 dnQualifier 65 pseudonym 97 organizationIdentifier",
		"0.9.2342.19200300.100.1.": "1 UID 3 mail 25 DC",
		"1.2.840.113549.1.9.":      "1 emailAddress 2 unstructuredName 8 unstructuredAddress",
		"1.3.6.1.4.1.311.60.2.1.":  "1 jurisdictionL 2 jurisdictionST 3 jurisdictionC",
	})
}

// algorithmNames are the names of signature algorithms by OID in RFC 8017 and 5754 (RSA,
// DSA), 5758 (ECDSA), 8410 (Edwards curves) and 9881 (ML-DSA), without the prefix
// "id-".
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

// numbered are names by OID: in each line a number and a name in turn, below an OID.
func numbered(lines map[string]string) map[string]string {
	names := map[string]string{}
	for below, line := range lines {
		for pair := range slices.Chunk(strings.Fields(line), 2) {
			names[below+pair[0]] = pair[1]
		}
	}
	return names
}
