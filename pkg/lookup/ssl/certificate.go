package ssl

import (
	"crypto/x509"
	"encoding/hex"
	"errors"
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
	der                 []byte // without anything that follows it
	serial              []byte // content of the INTEGER, at least one byte
	issuer, subject     string
	notBefore, notAfter time.Time
	names               []string // dNSName entries, any bytes
	algorithm           string   // dotted OID of the outer signatureAlgorithm
}

// readCertificate reads a certificate as far as a result needs it. It is much
// more lenient than crypto/x509 and agrees with it where that reads one: the
// version, the key, the extensions other than subjectAltName, the inner
// signature algorithm, the signature and whatever follows the certificate are
// not looked at.
func readCertificate(raw []byte) (certificate, error) {
	var c certificate
	var whole, body, tbs, algorithm cryptobyte.String
	in := cryptobyte.String(raw)
	if !in.ReadASN1Element(&whole, asn1.SEQUENCE) {
		return c, errNotACertificate
	}
	c.der = whole
	if !whole.ReadASN1(&body, asn1.SEQUENCE) || !body.ReadASN1(&tbs, asn1.SEQUENCE) ||
		!body.ReadASN1(&algorithm, asn1.SEQUENCE) {
		return c, errNotACertificate
	}
	var ok bool
	if c.algorithm, ok = readOID(&algorithm); !ok {
		return c, errNotACertificate
	}
	return c, c.readTBS(tbs)
}

// readTBS reads a TBSCertificate (RFC 5280 §4.1.2).
func (c *certificate) readTBS(tbs cryptobyte.String) error {
	var serial, issuer, validity, subject cryptobyte.String
	if !tbs.SkipOptionalASN1(asn1.Tag(0).ContextSpecific().Constructed()) || // version
		!tbs.ReadASN1(&serial, asn1.INTEGER) || len(serial) == 0 ||
		!tbs.SkipASN1(asn1.SEQUENCE) || // signature
		!tbs.ReadASN1(&issuer, asn1.SEQUENCE) ||
		!tbs.ReadASN1(&validity, asn1.SEQUENCE) ||
		!tbs.ReadASN1(&subject, asn1.SEQUENCE) ||
		!tbs.SkipASN1(asn1.SEQUENCE) { // subjectPublicKeyInfo
		return errNotACertificate
	}
	c.serial = serial
	var ok [4]bool
	c.issuer, ok[0] = nameText(issuer)
	c.subject, ok[1] = nameText(subject)
	c.notBefore, ok[2] = readTime(&validity)
	c.notAfter, ok[3] = readTime(&validity)
	if ok != [4]bool{true, true, true, true} {
		return errNotACertificate
	}
	c.names = alternativeNames(tbs)
	return nil
}

// alternativeNames collects the dNSName entries of every subjectAltName
// extension in what follows the key: issuerUniqueID, subjectUniqueID and
// extensions, all of them optional. Reading ends at the first thing that is
// malformed, and what was read before stands.
func alternativeNames(rest cryptobyte.String) []string {
	var names []string
	for !rest.Empty() {
		var tag asn1.Tag
		var field, extensions cryptobyte.String
		if !rest.ReadAnyASN1(&field, &tag) {
			return names
		}
		if tag != asn1.Tag(3).ContextSpecific().Constructed() || !field.ReadASN1(&extensions, asn1.SEQUENCE) {
			continue
		}
		for !extensions.Empty() {
			var ext, value, general cryptobyte.String
			if !extensions.ReadASN1(&ext, asn1.SEQUENCE) {
				return names
			}
			if oid, ok := readOID(&ext); !ok || oid != "2.5.29.17" {
				continue
			}
			if !ext.SkipOptionalASN1(asn1.BOOLEAN) || !ext.ReadASN1(&value, asn1.OCTET_STRING) ||
				!value.ReadASN1(&general, asn1.SEQUENCE) {
				continue
			}
			names = append(names, dnsNames(general)...)
		}
	}
	return names
}

// dnsNames reads the dNSName entries of GeneralNames (RFC 5280 §4.2.1.6).
func dnsNames(general cryptobyte.String) []string {
	var names []string
	for !general.Empty() {
		var tag asn1.Tag
		var name cryptobyte.String
		if !general.ReadAnyASN1(&name, &tag) {
			break
		}
		if tag == asn1.Tag(2).ContextSpecific() {
			names = append(names, string(name))
		}
	}
	return names
}

// readTime reads a Time (RFC 5280 §4.1.2.5), in the other forms that X.680
// allows as well: without seconds, with a fraction, with an offset. A
// GeneralizedTime without a zone is taken as UTC.
func readTime(s *cryptobyte.String) (time.Time, bool) {
	var tag asn1.Tag
	var text cryptobyte.String
	if !s.ReadAnyASN1(&text, &tag) || len(text) > 64 {
		return time.Time{}, false
	}
	var layouts []string
	switch tag {
	case asn1.UTCTime:
		layouts = []string{"060102150405Z0700", "0601021504Z0700"}
	case asn1.GeneralizedTime:
		layouts = []string{"20060102150405Z0700", "200601021504Z0700", "2006010215Z0700", "20060102150405", "200601021504", "2006010215"}
	default:
		return time.Time{}, false
	}
	for _, l := range layouts {
		t, err := time.Parse(l, string(text))
		if err != nil {
			continue
		}
		// Two digits from 50 on are of the last century; time.Parse starts
		// that at 69.
		if tag == asn1.UTCTime && t.Year() >= 2050 {
			t = t.AddDate(-100, 0, 0)
		}
		t = t.UTC().Truncate(time.Second)
		return t, 0 <= t.Year() && t.Year() <= 9999
	}
	return time.Time{}, false
}

// readOID reads an OBJECT IDENTIFIER into its dotted form.
func readOID(s *cryptobyte.String) (string, bool) {
	var raw cryptobyte.String
	var oid x509.OID
	if !s.ReadASN1(&raw, asn1.OBJECT_IDENTIFIER) || len(raw) > maxOID || oid.UnmarshalBinary(raw) != nil {
		return "", false
	}
	return oid.String(), true
}

// String types of X.680 that cryptobyte does not name.
const (
	numericString   = asn1.Tag(18)
	visibleString   = asn1.Tag(26)
	universalString = asn1.Tag(28)
	bmpString       = asn1.Tag(30)
)

// nameText writes the content of an RDNSequence by RFC 4514: the last RDN
// first, the attributes of one RDN joined by "+" in the order of the
// certificate. An attribute with a name of its own shows its value as text if
// the value is text by its type; everything else is "#" and the value's DER in
// hex. Beyond the characters that RFC 4514 §2.4 requires, control characters
// are escaped. ok is false for what is no RDNSequence.
func nameText(rdns cryptobyte.String) (text string, ok bool) {
	var parts []string
	for !rdns.Empty() {
		var rdn cryptobyte.String
		if !rdns.ReadASN1(&rdn, asn1.SET) {
			return "", false
		}
		var attributes []string
		for !rdn.Empty() {
			a, ok := attributeText(&rdn)
			if !ok {
				return "", false
			}
			attributes = append(attributes, a)
		}
		if len(attributes) > 0 {
			parts = append(parts, strings.Join(attributes, "+"))
		}
	}
	var b strings.Builder
	for i := len(parts) - 1; i >= 0; i-- {
		b.WriteString(parts[i])
		if i > 0 {
			b.WriteByte(',')
		}
	}
	return b.String(), true
}

// attributeText reads one AttributeTypeAndValue.
func attributeText(rdn *cryptobyte.String) (string, bool) {
	var attribute, whole, value cryptobyte.String
	var tag asn1.Tag
	if !rdn.ReadASN1(&attribute, asn1.SEQUENCE) {
		return "", false
	}
	oid, ok := readOID(&attribute)
	if !ok || !attribute.ReadAnyASN1Element(&whole, &tag) {
		return "", false
	}
	element := []byte(whole)
	if !whole.ReadAnyASN1(&value, &tag) {
		return "", false
	}
	// RFC 4514 §2.3: a dotted type goes with a hex value.
	if name := attributeName(oid); name != "" {
		if text, ok := stringText(tag, value); ok {
			return name + "=" + escape(text), true
		}
		oid = name
	}
	return oid + "=#" + hex.EncodeToString(element), true
}

// stringText decodes a value by its string type. It is more lenient than the
// types are (PrintableString takes any ASCII), but never guesses an encoding;
// TeletexString is Latin-1, as everybody reads it.
func stringText(tag asn1.Tag, value []byte) (string, bool) {
	switch tag {
	case asn1.UTF8String:
		return string(value), utf8.Valid(value)
	case asn1.PrintableString, asn1.IA5String, numericString, visibleString:
		for _, c := range value {
			if c >= utf8.RuneSelf {
				return "", false
			}
		}
		return string(value), true
	case asn1.T61String:
		b := make([]byte, 0, len(value))
		for _, c := range value {
			b = utf8.AppendRune(b, rune(c))
		}
		return string(b), true
	case bmpString:
		return wideText(value, 2)
	case universalString:
		return wideText(value, 4)
	default:
		return "", false
	}
}

// wideText decodes big-endian UTF-16 or UTF-32.
func wideText(value []byte, width int) (string, bool) {
	if len(value)%width != 0 {
		return "", false
	}
	b := make([]byte, 0, len(value))
	for ; len(value) > 0; value = value[width:] {
		var r rune
		if width == 4 {
			r = rune(value[0])<<24 | rune(value[1])<<16 | rune(value[2])<<8 | rune(value[3])
		} else {
			r = rune(value[0])<<8 | rune(value[1])
			if utf16.IsSurrogate(r) {
				if len(value) < 4 {
					return "", false
				}
				r = utf16.DecodeRune(r, rune(value[2])<<8|rune(value[3]))
				if r == utf8.RuneError {
					return "", false
				}
				value = value[2:]
			}
		}
		if !utf8.ValidRune(r) {
			return "", false
		}
		b = utf8.AppendRune(b, r)
	}
	return string(b), true
}

// escape is RFC 4514 §2.4, and hex pairs for control characters.
func escape(s string) string {
	var b strings.Builder
	for i, r := range s {
		switch {
		case unicode.IsControl(r):
			for _, c := range []byte(string(r)) {
				b.WriteByte('\\')
				b.WriteString(strings.ToUpper(hex.EncodeToString([]byte{c})))
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
