package operations_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/lookup/bundle"
	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
	"github.com/hostfacts/hostfacts/pkg/lookup/guard"
	"github.com/hostfacts/hostfacts/pkg/lookup/ssl"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// normalizer returns a function that parses parameters and returns their normalised form, or an
// error code. The function also checks that the normalised form is parsed to the same form.
func normalizer[Q interface{ Values() url.Values }](parse func(url.Values) (Q, error)) func(*testing.T, url.Values) string {
	return func(t *testing.T, values url.Values) string {
		q, err := parse(values)
		if err != nil {
			return string(fault.From(err).Code)
		}
		got := q.Values().Encode()
		if again, err := parse(q.Values()); err != nil || again.Values().Encode() != got {
			t.Errorf("%s is read again as %+v, %v", got, again, err)
		}
		return got
	}
}

// TestQueries checks which parameters the operations accept and how they normalise them. The
// tests of pkg/lookup/guard check which names are accepted.
func TestQueries(t *testing.T) {
	readers := map[string]func(*testing.T, url.Values) string{
		"dns": normalizer(dns.ParseQuery), "ssl": normalizer(ssl.ParseQuery), "host": normalizer(guard.ParseQuery), "intel": normalizer(bundle.ParseHostIntel),
	}
	rows := map[string]string{
		"dns domain=EXAMPLE.com.":                   "domain=example.com&type=A",
		"dns domain=_dmarc.example.com&type=TXT":    "domain=_dmarc.example.com&type=TXT",
		"dns domain=example.com&Type=MX":            "domain=example.com&type=A",
		"dns type=A":                                "invalid_domain",
		"dns domain=localhost&type=nope":            "invalid_domain",
		"dns domain=example.com&domain=example.com": "invalid_domain",
		"intel domain=Example.COM.":                 "dns_type=A&domain=example.com",
		"intel domain=example.com&dns_type=mx":      "dns_type=MX&domain=example.com",
		"intel domain=example.com&type=MX":          "dns_type=A&domain=example.com",
		"intel domain=example.com&dns_type=SRV":     "invalid_type",
		"intel domain=_dmarc.example.com":           "invalid_domain",
		"host domain=Example.COM.&type=MX&x=1":      "domain=example.com",
		"host domain=_dmarc.example.com":            "invalid_domain",
		"ssl domain=EXAMPLE.com.&port=443&x=1&x=2":  "domain=example.com&port=443",
		"ssl domain=b%C3%BCcher.de&Port=80":         "domain=xn--bcher-kva.de&port=443",
		"ssl domain=localhost&port=80":              "invalid_domain",
		"ssl domain=_dmarc.example.com":             "invalid_domain",
		"ssl domain=example.com&port=443&port=443":  "invalid_port",
	}
	for _, typ := range []string{"a", "Aaaa", "mx", "TXT", "cname", "NS", "Soa"} {
		rows["dns x=1&x=2&domain=example.com&type="+typ] = "domain=example.com&type=" + strings.ToUpper(typ)
	}
	for _, typ := range []string{"", "=", "=A&type=A", "=ANY", "=PTR", "=AXFR", "=1", "=A,MX", "=+A", "=A%00", "=%C5%BFOA", "=NONE"} {
		rows["dns domain=example.com&type"+typ] = "invalid_type"
	}
	for _, port := range []string{"", "=0443", "=%2B443", "=443+", "=443.0", "=8443", "=%D9%A4%D9%A4%D9%A3"} { // the last value has Arabic-Indic digits
		rows["ssl domain=example.com&port"+port] = "invalid_port"
	}
	for ask, want := range rows {
		operation, query, _ := strings.Cut(ask, " ")
		values, err := url.ParseQuery(query)
		if err != nil {
			t.Fatalf("%q: %v", query, err)
		}
		if got := readers[operation](t, values); got != want {
			t.Errorf("%s: %s, want %s", ask, got, want)
		}
	}
}
