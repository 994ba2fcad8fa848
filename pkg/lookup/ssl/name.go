package ssl

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"
)

// parseName parses the RDNSequence of a distinguished name and stores its text in out. By RFC
// 4514, the text begins with the last RDN. The attributes of one RDN are joined by "+" in the
// order of the certificate. parseName returns false if the sequence is malformed.
func parseName(rdns cryptobyte.String, out *string) bool {
	var parts []string
	for !rdns.Empty() {
		var rdn cryptobyte.String
		if !rdns.ReadASN1(&rdn, asn1.SET) {
			return false
		}
		var attributes []string
		for !rdn.Empty() {
			var a string
			if !parseAttribute(&rdn, &a) {
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

// parseAttribute parses one AttributeTypeAndValue and stores its text in out. If the type has
// a short name and the value is a string, the text has the string, escaped. Any other value is
// written as "#" and its DER in hex.
func parseAttribute(rdn *cryptobyte.String, out *string) bool {
	var attribute, element, value cryptobyte.String
	var tag asn1.Tag
	var oid string
	if !rdn.ReadASN1(&attribute, asn1.SEQUENCE) || !parseOID(&attribute, &oid) || !attribute.ReadAnyASN1Element(&element, &tag) {
		return false
	}
	rest := element
	if !rest.ReadAnyASN1(&value, &tag) {
		return false
	}
	// A type without a short name is written in dotted form. By RFC 4514 §2.3, its value must
	// then be in hex.
	if name := attributeNames()[oid]; name != "" {
		if text, ok := stringText(tag, value); ok {
			*out = name + "=" + escapeDN(text)
			return true
		}
		oid = name
	}
	*out = oid + "=#" + hex.EncodeToString(element)
	return true
}

// The tags of string types of X.680 for which cryptobyte has no names.
const (
	numericString   = asn1.Tag(18)
	visibleString   = asn1.Tag(26)
	universalString = asn1.Tag(28)
	bmpString       = asn1.Tag(30)
)

// stringText decodes a string according to its type, and never guesses an encoding. It is more
// lenient than the standard: it accepts any ASCII in a PrintableString, and reads a BMPString
// as UTF-16. It reads a TeletexString as Latin-1, as all software does. If the value is not a
// string in the encoding of its type, stringText returns false.
func stringText(tag asn1.Tag, value []byte) (string, bool) {
	var text []rune
	switch tag {
	case asn1.UTF8String:
		return string(value), utf8.Valid(value)
	case asn1.PrintableString, asn1.IA5String, numericString, visibleString:
		isASCII := !slices.ContainsFunc(value, func(c byte) bool { return c >= utf8.RuneSelf })
		return string(value), isASCII
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
	// The decoders replace an invalid character by U+FFFD. So if the text has a U+FFFD, the
	// value does not count as a string.
	return string(text), len(value) == 0 && !strings.ContainsRune(string(text), utf8.RuneError)
}

// escapeDN escapes a string by RFC 4514 §2.4. It writes control characters as hex pairs.
func escapeDN(s string) string {
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

// attributeNames returns a map from the OIDs of attribute types to their short names. If a type
// has several names, the name of RFC 4514 §3 comes first, then the LDAP descriptors of RFC 4519
// and 2985, and then the profiles of the CA/Browser Forum and common practice.
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
