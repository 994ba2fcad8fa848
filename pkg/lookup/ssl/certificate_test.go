package ssl

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/json"
	"net"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/crypto/cryptobyte"
)

// FuzzCertificate takes bytes as a leaf all the way to JSON, and holds the
// reading against that of crypto/x509 where that reads them.
func FuzzCertificate(f *testing.F) {
	der := with(func(p *parts) {
		p.subject = name(rdn(attr("2.5.4.10", utf8s("a+b, c"))), rdn(attr("2.5.4.9", printable(" x "))), cn(utf8s(domain)))
		p.rest = extensions(san(tlv(0x81, []byte("a@example.com")), tlv(0x87, net.IPv6loopback), dnsName(domain)))
	})
	f.Add(der)
	f.Add(der[:len(der)-1])
	for _, seed := range kept("certificates.hex") {
		f.Add(seed[0])
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if len(raw) > 1<<16 {
			return
		}
		s := flight{leaf: raw, version: tls.VersionTLS12, suite: tls.TLS_RSA_WITH_RC4_128_SHA}
		x, xerr := x509.ParseCertificate(raw)
		r, err := s.result(query(), netip.IPv6LinkLocalAllNodes(), time.Unix(1e9, 0))
		if err != nil {
			if xerr == nil {
				t.Fatalf("crypto/x509 reads it: %v", err)
			}
			return
		}
		holdResult(t, r, len(raw))
		if xerr == nil {
			holdAgainst(t, r, x)
		}
	})
}

// kept are the seeds in a file of testdata: on each line the arguments of one in
// hex ("-" is none), after a comment that says what makes it worth keeping.
func kept(file string) [][][]byte {
	text := must(os.ReadFile("testdata/" + file))
	var seeds [][][]byte
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		var seed [][]byte
		for _, arg := range strings.Fields(line) {
			seed = append(seed, unhex(strings.TrimPrefix(arg, "-")))
		}
		seeds = append(seeds, seed)
	}
	return seeds
}

// holdResult checks what is true of every result.
func holdResult(t *testing.T, r Result, size int) {
	t.Helper()
	b, err := json.Marshal(r)
	// The worst is a control character in Latin-1: six bytes of JSON, twice
	// two backslashes among them, for each.
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

// holdAgainst compares with crypto/x509.
func holdAgainst(t *testing.T, r Result, x *x509.Certificate) {
	t.Helper()
	digits := cmp.Or(hex.EncodeToString(x.SerialNumber.Bytes()), "00")
	if x.SerialNumber.Sign() < 0 {
		digits = "-" + digits
	}
	sum := sha256.Sum256(x.Raw)
	if r.Serial != digits || r.FingerprintSHA256 != hex.EncodeToString(sum[:]) ||
		r.NotBefore != x.NotBefore.UTC().Format("2006-01-02T15:04:05Z") || r.NotAfter != x.NotAfter.UTC().Format("2006-01-02T15:04:05Z") ||
		r.HostnameMatch != (x.VerifyHostname(domain) == nil) {
		t.Errorf("%+v differs from %s %s %s", r, digits, x.NotBefore, x.NotAfter)
	}
	if len(x.DNSNames) <= maxNames && !slices.Equal(r.SANs, x.DNSNames) {
		t.Errorf("names %q, want %q", r.SANs, x.DNSNames)
	}
	for text, n := range map[string]pkix.Name{r.Subject: x.Subject, r.Issuer: x.Issuer} {
		// crypto/x509 has names for few types, and no escapes for control characters.
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

// dn is a name by RFC 4514, nothing unescaped that the RFC escapes and no control
// characters.
var dn = func() *regexp.Regexp {
	const (
		text = `([^"+,;<>\\\x00-\x1f\x7f]|\\["+,;<>\\# ]|\\[0-9A-F]{2})`
		head = `([^" #+,;<>\\\x00-\x1f\x7f]|\\["+,;<>\\# ]|\\[0-9A-F]{2})` // without "#" and space
		attr = `([A-Za-z][A-Za-z0-9-]*|[0-9]+(\.[0-9]+)+)=(#([0-9a-f]{2})+|` + head + text + `*)?`
	)
	return regexp.MustCompile(`^(` + attr + `([+,]` + attr + `)*)?$`)
}()

func cn(value []byte) []byte { return rdn(attr("2.5.4.3", value)) }

// TestSubject: names by RFC 4514, and how values are read.
func TestSubject(t *testing.T) {
	t.Parallel()
	ia5 := func(s string) []byte { return tlv(0x16, []byte(s)) }
	const dc, uid = "0.9.2342.19200300.100.1.25", "0.9.2342.19200300.100.1.1"
	for want, subject := range map[string][][]byte{
		"": nil,
		"CN=a,OU=b,O=c,C=DE": {rdn(attr("2.5.4.6", printable("DE"))), rdn(attr("2.5.4.10", utf8s("c"))),
			rdn(attr("2.5.4.11", utf8s("b"))), cn(utf8s("a"))},
		"CN=a,DC=example,DC=com":            {rdn(attr(dc, ia5("com"))), rdn(attr(dc, ia5("example"))), cn(utf8s("a"))},
		"emailAddress=a@example.com,UID=u1": {rdn(attr(uid, utf8s("u1"))), rdn(attr("1.2.840.113549.1.9.1", ia5("a@example.com")))},
		"organizationIdentifier=VATDE-1,serialNumber=7,jurisdictionC=DE,businessCategory=Private": {rdn(attr("2.5.4.15", utf8s("Private"))),
			rdn(attr("1.3.6.1.4.1.311.60.2.1.3", printable("DE"))), rdn(attr("2.5.4.5", printable("7"))), rdn(attr("2.5.4.97", utf8s("VATDE-1")))},
		"givenName=G,SN=S,STREET=1 Main St": {rdn(attr("2.5.4.9", utf8s("1 Main St"))), rdn(attr("2.5.4.4", utf8s("S"))),
			rdn(attr("2.5.4.42", utf8s("G")))},
		"CN=a+UID=u,O=x":                   {rdn(attr("2.5.4.10", utf8s("x"))), rdn(attr("2.5.4.3", utf8s("a")), attr(uid, utf8s("u")))},
		`CN=\#a\, b\+c\"d\\e\<f\>g\;h=i\ `: {cn(utf8s(`#a, b+c"d\e<f>g;h=i `))},
		`CN=\ a#b`:                         {cn(utf8s(" a#b"))},
		`CN=\ `:                            {cn(utf8s(" "))},
		`CN=a\00b\0Ac\7F`:                  {cn(utf8s("a\x00b\nc\x7f"))},
		"CN=bücher 日本":                     {cn(utf8s("bücher 日本"))},
		`CN=a\C2\85b`:                      {cn(utf8s("a\u0085b"))},
		"CN=café":                          {cn(tlv(0x14, []byte("caf\xe9")))},
		"CN=Ω":                             {cn(tlv(0x1e, []byte{0x03, 0xa9}))},
		"CN=Ω😀":                            {cn(tlv(0x1c, []byte{0, 0, 0x03, 0xa9, 0, 1, 0xf6, 0}))},
		"CN=😀":                             {cn(tlv(0x1e, []byte{0xd8, 0x3d, 0xde, 0x00}))}, // which BMPString does not have
		"CN=#0c0261ff":                     {cn(utf8s("a\xff"))},
		"CN=#1301ff":                       {cn(printable("\xff"))},
		"CN=#020107":                       {cn(tlv(2, []byte{7}))},
		"CN=#1e03000000":                   {cn(tlv(0x1e, []byte{0, 0, 0}))},
		"CN=#1e02d83d":                     {cn(tlv(0x1e, []byte{0xd8, 0x3d}))},
		"CN=#1e04d83d0041":                 {cn(tlv(0x1e, []byte{0xd8, 0x3d, 0, 0x41}))},
		"CN=#1c0400110000":                 {cn(tlv(0x1c, []byte{0, 0x11, 0, 0}))},
		"1.2.3.4=#0c0161":                  {rdn(attr("1.2.3.4", utf8s("a")))},
		"2.25.329800735698586629295641978511506172918=#0500": {rdn(attr("2.25.329800735698586629295641978511506172918", tlv(5)))},
	} {
		c, err := readCertificate(with(func(p *parts) { p.subject = name(subject...) }))
		if err != nil || c.subject != want {
			t.Errorf("subject %q, %v, want %q", c.subject, err, want)
		}
	}
}

// TestNames: the dNSName entries of what follows the key.
func TestNames(t *testing.T) {
	t.Parallel()
	for want, rest := range map[string][]byte{
		"":              nil,
		domain + " ids": append(append(tlv(0x81, []byte{0, 1}), tlv(0x82, []byte{0, 2})...), extensions(san(dnsName(domain), dnsName("ids")))...),
		"A.example *.b.example": extensions(tlv(0x30, oid("2.5.29.17"), unhex("0101ff"), tlv(4, tlv(0x30,
			tlv(0x81, []byte("a@example.com")), dnsName("A.example"), tlv(0x86, []byte("https://x.example/")), tlv(0x87, []byte{192, 0, 2, 1}),
			dnsName("*.b.example"), tlv(0x88, []byte{42, 3}))))),
		"a.example b.example": extensions(san(dnsName("a.example")), ext("2.5.29.18", tlv(0x30, dnsName("issuer.example"))),
			san(dnsName("b.example"))),
	} {
		c, err := readCertificate(with(func(p *parts) { p.rest = rest }))
		if got := strings.Join(c.names, " "); err != nil || got != want {
			t.Errorf("names %q, %v, want %q", got, err, want)
		}
	}
}

// TestAlgorithm: the name that its RFC gives it, of what is said outside of what is signed.
func TestAlgorithm(t *testing.T) {
	t.Parallel()
	for dotted, want := range map[string]string{
		"1.2.840.113549.1.1.2": "md2WithRSAEncryption", "1.2.840.113549.1.1.4": "md5WithRSAEncryption",
		"1.2.840.113549.1.1.5": "sha1WithRSAEncryption", "1.2.840.113549.1.1.10": "rsassaPss",
		"1.2.840.113549.1.1.11": "sha256WithRSAEncryption", "1.2.840.113549.1.1.12": "sha384WithRSAEncryption",
		"1.2.840.113549.1.1.13": "sha512WithRSAEncryption", "1.2.840.113549.1.1.14": "sha224WithRSAEncryption",
		"1.2.840.113549.1.1.15": "sha512-224WithRSAEncryption", "1.2.840.10045.4.1": "ecdsa-with-SHA1",
		"1.2.840.10045.4.3.1": "ecdsa-with-SHA224", "1.2.840.10045.4.3.2": "ecdsa-with-SHA256",
		"1.2.840.10045.4.3.3": "ecdsa-with-SHA384", "1.2.840.10045.4.3.4": "ecdsa-with-SHA512",
		"1.2.840.10040.4.3": "dsa-with-sha1", "2.16.840.1.101.3.4.3.2": "dsa-with-sha256",
		"1.3.101.112": "Ed25519", "1.3.101.113": "Ed448", "1.2.3.4.5": "1.2.3.4.5",
	} {
		c, err := readCertificate(with(func(p *parts) { p.outer = tlv(0x30, oid(dotted)) }))
		if got := cmp.Or(algorithmNames()[c.algorithm], c.algorithm); err != nil || got != want {
			t.Errorf("%s is %s, %v, want %s", dotted, got, err, want)
		}
	}
	long := tlv(0x06, bytes.Repeat([]byte{1}, 257))
	if c, err := readCertificate(with(func(p *parts) { p.outer = tlv(0x30, long) })); err == nil {
		t.Errorf("257 bytes are %s", c.algorithm)
	}
}

func TestSerialText(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"00": "00", "0000": "00", "01": "01", "0080": "80", "80": "-80", "ff": "-01", "ff00": "-0100", "ffff01": "-ff",
		"8000": "-8000", "0102": "0102",
	} {
		if got := serialText(unhex(in)); got != want {
			t.Errorf("%s is %s, want %s", in, got, want)
		}
	}
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
		s := slices.Concat([]byte{in[0], byte(len(in) - 1)}, []byte(in[1:]))
		var got time.Time
		ok := readTime((*cryptobyte.String)(&s), &got)
		if ok != (want != "") || ok && got.Format("2006-01-02T15:04:05Z") != want {
			t.Errorf("%q is %s, %v, want %s", in, got, ok, want)
		}
	}
}
