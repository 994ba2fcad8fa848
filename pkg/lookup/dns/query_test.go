package dns_test

import (
	"errors"
	"net/url"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
)

func TestParseQuery(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		query string
		want  dns.Query
		code  fault.Code
	}{
		{query: "domain=example.com", want: dns.Query{Domain: "example.com", Type: "A"}},
		{query: "domain=EXAMPLE.com.&type=mx", want: dns.Query{Domain: "example.com", Type: "MX"}},
		{query: "domain=_dmarc.example.com&type=TXT", want: dns.Query{Domain: "_dmarc.example.com", Type: "TXT"}},
		{query: "domain=b%C3%BCcher.de&type=Aaaa&x=1&x=2", want: dns.Query{Domain: "xn--bcher-kva.de", Type: "AAAA"}},
		{query: "domain=example.com&type=a", want: dns.Query{Domain: "example.com", Type: "A"}},
		{query: "domain=example.com&type=cname", want: dns.Query{Domain: "example.com", Type: "CNAME"}},
		{query: "domain=example.com&type=NS", want: dns.Query{Domain: "example.com", Type: "NS"}},
		{query: "domain=example.com&type=Soa", want: dns.Query{Domain: "example.com", Type: "SOA"}},
		{query: "domain=example.com&Type=MX", want: dns.Query{Domain: "example.com", Type: "A"}},
		{query: "type=A", code: fault.InvalidDomain},
		{query: "domain=localhost", code: fault.InvalidDomain},
		{query: "domain=localhost&type=nope", code: fault.InvalidDomain},
		{query: "domain=example.com&domain=example.com", code: fault.InvalidDomain},
		{query: "domain=example.com&type=", code: fault.InvalidType},
		{query: "domain=example.com&type", code: fault.InvalidType},
		{query: "domain=example.com&type=A&type=A", code: fault.InvalidType},
		{query: "domain=example.com&type=ANY", code: fault.InvalidType},
		{query: "domain=example.com&type=PTR", code: fault.InvalidType},
		{query: "domain=example.com&type=AXFR", code: fault.InvalidType},
		{query: "domain=example.com&type=1", code: fault.InvalidType},
		{query: "domain=example.com&type=A,MX", code: fault.InvalidType},
		{query: "domain=example.com&type=+A", code: fault.InvalidType},
		{query: "domain=example.com&type=A%00", code: fault.InvalidType},
		{query: "domain=example.com&type=%C5%BFOA", code: fault.InvalidType},
		{query: "domain=example.com&type=NONE", code: fault.InvalidType},
	} {
		values, err := url.ParseQuery(c.query)
		if err != nil {
			t.Fatalf("%q: %v", c.query, err)
		}
		got, err := dns.ParseQuery(values)
		if code(err) != c.code || got != c.want {
			t.Errorf("%q = %+v, %v, want %+v %s", c.query, got, err, c.want, c.code)
		}
	}
}

func TestTypeParamOfAnotherName(t *testing.T) {
	t.Parallel()
	got, err := dns.TypeParam(url.Values{"type": {"MX"}, "dns_type": {"txt"}}, "dns_type")
	if got != "TXT" || err != nil {
		t.Errorf("TypeParam = %q, %v, want TXT", got, err)
	}
	if _, err := dns.TypeParam(url.Values{"dns_type": {"A", "A"}}, "dns_type"); code(err) != fault.InvalidType {
		t.Errorf("a repeated type: %v, want invalid_type", err)
	}
}

func TestQueryValues(t *testing.T) {
	t.Parallel()
	q, err := dns.ParseQuery(url.Values{"domain": {"Example.COM."}, "other": {"x"}})
	if err != nil {
		t.Fatal(err)
	}
	want := url.Values{"domain": {"example.com"}, "type": {"A"}}
	if diff := cmp.Diff(want, q.Values()); diff != "" {
		t.Errorf("Values: %s", diff)
	}
	if again, err := dns.ParseQuery(q.Values()); err != nil || again != q {
		t.Errorf("ParseQuery(Values) = %+v, %v, want %+v", again, err, q)
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
