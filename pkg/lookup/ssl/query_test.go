package ssl_test

import (
	"net/url"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/lookup/ssl"
)

func TestParseQuery(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		query, domain string
		code          fault.Code
	}{
		{query: "domain=example.com", domain: "example.com"},
		{query: "domain=EXAMPLE.com.&port=443&x=1&x=2", domain: "example.com"},
		{query: "domain=b%C3%BCcher.de&Port=80", domain: "xn--bcher-kva.de"},
		{query: "", code: fault.InvalidDomain},
		{query: "domain=localhost&port=80", code: fault.InvalidDomain},
		{query: "domain=_dmarc.example.com", code: fault.InvalidDomain},
		{query: "domain=192.0.2.1", code: fault.InvalidDomain},
		{query: "domain=example.com&domain=example.com", code: fault.InvalidDomain},
		{query: "domain=example.com&port=", code: fault.InvalidPort},
		{query: "domain=example.com&port", code: fault.InvalidPort},
		{query: "domain=example.com&port=443&port=443", code: fault.InvalidPort},
		{query: "domain=example.com&port=0443", code: fault.InvalidPort},
		{query: "domain=example.com&port=%2B443", code: fault.InvalidPort},
		{query: "domain=example.com&port=443+", code: fault.InvalidPort},
		{query: "domain=example.com&port=443.0", code: fault.InvalidPort},
		{query: "domain=example.com&port=8443", code: fault.InvalidPort},
		{query: "domain=example.com&port=%D9%A4%D9%A4%D9%A3", code: fault.InvalidPort}, // Arabic-Indic digits
	} {
		values, err := url.ParseQuery(c.query)
		if err != nil {
			t.Fatalf("%q: %v", c.query, err)
		}
		got, err := ssl.ParseQuery(values)
		if code(err) != c.code || got.Domain != c.domain {
			t.Errorf("%q = %+v, %v, want %q %s", c.query, got, err, c.domain, c.code)
		}
	}
}

func TestQueryValues(t *testing.T) {
	t.Parallel()
	got := ssl.Query{Domain: "example.com"}.Values()
	if d := cmp.Diff(url.Values{"domain": {"example.com"}, "port": {"443"}}, got); d != "" {
		t.Error(d)
	}
	if again, err := ssl.ParseQuery(got); err != nil || again.Domain != "example.com" {
		t.Errorf("values do not parse: %+v, %v", again, err)
	}
}

// code is the fault code of an error, empty for nil.
func code(err error) fault.Code {
	if err == nil {
		return ""
	}
	return fault.From(err).Code
}
