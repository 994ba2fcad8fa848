package ssl

import (
	"crypto/x509"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"
)

// errNotACertificate says that bytes do not have the structure of RFC 5280
// §4.1 in DER.
var errNotACertificate = errors.New("ssl: not an X.509 certificate")

// maxOID bounds the content bytes of an object identifier; the longest in use
// have some twenty.
const maxOID = 256

// certificate is what a result needs of a leaf.
type certificate struct {
	der                 cryptobyte.String // without anything that follows it
	serial              cryptobyte.String // content of the INTEGER, at least one byte
	issuer, subject     string
	notBefore, notAfter time.Time
	names               []string // dNSName entries, any bytes
	algorithm           string   // dotted OID of the outer signatureAlgorithm
}

// readCertificate reads a certificate as far as a result needs it. It agrees with
// crypto/x509 where that reads one, and does not look at the version, the key, the
// extensions other than subjectAltName, the inner signature algorithm, the signature
// and whatever follows the certificate.
func readCertificate(raw []byte) (certificate, error) {
	var c certificate
	var body, tbs, algorithm, issuer, validity, subject cryptobyte.String
	in := cryptobyte.String(raw)
	if !in.ReadASN1Element(&c.der, asn1.SEQUENCE) {
		return c, errNotACertificate
	}
	whole := c.der
	ok := whole.ReadASN1(&body, asn1.SEQUENCE) &&
		body.ReadASN1(&tbs, asn1.SEQUENCE) &&
		body.ReadASN1(&algorithm, asn1.SEQUENCE) && readOID(&algorithm, &c.algorithm) &&
		tbs.SkipOptionalASN1(asn1.Tag(0).ContextSpecific().Constructed()) && // version
		tbs.ReadASN1(&c.serial, asn1.INTEGER) && len(c.serial) > 0 &&
		tbs.SkipASN1(asn1.SEQUENCE) && // signature
		tbs.ReadASN1(&issuer, asn1.SEQUENCE) && readName(issuer, &c.issuer) &&
		tbs.ReadASN1(&validity, asn1.SEQUENCE) && readTime(&validity, &c.notBefore) && readTime(&validity, &c.notAfter) &&
		tbs.ReadASN1(&subject, asn1.SEQUENCE) && readName(subject, &c.subject) &&
		tbs.SkipASN1(asn1.SEQUENCE) // subjectPublicKeyInfo
	if !ok {
		return c, errNotACertificate
	}
	c.names = alternativeNames(tbs)
	return c, nil
}

// alternativeNames collects the dNSName entries of every subjectAltName
// extension (RFC 5280 §4.2.1.6) in what follows the key: issuerUniqueID,
// subjectUniqueID and extensions, all of them optional. What is malformed is
// passed over.
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
		// Two digits from 50 on are of the last century; time.Parse starts
		// that at 69.
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

// readName writes the content of an RDNSequence by RFC 4514: the last RDN
// first, the attributes of one RDN joined by "+" in the order of the
// certificate. An attribute whose type has a short name shows its value as text if
// the value is text by its type; everything else is "#" and the value's DER in
// hex. Beyond the characters that RFC 4514 §2.4 requires, control characters
// are escaped.
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

// readAttribute reads one AttributeTypeAndValue.
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
