package whois

import (
	"net/url"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/fault"
)

func TestParseQuery(t *testing.T) {
	t.Parallel()
	q, err := ParseQuery(url.Values{"domain": {"Example.COM."}})
	if err != nil || q.Values().Encode() != "domain=example.com" {
		t.Errorf("%+v, %v", q, err)
	}
	if _, err := ParseQuery(url.Values{"domain": {"_a.b.com"}}); fault.From(err).Code != fault.InvalidDomain {
		t.Errorf("%v, want invalid_domain", err)
	}
}
