package guard_test

import (
	"net/netip"
	"regexp"
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
