package ssl

import (
	"crypto/x509"
	"errors"
	"time"

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
