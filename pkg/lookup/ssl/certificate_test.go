package ssl

import (
	"bytes"
	"cmp"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"

	"github.com/hostfacts/hostfacts/infra/testbed"
)

// FuzzCertificate parses arbitrary bytes as a leaf certificate. Any result must pass
// checkResult. If crypto/x509 can parse the bytes, there must be a result with the same
// values.
func FuzzCertificate(f *testing.F) {
	der := certificateWith(func(p *certParts) {
		p.subject = name(rdn(attr("2.5.4.10", utf8s("a+b, c"))), rdn(attr("2.5.4.9", printable(" x "))), rdn(attr("2.5.4.3", utf8s(testDomain))))
		p.tail = extensions(san(tlv(0x81, []byte("a@example.com")), tlv(0x87, net.IPv6loopback), dnsName(testDomain)))
	})
	f.Add(der)
	f.Add(der[:len(der)-1])
	for _, seed := range fuzzSeeds("certificates.hex") {
		f.Add(seed[0])
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if len(raw) > 1<<16 {
			return
		}
		s := flight{leaf: raw, version: tls.VersionTLS12, suite: tls.TLS_RSA_WITH_RC4_128_SHA}
		x, xerr := x509.ParseCertificate(raw)
		r, err := s.result(testQuery(), netip.IPv6LinkLocalAllNodes(), time.Unix(1e9, 0))
		if err != nil {
			if xerr == nil {
				t.Fatalf("crypto/x509 reads it: %v", err)
			}
			return
		}
		checkResult(t, r, len(raw))
		if xerr == nil {
			compareWithX509(t, r, x)
		}
	})
}

// checkResult checks the properties that every result must have.
func checkResult(t *testing.T, r Result, size int) {
	t.Helper()
	b, err := json.Marshal(r)
	// The bound is for the worst case, in which every byte of the certificate is a control
	// character in Latin-1. Such a byte becomes text such as \C2\85, and JSON doubles the
	// backslashes.
	if err != nil || !utf8.Valid(b) || len(b) > 2000+12*size {
		t.Fatalf("%d bytes of JSON for %d, %v", len(b), size, err)
	}
	for what, form := range map[string]string{
		r.Serial: `^-?([0-9a-f]{2})+$`, r.NotBefore: `^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$`, r.NotAfter: `^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$`,
		r.FingerprintSHA256: `^[0-9a-f]{64}$`, r.SignatureAlgorithm: `^[A-Za-z0-9.-]+$`,
	} {
		if !regexp.MustCompile(form).MatchString(what) {
			t.Errorf("%q is not %s", what, form)
		}
	}
	for _, s := range append([]string{r.Subject, r.Issuer}, r.SANs...) {
		if !utf8.ValidString(s) {
			t.Errorf("%q is not UTF-8", s)
		}
	}
	for _, name := range []string{r.Subject, r.Issuer} {
		if !dn.MatchString(name) {
			t.Errorf("%q is not by RFC 4514", name)
		}
	}
	if r.SANs == nil || len(r.SANs) > maxNames || r.PeerIP == "" || r.TLSVersion == nil || r.Cipher == nil {
		t.Errorf("%+v", r)
	}
}

// compareWithX509 checks that a result agrees with crypto/x509.
func compareWithX509(t *testing.T, r Result, x *x509.Certificate) {
	t.Helper()
	digits := cmp.Or(hex.EncodeToString(x.SerialNumber.Bytes()), "00")
	if x.SerialNumber.Sign() < 0 {
		digits = "-" + digits
	}
	sum := sha256.Sum256(x.Raw)
	if r.Serial != digits || r.FingerprintSHA256 != hex.EncodeToString(sum[:]) ||
		r.NotBefore != x.NotBefore.UTC().Format("2006-01-02T15:04:05Z") || r.NotAfter != x.NotAfter.UTC().Format("2006-01-02T15:04:05Z") ||
		r.HostnameMatch != (x.VerifyHostname(testDomain) == nil) {
		t.Errorf("%+v differs from %s %s %s", r, digits, x.NotBefore, x.NotAfter)
	}
	if len(x.DNSNames) <= maxNames && !slices.Equal(r.SANs, x.DNSNames) {
		t.Errorf("names %q, want %q", r.SANs, x.DNSNames)
	}
	for text, n := range map[string]pkix.Name{r.Subject: x.Subject, r.Issuer: x.Issuer} {
		// Not all names can be compared. crypto/x509 has short names for only a few attribute
		// types, and does not escape control characters.
		var rdns pkix.RDNSequence
		compared := !regexp.MustCompile(`\+|\\[0-9A-F]{2}`).MatchString(text)
		for _, a := range n.Names {
			rdns = append(rdns, pkix.RelativeDistinguishedNameSET{a})
			_, ok := a.Value.(string)
			compared = compared && ok && slices.Contains([]string{"CN", "C", "O", "OU", "L", "ST", "STREET"}, attributeNames()[a.Type.String()])
		}
		if want := rdns.String(); compared && text != want {
			t.Errorf("%q, crypto/x509 has %q", text, want)
		}
	}
}

// dn matches a distinguished name in the form of RFC 4514. The name must be without control
// characters, and every character that the RFC wants escaped must be escaped.
var dn = func() *regexp.Regexp {
	const (
		text = `([^"+,;<>\\\x00-\x1f\x7f]|\\["+,;<>\\# ]|\\[0-9A-F]{2})`
		head = `([^" #+,;<>\\\x00-\x1f\x7f]|\\["+,;<>\\# ]|\\[0-9A-F]{2})` // like the constant text, but without "#" and space
		attr = `([A-Za-z][A-Za-z0-9-]*|[0-9]+(\.[0-9]+)+)=(#([0-9a-f]{2})+|` + head + text + `*)?`
	)
	return regexp.MustCompile(`^(` + attr + `([+,]` + attr + `)*)?$`)
}()

// TestResult checks how each field of the result depends on the certificate. Each case changes
// one part of the ordinary certificate and checks one field.
func TestResult(t *testing.T) {
	type row struct {
		change func(*certParts)
		got    func(Result) string
		want   string
	}
	rows := map[string]row{}
	add := func(want string, got func(Result) string, change func(*certParts)) {
		rows[fmt.Sprintf("%d %.40q", len(rows), want)] = row{change, got, want}
	}

	// Check the form of names by RFC 4514, and the decoding of the values in them.
	subject := func(want string, rdns ...[]byte) {
		add(want, func(r Result) string { return r.Subject }, func(p *certParts) { p.subject = name(rdns...) })
	}
	single := func(oid string, value []byte) []byte { return rdn(attr(oid, value)) }
	cn := func(want string, value []byte) { subject("CN="+want, single("2.5.4.3", value)) }
	ia5 := func(s string) []byte { return tlv(0x16, []byte(s)) }
	const dc, uid = "0.9.2342.19200300.100.1.25", "0.9.2342.19200300.100.1.1"
	subject("")
	subject("CN=a,OU=b,O=c,C=DE", single("2.5.4.6", printable("DE")), single("2.5.4.10", utf8s("c")), single("2.5.4.11", utf8s("b")), single("2.5.4.3", utf8s("a")))
	subject("CN=a,DC=example,DC=com", single(dc, ia5("com")), single(dc, ia5("example")), single("2.5.4.3", utf8s("a")))
	subject("emailAddress=a@example.com,UID=u1", single(uid, utf8s("u1")), single("1.2.840.113549.1.9.1", ia5("a@example.com")))
	subject("organizationIdentifier=VATDE-1,serialNumber=7,jurisdictionC=DE,businessCategory=Private", single("2.5.4.15", utf8s("Private")),
		single("1.3.6.1.4.1.311.60.2.1.3", printable("DE")), single("2.5.4.5", printable("7")), single("2.5.4.97", utf8s("VATDE-1")))
	subject("CN=a+UID=u,O=x", single("2.5.4.10", utf8s("x")), rdn(attr("2.5.4.3", utf8s("a")), attr(uid, utf8s("u"))))
	subject("1.2.3.4=#0c0161", single("1.2.3.4", utf8s("a")))
	subject("2.25.329800735698586629295641978511506172918=#0500", single("2.25.329800735698586629295641978511506172918", tlv(5)))
	cn(`\#a\, b\+c\"d\\e\<f\>g\;h=i\ `, utf8s(`#a, b+c"d\e<f>g;h=i `))
	cn(`\ a#b`, utf8s(" a#b"))
	cn(`\ `, utf8s(" "))
	cn(`a\00b\0Ac\7F`, utf8s("a\x00b\nc\x7f"))
	cn("bücher 日本", utf8s("bücher 日本"))
	cn(`a\C2\85b`, utf8s("a\u0085b"))
	cn("café", tlv(0x14, []byte("caf\xe9")))
	cn("Ω", tlv(0x1e, []byte{0x03, 0xa9}))
	cn("Ω😀", tlv(0x1c, []byte{0, 0, 0x03, 0xa9, 0, 1, 0xf6, 0}))
	cn("😀", tlv(0x1e, []byte{0xd8, 0x3d, 0xde, 0x00})) // a surrogate pair; the standard forbids it in a BMPString
	for _, not := range []string{"0c0261ff", "1301ff", "020107", "1e03000000", "1e02d83d", "1e04d83d0041", "1c0400110000"} {
		cn("#"+not, unhex(not))
	}

	// Check the dNSName entries, which are in the part of the certificate after the public
	// key.
	sans := func(want string, rest []byte) {
		add(want, func(r Result) string { return strings.Join(r.SANs, " ") }, func(p *certParts) { p.tail = rest })
	}
	sans("", nil)
	sans(testDomain+" ids", slices.Concat(tlv(0x81, []byte{0, 1}), tlv(0x82, []byte{0, 2}), extensions(san(dnsName(testDomain), dnsName("ids")))))
	sans("A.example *.b.example", extensions(tlv(0x30, oid("2.5.29.17"), unhex("0101ff"), tlv(4, tlv(0x30,
		tlv(0x81, []byte("a@example.com")), dnsName("A.example"), tlv(0x86, []byte("https://x.example/")), tlv(0x87, []byte{192, 0, 2, 1}),
		dnsName("*.b.example"), tlv(0x88, []byte{42, 3}))))))
	sans("a.example b.example", extensions(san(dnsName("a.example")), ext("2.5.29.18", tlv(0x30, dnsName("issuer.example"))), san(dnsName("b.example"))))

	// The certificate names its signature algorithm twice, in a signed field and in an outer
	// field that is not signed. The result must have the algorithm of the outer field, by its
	// name in the RFCs.
	for want, dotted := range map[string]string{
		"sha256WithRSAEncryption": "1.2.840.113549.1.1.11", "rsassaPss": "1.2.840.113549.1.1.10",
		"ecdsa-with-SHA384": "1.2.840.10045.4.3.3", "Ed448": "1.3.101.113", "1.2.3.4.5": "1.2.3.4.5",
	} {
		add(want, func(r Result) string { return r.SignatureAlgorithm }, func(p *certParts) { p.outerAlgorithm = tlv(0x30, oid(dotted)) })
	}
	add("", func(r Result) string { return r.FingerprintSHA256 }, func(p *certParts) { p.outerAlgorithm = tlv(0x30, tlv(0x06, bytes.Repeat([]byte{1}, 257))) })
	add("", func(r Result) string { return r.FingerprintSHA256 }, func(p *certParts) { p.serial = tlv(2) })

	for content, want := range map[string]string{
		"00": "00", "0000": "00", "01": "01", "0080": "80", "80": "-80", "ff": "-01", "ff00": "-0100", "ffff01": "-ff", "8000": "-8000", "0102": "0102",
	} {
		add(want, func(r Result) string { return r.Serial }, func(p *certParts) { p.serial = tlv(2, unhex(content)) })
	}

	const day, usual = 24 * time.Hour, testDomain + " *.example.com"
	flags := func(want string, from, to time.Duration, list string) { // the two durations are the start and the end of the validity, relative to testNow
		add(want, func(r Result) string {
			return fmt.Sprintf("expired %v, early %v, match %v: %s", r.Expired, r.NotYetValid, r.HostnameMatch, strings.Join(r.SANs, " "))
		}, func(p *certParts) {
			p.validity = validity(utc(testNow().Add(from).Format("060102150405Z")), utc(testNow().Add(to).Format("060102150405Z")))
			p.tail = extensionsFor(strings.Fields(list)...)
		})
	}
	flags("expired true, early false, match true: "+usual, -day, -time.Second, usual)
	flags("expired false, early false, match true: "+usual, -day, 0, usual) // the last second of the validity
	flags("expired false, early false, match true: "+usual, 0, day, usual)  // the first second of the validity
	flags("expired false, early true, match true: "+usual, time.Second, day, usual)
	flags("expired true, early true, match true: "+usual, time.Hour, -time.Hour, usual)
	flags("expired false, early false, match true: *.example.com", -day, day, "*.example.com")
	for _, list := range []string{"*.com example.com", testDomain + ".", testDomain + "\x00.evil.example", ""} {
		flags("expired false, early false, match false: "+list, -day, day, list)
	}

	testbed.Each(t, rows, func(t *testing.T, c row) {
		r, err := flight{leaf: certificateWith(c.change)}.result(testQuery(), netip.Addr{}, testNow())
		if got := c.got(r); got != c.want || (err != nil) != (r.Subject == "" && r.SANs == nil) {
			t.Errorf("%q, %v, want %q", got, err, c.want)
		}
	})
}

func TestReadTime(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"\x17260102030405Z": "2026-01-02T03:04:05Z", "\x172601020304Z": "2026-01-02T03:04:00Z",
		"\x17491231235959Z": "2049-12-31T23:59:59Z", "\x17500101000000Z": "1950-01-01T00:00:00Z", "\x17680101000000Z": "1968-01-01T00:00:00Z",
		"\x17260102030405+0130": "2026-01-02T01:34:05Z", "\x17500101000000+0100": "1949-12-31T23:00:00Z",
		"\x1820260102030405Z": "2026-01-02T03:04:05Z", "\x1820260102030405.999Z": "2026-01-02T03:04:05Z",
		"\x18202601020304Z": "2026-01-02T03:04:00Z", "\x182026010203Z": "2026-01-02T03:00:00Z",
		"\x1820260102030405": "2026-01-02T03:04:05Z", "\x1820260102030405-0100": "2026-01-02T04:04:05Z",
		"\x1800000101000000Z": "0000-01-01T00:00:00Z", "\x1899991231235959Z": "9999-12-31T23:59:59Z",
		"\x1899991231235959-0100": "", "\x1800000101000000+0100": "",
		"\x17": "", "\x17260230000000Z": "", "\x17260102030460Z": "", "\x17260102030405": "", "\x1820260102Z": "", "\x0c20260102030405Z": "",
		"\x1720260102030405Z": "",
	} {
		s := cryptobyte.String(slices.Concat([]byte{in[0], byte(len(in) - 1)}, []byte(in[1:])))
		var got time.Time
		if ok := parseTime(&s, &got); ok != (want != "") || ok && got.Format(time.RFC3339) != want {
			t.Errorf("%q is %s, %v, want %s", in, got, ok, want)
		}
	}
}

// certParts holds the elements of a certificate, each in DER. A test can replace an element,
// or set an element to nil to leave it out.
type certParts struct {
	version, serial, innerAlgorithm, issuer, validity, subject, spki []byte
	tail                                                             []byte // all elements of the TBSCertificate after the public key
	outerAlgorithm                                                   []byte
}

// der joins the elements to a certificate and signs it with the given key. The key need not fit
// the signature algorithm that the certificate names, because no test checks the signature.
func (p certParts) der(key crypto.Signer) []byte {
	tbs := tlv(0x30, p.version, p.serial, p.innerAlgorithm, p.issuer, p.validity, p.subject, p.spki, p.tail)
	sum := sha256.Sum256(tbs)
	return tlv(0x30, tbs, p.outerAlgorithm, tlv(0x03, []byte{0}, testbed.Must(key.Sign(rand.Reader, sum[:], crypto.SHA256))))
}

// extensionsFor returns the extensions of a certificate that is for the given names.
func extensionsFor(list ...string) []byte {
	var entries [][]byte
	for _, n := range list {
		entries = append(entries, dnsName(n))
	}
	return extensions(san(entries...))
}

// ordinaryParts returns the elements of the ordinary certificate, which is for the host
// testDomain and has the given key.
func ordinaryParts(key crypto.Signer) certParts {
	alg := tlv(0x30, oid("1.2.840.10045.4.3.2"))
	return certParts{
		version: unhex("a003020102"), serial: unhex("02020102"), innerAlgorithm: alg, outerAlgorithm: alg,
		issuer:   name(rdn(attr("2.5.4.10", utf8s("Example CA")))),
		validity: validity(utc("260101000000Z"), utc("270101000000Z")),
		subject:  name(rdn(attr("2.5.4.3", utf8s(testDomain)))),
		spki:     testbed.Must(x509.MarshalPKIXPublicKey(key.Public())),
		tail:     extensionsFor(testDomain),
	}
}

// certificateWith returns the ordinary certificate in DER, after the given change to its
// elements. The change may be nil.
func certificateWith(change func(*certParts)) []byte {
	p := ordinaryParts(ecKey())
	if change != nil {
		change(&p)
	}
	return p.der(ecKey())
}

// tlv returns a DER element: the tag, the length and the content.
func tlv(tag byte, content ...[]byte) []byte {
	var b cryptobyte.Builder
	b.AddASN1(asn1.Tag(tag), func(b *cryptobyte.Builder) { b.AddBytes(bytes.Join(content, nil)) })
	return b.BytesOrPanic()
}

func oid(dotted string) []byte {
	return tlv(0x06, testbed.Must(testbed.Must(x509.ParseOID(dotted)).MarshalBinary()))
}

func unhex(s string) []byte { return testbed.Must(hex.DecodeString(s)) }

func name(rdns ...[]byte) []byte          { return tlv(0x30, rdns...) }
func rdn(attrs ...[]byte) []byte          { return tlv(0x31, attrs...) }
func attr(typ string, v []byte) []byte    { return tlv(0x30, oid(typ), v) }
func utf8s(s string) []byte               { return tlv(0x0c, []byte(s)) }
func printable(s string) []byte           { return tlv(0x13, []byte(s)) }
func utc(s string) []byte                 { return tlv(0x17, []byte(s)) }
func generalized(s string) []byte         { return tlv(0x18, []byte(s)) }
func validity(from, to []byte) []byte     { return tlv(0x30, from, to) }
func extensions(list ...[]byte) []byte    { return tlv(0xa3, tlv(0x30, list...)) }
func dnsName(s string) []byte             { return tlv(0x82, []byte(s)) }
func san(names ...[]byte) []byte          { return ext("2.5.29.17", tlv(0x30, names...)) }
func ext(typ string, value []byte) []byte { return tlv(0x30, oid(typ), tlv(0x04, value)) }

// The keys of the tests. Each is made only once, to save time.
var (
	ecKey  = sync.OnceValue(func() *ecdsa.PrivateKey { return curveKey(elliptic.P256()) })
	rsaKey = sync.OnceValue(func() *rsa.PrivateKey { return testbed.Must(rsa.GenerateKey(rand.Reader, 2048)) })
)

func curveKey(c elliptic.Curve) *ecdsa.PrivateKey {
	return testbed.Must(ecdsa.GenerateKey(c, rand.Reader))
}

const testDomain = "www.example.com"

// testNow returns a time in the middle of the validity of the ordinary certificate.
func testNow() time.Time { return time.Date(2026, 6, 15, 12, 0, 0, 0, time.UTC) }

const address = "93.184.216.34"
