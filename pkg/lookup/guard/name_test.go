package guard_test

import (
	"errors"
	"net/netip"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/lookup/guard"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

var (
	label63 = strings.Repeat("a", 63)
	name253 = strings.Repeat(label63+".", 3) + strings.Repeat("b", 57) + ".com"
)

// TestDomainAccepts checks names that the guard must accept. If a name has an underscore, the
// grammar DNSName must accept it, and the grammar Hostname must refuse it.
func TestDomainAccepts(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"example.com":                           "example.com",
		"EXAMPLE.Com":                           "example.com",
		"example.com。":                          "example.com",
		"bücher.example.com":                    "xn--bcher-kva.example.com",
		"xn--bcher-kva.example.com":             "xn--bcher-kva.example.com",
		"XN--BCHER-KVA.example.com":             "xn--bcher-kva.example.com",
		"bücher.ab--cd.com":                     "xn--bcher-kva.ab--cd.com",
		"straße.de":                             "xn--strae-oqa.de",
		"STRAẞE.de":                             "xn--strae-oqa.de",
		"مثال.السعودية":                         "xn--mgbh0fb.xn--mgberp4a5d4ar",
		"中国。移动。中国":                              "xn--fiqs8s.xn--6frz82g.xn--fiqs8s",
		"exam\u00adple.com":                     "example.com",
		"\u212aelvin.com":                       "kelvin.com",
		"💩.la":                                  "xn--ls8h.la",
		label63 + ".com":                        label63 + ".com",
		name253:                                 name253,
		name253 + ".":                           name253,
		"_dmarc.example.com":                    "_dmarc.example.com",
		"foo_.example.com":                      "foo_.example.com",
		"_dmarc.bücher.example.com":             "_dmarc.xn--bcher-kva.example.com",
		"bücher._domainkey.example.com":         "xn--bcher-kva._domainkey.example.com",
		"_dmarc.r3---sn-ab.googlevideo.com":     "_dmarc.r3---sn-ab.googlevideo.com",
		"_xn--bcher-kva.example.com":            "_xn--bcher-kva.example.com",
		"_dmarc\uff0eexample\uff61com\u3002":    "_dmarc.example.com",
		"a_b\uff61bücher\u3002example\uff0ecom": "a_b.xn--bcher-kva.example.com",
	} {
		t.Run(raw, func(t *testing.T) {
			for _, g := range []guard.Grammar{guard.Hostname, guard.DNSName} {
				got, err := guard.Domain(raw, g)
				switch {
				case g == guard.Hostname && strings.Contains(raw, "_"):
					wantInvalid(t, raw, err, "underscore")
				case err != nil || got != want:
					t.Errorf("Domain(%q, %d) = %q, %v, want %q", raw, g, got, err, want)
				}
			}
		})
	}
}

func TestDomainNamesTheFault(t *testing.T) {
	t.Parallel()
	for wantText, raws := range map[string][]string{
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
		t.Run(wantText, func(t *testing.T) {
			for _, raw := range raws {
				_, err := guard.Domain(raw, guard.Hostname)
				wantInvalid(t, raw, err, wantText)
			}
		})
	}
	for query, wantText := range map[string]string{"Domain=example.com": "missing", "domain=": "empty", "domain=a.com&domain=a.com": "repeated"} {
		q, _ := url.ParseQuery(query)
		_, err := guard.DomainParam(q, guard.Hostname)
		wantInvalid(t, query, err, wantText)
	}
}

// wantInvalid checks that an error has the code invalid_domain and a short message in plain
// ASCII. The message must contain wantText.
func wantInvalid(t *testing.T, raw string, err error, wantText string) {
	t.Helper()
	var f *fault.Error
	if !errors.As(err, &f) || f.Code != lookup.InvalidDomain {
		t.Errorf("%q: %v, want invalid_domain", raw, err)
		return
	}
	if f.Unwrap() != nil {
		t.Errorf("%q: the cause %q is logged, and may quote the name", raw, f.Unwrap())
	}
	m := f.Public()
	if !strings.HasPrefix(m, "domain ") || !strings.Contains(m, wantText) {
		t.Errorf("%q: message %q, want one with %q", raw, m, wantText)
	}
	if len(m) > 160 || strings.ContainsFunc(m, func(r rune) bool { return r < ' ' || r >= utf8.RuneSelf || r == 0x7f }) {
		t.Errorf("%q: message %q is long or not plain", raw, m)
	}
}

// FuzzDomain checks that accepted names have the form that the doc comment of Domain promises.
// It uses regular expressions that are independent of the code of Domain.
func FuzzDomain(f *testing.F) {
	for _, values := range hostile() {
		for _, v := range values {
			if len(v) <= 300 {
				f.Add(v, false)
			}
		}
	}
	for _, v := range []string{"example.com", "bücher.example.com", "xn--ls8h.la", "ab--cd.com.", "中国。移动。中国", "١.com", name253, strings.Repeat("0", 1100), "ﷅ.0000", "Xn--0-0CB.A"} {
		f.Add(v, false)
	}
	for _, v := range []string{"_dmarc.example.com", "_dmarc.bücher.de.", "_dmarc\u3002example\uff0ecom\uff61", "ü._domainkey.xn--bcher-kva.com", "_xn--a.com"} {
		f.Add(v, true)
	}
	var (
		host        = regexp.MustCompile(`^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
		underscore  = regexp.MustCompile(`^([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?\.)+[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
		specialName = regexp.MustCompile(`(^|\.)(localhost|local|test|example|invalid|onion|alt|arpa|internal|corp|home|mail|lan|intranet|private|localdomain|domain|workgroup|metadata\.goog)$`)
	)
	f.Fuzz(func(t *testing.T, raw string, allowUnderscore bool) {
		g, form := guard.Hostname, host
		if allowUnderscore {
			g, form = guard.DNSName, underscore
		}
		got, err := guard.Domain(raw, g)
		if err != nil {
			if got != "" {
				t.Errorf("Domain(%q) = %q beside an error", raw, got)
			}
			wantInvalid(t, raw, err, "")
			return
		}
		if specialName.MatchString(got) {
			t.Errorf("Domain(%q) = %q, a refused suffix", raw, got)
		}
		checkDomain(t, raw, got, g, form)
	})
}

// checkDomain checks a name that Domain returned for the input raw and the grammar g: it must
// match the given regular expression and must not look like an IP address. Domain must return
// it unchanged for g and for DNSName.
func checkDomain(t *testing.T, raw, got string, g guard.Grammar, form *regexp.Regexp) {
	t.Helper()
	if len(got) > 253 || !form.MatchString(got) {
		t.Errorf("Domain(%q) = %q, not of the grammar", raw, got)
	}
	if again, err := guard.Domain(got, g); err != nil || again != got {
		t.Errorf("Domain(%q) = %q, and of that %q, %v", raw, got, again, err)
	}
	if again, err := guard.Domain(got, guard.DNSName); err != nil || again != got {
		t.Errorf("Domain(%q) = %q, which DNSName takes as %q, %v", raw, got, again, err)
	}
	if isInet(got) {
		t.Errorf("Domain(%q) = %q, an IP address", raw, got)
	}
}

// isInet reports whether netip or inet_aton could read s as an IP address. inet_aton reads
// decimal, octal and hexadecimal numbers that are separated by dots.
func isInet(s string) bool {
	if _, err := netip.ParseAddr(s); err == nil {
		return true
	}
	for p := range strings.SplitSeq(s, ".") {
		digits := "0123456789"
		if rest, ok := strings.CutPrefix(p, "0x"); ok {
			p, digits = rest, digits+"abcdef"
		}
		if strings.Trim(p, digits) != "" {
			return false
		}
	}
	return true
}

// corpus returns the lines of a file in testdata, without comments.
func corpus(file string) (lines []string) {
	for line := range strings.Lines(string(testbed.Must(os.ReadFile("testdata/" + file)))) {
		if line[0] != '#' {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

// hostile returns, by class, values that neither grammar accepts: the values in
// testdata/hostile.txt, and some more.
func hostile() map[string][]string {
	long := func(n int) string { return strings.Repeat("a", n) }
	all := map[string][]string{
		"length": {long(64) + ".com", long(255) + ".com", long(250) + "." + long(2), name253 + "c", strings.Repeat("a.", 126) + "com", long(1024), long(1025), long(1 << 20),
			strings.Repeat("a.", 1<<16) + "com", strings.Repeat("ü", 60) + "." + strings.Repeat("ö", 100) + ".com", strings.Repeat("ü", 1<<16), "a." + long(64),
			strings.Repeat("\u00ad", 600) + "a.com", strings.Repeat(".", 300), strings.Repeat("%", 300), strings.Repeat(long(63)+".", 4) + "com"},
		"underscore": {
			"example._com", "_tcp", "_dmarc.localhost", "_x.127.0.0.1", "_dmarc.bad-.com", "_b\u00fccher.example.com",
			"0a.\u05d0.com", "xn--_-.example.com", "_dmarc.xn--.com", "_a b.example.com", "_dmarc..com", "_dmarc.example.com..",
			"_dmarc\u3002\uff0eexample.com", "\uff61_dmarc.example.com", "_dmarc\u3002localhost", "_x\uff0e127\uff610\u30020.1",
			"example\u3002_com", "_dmarc\u2024example.com", "_dmarc.example.com\u3002\uff61", "_dmarc.example.com/",
			"-_x.example.com", "_x-.example.com",
		},
	}
	for _, line := range corpus("hostile.txt") {
		class, quoted, _ := strings.Cut(line, "\t")
		all[class] = append(all[class], testbed.Must(strconv.Unquote(quoted)))
	}
	return all
}

// TestCorpora checks that the guard refuses every value of the hostile corpus and accepts
// every value of the public corpus.
func TestCorpora(t *testing.T) {
	t.Parallel()
	n := 0
	for class, values := range hostile() {
		n += len(values)
		for _, raw := range values {
			for _, g := range []guard.Grammar{guard.Hostname, guard.DNSName} {
				got, err := guard.Domain(raw, g)
				if err == nil {
					t.Errorf("%s: Domain(%.80q, %d) = %q, want invalid_domain", class, raw, g, got)
					continue
				}
				wantInvalid(t, raw, err, "")
			}
		}
	}
	if n < 450 {
		t.Errorf("the corpus has only %d values", n)
	}
	for _, quoted := range corpus("public.txt") {
		if name, err := guard.Domain(testbed.Must(strconv.Unquote(quoted)), guard.Hostname); err != nil {
			t.Errorf("Domain(%s) = %q, %v", quoted, name, err)
		}
	}
}
