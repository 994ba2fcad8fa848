package guard_test

import (
	"errors"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/guard"
)

var (
	label63 = strings.Repeat("a", 63)
	name253 = strings.Repeat(label63+".", 3) + strings.Repeat("b", 57) + ".com"
)

func TestDomainAccepts(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"example.com":               "example.com",
		"EXAMPLE.Com":               "example.com",
		"example.com.":              "example.com",
		"example.com。":              "example.com",
		"a.b.c.d.e.f.example.co.uk": "a.b.c.d.e.f.example.co.uk",
		"t.co":                      "t.co",
		"1.1.1.1.com":               "1.1.1.1.com",
		"127.0.0.1.nip.io":          "127.0.0.1.nip.io",
		"0x7f.example.com":          "0x7f.example.com",
		"example.0xyz":              "example.0xyz",
		"r3---sn-apo3qvuoxuxbt-j5pe.googlevideo.com": "r3---sn-apo3qvuoxuxbt-j5pe.googlevideo.com",
		"bücher.example.com":                         "xn--bcher-kva.example.com",
		"xn--bcher-kva.example.com":                  "xn--bcher-kva.example.com",
		"XN--BCHER-KVA.example.com":                  "xn--bcher-kva.example.com",
		"bücher.ab--cd.com":                          "xn--bcher-kva.ab--cd.com",
		"straße.de":                                  "xn--strae-oqa.de",
		"例え.テスト":                                     "xn--r8jz45g.xn--zckzah",
		"مثال.السعودية":                              "xn--mgbh0fb.xn--mgberp4a5d4ar",
		"中国。移动。中国":                                   "xn--fiqs8s.xn--6frz82g.xn--fiqs8s",
		"exam\u00adple.com":                          "example.com",
		"exam\u200bple.com":                          "example.com",
		"\u212aelvin.com":                            "kelvin.com",
		"💩.la":                                       "xn--ls8h.la",
		"localhost.example.com":                      "localhost.example.com",
		"mylocal.com":                                "mylocal.com",
		"local.gov":                                  "local.gov",
		"metadata.goog.example.com":                  "metadata.goog.example.com",
		"xmetadata.goog":                             "xmetadata.goog",
		label63 + ".com":                             label63 + ".com",
		name253:                                      name253,
		name253 + ".":                                name253,
	} {
		for _, g := range []guard.Grammar{guard.Hostname, guard.DNSName} {
			got, err := guard.Domain(raw, g)
			if err != nil || got != want {
				t.Errorf("Domain(%q, %d) = %q, %v, want %q", raw, g, got, err, want)
			}
		}
	}
}

func TestDomainUnderscore(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"_dmarc.example.com":                    "_dmarc.example.com",
		"foo_.example.com":                      "foo_.example.com",
		"_.example.com":                         "_.example.com",
		"_dmarc.bücher.example.com":             "_dmarc.xn--bcher-kva.example.com",
		"bücher._domainkey.example.com":         "xn--bcher-kva._domainkey.example.com",
		"_dmarc.r3---sn-ab.googlevideo.com":     "_dmarc.r3---sn-ab.googlevideo.com",
		"_xn--bcher-kva.example.com":            "_xn--bcher-kva.example.com",
		"_dmarc\uff0eexample\uff61com\u3002":    "_dmarc.example.com",
		"a_b\uff61bücher\u3002example\uff0ecom": "a_b.xn--bcher-kva.example.com",
	} {
		got, err := guard.Domain(raw, guard.DNSName)
		if err != nil || got != want {
			t.Errorf("Domain(%q, DNSName) = %q, %v, want %q", raw, got, err, want)
		}
		_, err = guard.Domain(raw, guard.Hostname)
		wantInvalid(t, raw, err, "underscore")
	}
	for _, raw := range []string{
		"example._com", "_tcp", "_dmarc.localhost", "_x.127.0.0.1", "_dmarc.bad-.com", "_b\u00fccher.example.com", "0a.\u05d0.com",
		"xn--_-.example.com", "_dmarc.xn--.com", "_a b.example.com", "_dmarc..com", "_dmarc.example.com..",
		"_dmarc\u3002\uff0eexample.com", "\uff61_dmarc.example.com", "_dmarc\u3002localhost", "_x\uff0e127\uff610\u30020.1", "example\u3002_com",
		"_dmarc\u2024example.com", "_dmarc.example.com\u3002\uff61",
		"_dmarc.example.com/", "-_x.example.com", "_x-.example.com",
	} {
		_, err := guard.Domain(raw, guard.DNSName)
		wantInvalid(t, raw, err, "")
	}
}

func TestDomainNamesTheFault(t *testing.T) {
	t.Parallel()
	for part, raws := range map[string][]string{
		"empty":                  {""},
		"root":                   {".", "\u200b"},
		"single label":           {"com"},
		"empty label":            {"a..com", "xn--.com", "a\u3002\uff61com"},
		"label that is too long": {strings.Repeat("a", 64) + ".com"},
		"too long":               {name253 + "m", strings.Repeat("a.", 5000) + "com"},
		"IP address":             {"127.0.0.1", "[::1]:443", "fe80::1%eth0", "2130706433", "①②⑦.0.0.1", "127\u30020\uff0e0\uff611:80"},
		"not public":             {"printer.local"},
		`':': pass a bare name`:  {"https://example.com"},
		`'/': pass a bare name`:  {"example.com/path"},
		`' '`:                    {"exam ple.com"},
		`'\x00'`:                 {"exam\x00ple.com"},
		"internationalised":      {"bü\u202echer.com"},
		`'*'`:                    {"bü*.com"},
		"hyphen":                 {"-a.com"},
		"underscore":             {"bü_.com"},
		"UTF-8":                  {"\xff.com"},
	} {
		for _, raw := range raws {
			_, err := guard.Domain(raw, guard.Hostname)
			wantInvalid(t, raw, err, part)
		}
	}
}

func TestDomainParam(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ query, want, part string }{
		{"domain=example.com&type=MX", "example.com", ""},
		{"domain=b%C3%BCcher.de", "xn--bcher-kva.de", ""},
		{"", "", "missing"},
		{"Domain=example.com", "", "missing"},
		{"domain=", "", "empty"},
		{"domain=a.com&domain=a.com", "", "repeated"},
		{"domain=a+b.com", "", "character ' '"},
		{"domain=127%252e0.0.1", "", "character '%'"},
		{"domain=example%2Ecom", "example.com", ""},
		{"domain=127%2E0%2E0%2E1", "", "IP address"},
	} {
		q, err := url.ParseQuery(c.query)
		if err != nil {
			t.Fatalf("%q: %v", c.query, err)
		}
		got, err := guard.DomainParam(q, guard.Hostname)
		if c.part != "" {
			wantInvalid(t, c.query, err, c.part)
		} else if err != nil || got != c.want {
			t.Errorf("%q = %q, %v, want %q", c.query, got, err, c.want)
		}
	}
}

// wantInvalid holds an error to the code invalid_domain and to a message that
// is short, plain ASCII and names the fault.
func wantInvalid(t *testing.T, raw string, err error, part string) {
	t.Helper()
	var f *fault.Error
	if !errors.As(err, &f) || f.Code != fault.InvalidDomain {
		t.Errorf("%q: %v, want invalid_domain", raw, err)
		return
	}
	if f.Unwrap() != nil {
		t.Errorf("%q: the cause %q is logged, and may quote the name", raw, f.Unwrap())
	}
	m := f.Public()
	if !strings.HasPrefix(m, "domain ") || !strings.Contains(m, part) {
		t.Errorf("%q: message %q, want one with %q", raw, m, part)
	}
	if len(m) > 160 || strings.ContainsFunc(m, func(r rune) bool { return r < ' ' || r >= utf8.RuneSelf || r == 0x7f }) {
		t.Errorf("%q: message %q is long or not plain", raw, m)
	}
}
