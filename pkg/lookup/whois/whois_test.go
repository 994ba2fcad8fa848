package whois_test

import (
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/lookup/whois"
)

func TestParseBootstrapURL(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"https://data.iana.org/rdap/dns.json", "http://127.0.0.1:8080/x?y=z"} {
		if u, err := whois.ParseBootstrapURL(s); err != nil || u.String() != s {
			t.Errorf("%s: %v, %v", s, u, err)
		}
	}
	for _, s := range []string{"", "data.iana.org", "ftp://x/", "https://", "https://h/#f", "https://h:\x00secret/"} {
		if u, err := whois.ParseBootstrapURL(s); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v, %v", s, u, err)
		}
	}
}
