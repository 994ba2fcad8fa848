package ssl

import (
	"encoding/hex"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"
)

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
