package dns_test

import (
	"errors"
	"net/url"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
)

func TestParseQuery(t *testing.T) {
	t.Parallel()
	queries := map[string]string{ // the values as understood, or a code
		"domain=EXAMPLE.com.":                   "domain=example.com&type=A",
		"domain=example.com&type=mx":            "domain=example.com&type=MX",
		"domain=_dmarc.example.com&type=TXT":    "domain=_dmarc.example.com&type=TXT",
		"domain=example.com&type=Aaaa&x=1&x=2":  "domain=example.com&type=AAAA",
		"domain=example.com&type=cname":         "domain=example.com&type=CNAME",
		"domain=example.com&type=NS":            "domain=example.com&type=NS",
		"domain=example.com&type=Soa":           "domain=example.com&type=SOA",
		"domain=example.com&Type=MX":            "domain=example.com&type=A",
		"type=A":                                "invalid_domain",
		"domain=localhost&type=nope":            "invalid_domain",
		"domain=example.com&domain=example.com": "invalid_domain",
	}
	for _, typ := range []string{"", "=", "=A&type=A", "=ANY", "=PTR", "=AXFR", "=1", "=A,MX", "=+A", "=A%00", "=%C5%BFOA", "=NONE"} {
		queries["domain=example.com&type"+typ] = "invalid_type"
	}
	for query, want := range queries {
		values, err := url.ParseQuery(query)
		if err != nil {
			t.Fatalf("%q: %v", query, err)
		}
		q, err := dns.ParseQuery(values)
		got := string(code(err))
		if err == nil {
			got = q.Values().Encode()
			if again, err := dns.ParseQuery(q.Values()); err != nil || again != q {
				t.Errorf("%q: its values are read as %+v, %v", query, again, err)
			}
		}
		if got != want {
			t.Errorf("%q: %s, want %s", query, got, want)
		}
	}
	typ, err := dns.TypeParam(url.Values{"type": {"MX"}, "dns_type": {"txt"}}, "dns_type")
	if typ != "TXT" || err != nil {
		t.Errorf("under another name: %q, %v, want TXT", typ, err)
	}
}

// code is the fault code of an error, empty for none and internal_error for
// one of another type.
func code(err error) fault.Code {
	var f *fault.Error
	switch {
	case err == nil:
		return ""
	case errors.As(err, &f):
		return f.Code
	}
	return fault.InternalError
}
