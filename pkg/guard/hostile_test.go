package guard_test

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/guard"
)

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
