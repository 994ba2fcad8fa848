package whois

import (
	"net/url"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/pkg/fault"
)

func TestParseQuery(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"domain=Example.COM.":            "example.com",
		"domain=b%C3%BCcher.example.com": "xn--bcher-kva.example.com",
		"domain=a.example.com&type=MX":   "a.example.com",
	} {
		values, err := url.ParseQuery(raw)
		if err != nil {
			t.Fatal(err)
		}
		q, err := ParseQuery(values)
		if err != nil || q.Domain != want || !cmp.Equal(q.Values(), url.Values{"domain": {want}}) {
			t.Errorf("%s: %+v, %v", raw, q, err)
		}
	}
	for _, raw := range []string{"", "domain=", "domain=a.com&domain=b.com", "domain=1.2.3.4", "domain=localhost", "domain=_dmarc.example.com", "domain=com", "domain=a.b/c"} {
		values, err := url.ParseQuery(raw)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ParseQuery(values); err == nil || fault.From(err).Code != fault.InvalidDomain {
			t.Errorf("%s: %v", raw, err)
		}
	}
}
