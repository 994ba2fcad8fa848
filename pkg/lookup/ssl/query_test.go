package ssl

import (
	"net/url"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/fault"
)

func TestParseQuery(t *testing.T) {
	t.Parallel()
	for query, want := range map[string]string{ // the values as understood, or a code
		"domain=EXAMPLE.com.&port=443&x=1&x=2":       "domain=example.com&port=443",
		"domain=b%C3%BCcher.de&Port=80":              "domain=xn--bcher-kva.de&port=443",
		"domain=localhost&port=80":                   "invalid_domain",
		"domain=_dmarc.example.com":                  "invalid_domain",
		"domain=example.com&domain=example.com":      "invalid_domain",
		"domain=example.com&port":                    "invalid_port",
		"domain=example.com&port=443&port=443":       "invalid_port",
		"domain=example.com&port=0443":               "invalid_port",
		"domain=example.com&port=%2B443":             "invalid_port",
		"domain=example.com&port=443+":               "invalid_port",
		"domain=example.com&port=443.0":              "invalid_port",
		"domain=example.com&port=8443":               "invalid_port",
		"domain=example.com&port=%D9%A4%D9%A4%D9%A3": "invalid_port", // Arabic-Indic digits
	} {
		values, err := url.ParseQuery(query)
		if err != nil {
			t.Fatalf("%q: %v", query, err)
		}
		q, err := ParseQuery(values)
		got := string(code(err))
		if err == nil {
			got = q.Values().Encode()
		}
		if got != want {
			t.Errorf("%q: %s, want %s", query, got, want)
		}
	}
}

// code is the fault code of an error, empty for nil.
func code(err error) fault.Code {
	if err == nil {
		return ""
	}
	return fault.From(err).Code
}
