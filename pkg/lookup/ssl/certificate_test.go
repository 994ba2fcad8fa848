package ssl

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/json"
	"math/big"
	"net"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// FuzzCertificate takes bytes as a leaf all the way to JSON, and holds the
// reading against that of crypto/x509 where that reads them.
func FuzzCertificate(f *testing.F) {
	der := issue(ecKey(), func(c *x509.Certificate) {
		c.Subject = pkix.Name{CommonName: domain, Organization: []string{"a+b, c"}, StreetAddress: []string{" x "}}
		c.EmailAddresses, c.IPAddresses = []string{"a@example.com"}, []net.IP{net.IPv6loopback}
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
		s := seen{leaf: raw, version: tls.VersionTLS12, suite: tls.TLS_RSA_WITH_RC4_128_SHA}
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
	digits := new(big.Int).Abs(x.SerialNumber).Text(16)
	if len(digits)%2 == 1 {
		digits = "0" + digits
	}
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
			compared = compared && ok && slices.Contains([]string{"CN", "C", "O", "OU", "L", "ST", "STREET"}, attributeName(a.Type.String()))
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
