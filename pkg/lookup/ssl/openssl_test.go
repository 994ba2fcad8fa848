package ssl_test

import (
	"bytes"
	"crypto"
	"crypto/elliptic"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"maps"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// specimen is a certificate with the subject that is expected of it. openssl
// is what openssl writes for the subject where that differs, unread when it
// refuses the certificate, and why says why.
type specimen struct {
	name         string
	der          []byte
	subject      string
	openssl, why string
}

const unread = "?"

// named is an otherwise ordinary certificate with the given subject.
func named(subject, openssl, why string, rdns ...[]byte) specimen {
	return specimen{subject, with(func(p *parts) { p.subject = name(rdns...) }), subject, openssl, why}
}

func cn(value []byte) []byte { return rdn(attr("2.5.4.3", value)) }

func subjects() []specimen {
	return []specimen{
		named("", "", ""),
		named("CN=a,OU=b,O=c,C=DE", "", "", rdn(attr("2.5.4.6", printable("DE"))), rdn(attr("2.5.4.10", utf8s("c"))), rdn(attr("2.5.4.11", utf8s("b"))), cn(utf8s("a"))),
		named("CN=a,DC=example,DC=com", "", "", rdn(attr("0.9.2342.19200300.100.1.25", tlv(0x16, []byte("com")))), rdn(attr("0.9.2342.19200300.100.1.25", tlv(0x16, []byte("example")))), cn(utf8s("a"))),
		named("emailAddress=a@example.com,UID=u1", "", "", rdn(attr("0.9.2342.19200300.100.1.1", utf8s("u1"))), rdn(attr("1.2.840.113549.1.9.1", tlv(0x16, []byte("a@example.com"))))),
		named("organizationIdentifier=VATDE-1,serialNumber=7,jurisdictionC=DE,businessCategory=Private", "", "", rdn(attr("2.5.4.15", utf8s("Private"))), rdn(attr("1.3.6.1.4.1.311.60.2.1.3", printable("DE"))), rdn(attr("2.5.4.5", printable("7"))), rdn(attr("2.5.4.97", utf8s("VATDE-1")))),
		named("givenName=G,SN=S,STREET=1 Main St", "GN=G,SN=S,street=1 Main St", "RFC 4519 and 4514 §3 spell these so", rdn(attr("2.5.4.9", utf8s("1 Main St"))), rdn(attr("2.5.4.4", utf8s("S"))), rdn(attr("2.5.4.42", utf8s("G")))),
		named("CN=a+UID=u,O=x", "UID=u+CN=a,O=x", "one RDN has no order; openssl turns it around with the rest", rdn(attr("2.5.4.10", utf8s("x"))), rdn(attr("2.5.4.3", utf8s("a")), attr("0.9.2342.19200300.100.1.1", utf8s("u")))),
		named(`CN=\#a\, b\+c\"d\\e\<f\>g\;h=i\ `, "", "", cn(utf8s(`#a, b+c"d\e<f>g;h=i `))),
		named(`CN=\ a#b`, "", "", cn(utf8s(" a#b"))),
		named(`CN=\ `, "", "", cn(utf8s(" "))),
		named("CN=", "", "", cn(utf8s(""))),
		named(`CN=a\00b\0Ac\7F`, "", "", cn(utf8s("a\x00b\nc\x7f"))),
		named("CN=bücher 日本", "", "", cn(utf8s("bücher 日本"))),
		named(`CN=a\C2\85b`, "CN=a\u0085b", "control characters beyond ASCII are escaped as well", cn(utf8s("a\u0085b"))),
		named("CN=café", "", "", cn(tlv(0x14, []byte("caf\xe9")))),
		named("CN=Ω", "", "", cn(tlv(0x1e, []byte{0x03, 0xa9}))),
		named("CN=Ω😀", "", "", cn(tlv(0x1c, []byte{0, 0, 0x03, 0xa9, 0, 1, 0xf6, 0}))),
		named("CN=a_b@c", "", "", cn(printable("a_b@c"))),
		named("CN=😀", unread, "BMPString has no surrogates, but is written with them", cn(tlv(0x1e, []byte{0xd8, 0x3d, 0xde, 0x00}))),
		named("CN=#0c0261ff", unread, "the string is not UTF-8; RFC 4514 §2.4: what is no string is hex", cn(utf8s("a\xff"))),
		named("CN=#1301ff", "CN=ÿ", "PrintableString is ASCII, and openssl takes it for Latin-1", cn(printable("\xff"))),
		named("CN=#020107", unread, "an INTEGER is no DirectoryString", cn(tlv(2, []byte{7}))),
		named("1.2.3.4=#0c0161", "1.2.3.4=#0C0161", "hex is lower case everywhere in a result", rdn(attr("1.2.3.4", utf8s("a")))),
		named("2.25.329800735698586629295641978511506172918=#0500", unread, "a NULL, under an arc of 128 bits", rdn(attr("2.25.329800735698586629295641978511506172918", tlv(5)))),
	}
}

// others vary what is not the subject.
func others() []specimen {
	s := func(name string, change func(*parts)) specimen {
		return specimen{name: name, der: with(change), subject: "CN=" + domain}
	}
	serial := func(hex string) specimen {
		return s("serial "+hex, func(p *parts) { p.serial = tlv(2, unhex(hex)) })
	}
	times := func(from, to []byte) specimen {
		return s("validity "+string(from[2:]), func(p *parts) { p.validity = validity(from, to) })
	}
	alg := func(dotted string) specimen {
		return s("algorithm "+dotted, func(p *parts) { p.inner = tlv(0x30, oid(dotted)); p.outer = p.inner })
	}
	out := []specimen{
		serial("00"), serial("01"), serial("7f"), serial("0080"), serial("00ffffffffffffffffffffffffffffffffffffffff"), serial("80"), serial("ff"), serial("ff00"), serial("ff7f"), serial("8000"), serial("0123456789abcdef0123456789abcdef01234567890123456789abcdef01"),
		times(utc("500101000000Z"), utc("491231235959Z")), times(utc("991231235959Z"), generalized("99991231235959Z")), times(generalized("20500101000000Z"), generalized("20600229000000Z")),
		alg("1.2.840.113549.1.1.4"), alg("1.2.840.113549.1.1.2"), alg("1.2.840.113549.1.1.5"), alg("1.2.840.113549.1.1.10"), alg("1.2.840.113549.1.1.14"), alg("1.2.840.113549.1.1.15"), alg("1.2.840.10045.4.1"), alg("1.2.840.10045.4.3.1"), alg("1.3.101.112"), alg("1.3.101.113"), alg("1.2.3.4.5"), alg("1.2.840.10040.4.3"), alg("2.16.840.1.101.3.4.3.2"),
		s("no extensions", func(p *parts) { p.rest = nil }),
		s("version 1", func(p *parts) { p.version, p.rest = nil, nil }),
		s("unique identifiers", func(p *parts) {
			p.rest = append(append(tlv(0x81, []byte{0, 1}), tlv(0x82, []byte{0, 2})...), extensions(san(dnsName(domain)))...)
		}),
		s("names of every kind", func(p *parts) {
			p.rest = extensions(tlv(0x30, oid("2.5.29.17"), unhex("0101ff"), tlv(4, tlv(0x30,
				tlv(0x81, []byte("a@example.com")), dnsName("A.example"), tlv(0x86, []byte("https://x.example/")), tlv(0x87, []byte{192, 0, 2, 1}), dnsName("*.b.example"), tlv(0x88, []byte{42, 3})))))
		}),
		s("empty SAN", func(p *parts) { p.rest = extensions(san()) }),
	}
	for _, k := range []crypto.Signer{rsaKey(), edKey(), curveKey(elliptic.P384()), curveKey(elliptic.P521())} {
		out = append(out, specimen{name: fmt.Sprintf("issued %T", k), der: issue(k, nil), subject: "CN=" + domain})
	}
	out = append(out, specimen{name: "issued PSS", subject: "CN=" + domain,
		der: issue(rsaKey(), func(c *x509.Certificate) { c.SignatureAlgorithm = x509.SHA384WithRSAPSS })})
	return out
}

// opensslAlgorithms are the names that openssl 3.0 has and the RFCs do not.
func opensslAlgorithms() map[string]string {
	return map[string]string{
		"ED25519": "Ed25519", "ED448": "Ed448",
		"dsaWithSHA1": "dsa-with-sha1", "dsa_with_SHA256": "dsa-with-sha256",
		"RSA-SHA1": "sha1WithRSAEncryption",
	}
}

// TestAgainstOpenSSL inspects served certificates and compares every field
// with what openssl x509 reads in the same DER. The differences are in the
// tables above, with their reasons, and: openssl's serial is upper-case hex
// with the "-" of ours.
func TestAgainstOpenSSL(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("runs in make verify: needs the openssl command")
	}
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Skip("needs the openssl command")
	}
	for _, s := range append(subjects(), others()...) {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			// crypto/tls serves any DER with any key, and the leaf counts.
			got, err := lookup(t, tlsPeer(t, [][]byte{s.der}, ecKey(), atMost(tls.VersionTLS12)))
			if err != nil {
				t.Fatal(err)
			}
			if got.Subject != s.subject {
				t.Errorf("subject %q, want %q", got.Subject, s.subject)
			}
			if s.openssl == unread {
				return
			}
			want := openssl(t, s.der)
			subject := s.subject
			if s.why != "" {
				subject = s.openssl
			}
			have := map[string]string{
				"subject": subject, "issuer": got.Issuer, "serial": got.Serial,
				"notBefore": got.NotBefore, "notAfter": got.NotAfter,
				"sans": strings.Join(got.SANs, " "), "algorithm": got.SignatureAlgorithm, "fingerprint": got.FingerprintSHA256,
			}
			if d := cmp.Diff(want, have); d != "" {
				t.Errorf("openssl (-) and this (+):\n%s", d)
			}
		})
	}
}

// openssl reads a certificate the other way.
func openssl(t *testing.T, der []byte) map[string]string {
	t.Helper()
	run := func(args ...string) string {
		cmd := exec.CommandContext(t.Context(), "openssl", append([]string{"x509", "-inform", "DER", "-noout"}, args...)...)
		var stderr strings.Builder
		cmd.Stdin, cmd.Stderr = bytes.NewReader(der), &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("openssl %q: %v\n%s", args, err, stderr.String())
		}
		return string(out)
	}
	out := run("-serial", "-subject", "-issuer", "-dates", "-dateopt", "iso_8601", "-fingerprint", "-sha256", "-nameopt", "RFC2253,-esc_msb")
	got := map[string]string{}
	for line := range strings.Lines(out) {
		k, v, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		got[k] = v
	}
	text := run("-text", "-certopt", "no_subject,no_issuer")
	all := regexp.MustCompile(`Signature Algorithm: (\S+)`).FindAllStringSubmatch(text, -1)
	algorithm := all[len(all)-1][1]
	if rfc, ok := opensslAlgorithms()[algorithm]; ok {
		algorithm = rfc
	}
	var names []string
	for _, m := range regexp.MustCompile(`DNS:([^,\n]*)`).FindAllStringSubmatch(text, -1) {
		names = append(names, m[1])
	}
	iso := strings.NewReplacer(" ", "T")
	want := map[string]string{
		"subject": got["subject"], "issuer": got["issuer"], "serial": strings.ToLower(got["serial"]),
		"notBefore": iso.Replace(got["notBefore"]), "notAfter": iso.Replace(got["notAfter"]),
		"algorithm": algorithm, "sans": strings.Join(names, " "),
	}
	for k := range maps.Keys(got) {
		if strings.HasSuffix(k, "Fingerprint") {
			want["fingerprint"] = strings.ToLower(strings.ReplaceAll(got[k], ":", ""))
		}
	}
	return want
}
