package guard_test

import (
	"net/netip"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/guard"
)

// FuzzDomain holds whatever is accepted to the promise of the package, told
// independently of its code.
func FuzzDomain(f *testing.F) {
	for _, values := range hostile(f) {
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
		host       = regexp.MustCompile(`^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
		underscore = regexp.MustCompile(`^([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?\.)+[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
		refused    = regexp.MustCompile(`(^|\.)(localhost|local|test|example|invalid|onion|alt|arpa|internal|corp|home|mail|lan|intranet|private|localdomain|domain|workgroup|metadata\.goog)$`)
	)
	f.Fuzz(func(t *testing.T, raw string, under bool) {
		g, form := guard.Hostname, host
		if under {
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
		if len(got) > 253 || !form.MatchString(got) {
			t.Errorf("Domain(%q) = %q, not of the grammar", raw, got)
		}
		if refused.MatchString(got) {
			t.Errorf("Domain(%q) = %q, a refused suffix", raw, got)
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
	})
}

// isInet reads an address the way lenient parsers do: netip, and inet_aton
// with one to four parts in decimal, octal or hexadecimal of any size.
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

// hostile are values that no grammar takes, by class: those of
// testdata/hostile.txt, which other suites send to the service too, and long ones.
func hostile(tb testing.TB) map[string][]string {
	tb.Helper()
	text, err := os.ReadFile("testdata/hostile.txt")
	if err != nil {
		tb.Fatal(err)
	}
	long := func(n int) string { return strings.Repeat("a", n) }
	all := map[string][]string{
		"length": {long(64) + ".com", long(255) + ".com", long(250) + "." + long(2), name253 + "c", strings.Repeat("a.", 126) + "com", long(1024), long(1025), long(1 << 20),
			strings.Repeat("a.", 1<<16) + "com", strings.Repeat("ü", 60) + "." + strings.Repeat("ö", 100) + ".com", strings.Repeat("ü", 1<<16), "a." + long(64),
			strings.Repeat("\u00ad", 600) + "a.com", strings.Repeat(".", 300), strings.Repeat("%", 300), strings.Repeat(long(63)+".", 4) + "com"},
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		class, quoted, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		value, err := strconv.Unquote(quoted)
		if err != nil {
			tb.Fatalf("%q: %v", line, err)
		}
		all[class] = append(all[class], value)
	}
	return all
}

func TestDomainRefusesHostile(t *testing.T) {
	t.Parallel()
	n := 0
	for class, values := range hostile(t) {
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
	if n < 300 {
		t.Errorf("the corpus has only %d values", n)
	}
}
