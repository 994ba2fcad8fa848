package discovery

import (
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/catalog"
)

// sslWithAnyPort returns an operation whose parameter port may be any number.
func sslWithAnyPort() catalog.Operation {
	op := catalog.SSLCheck()
	op.Params = slices.Clone(op.Params)
	op.Params[1].Enum = nil
	return op
}

// TestFreeParameter checks a parameter that may be omitted and has no list of values. The form
// must have an input field for this parameter. If a value was sent, the input field must
// contain that value, even if the service refuses it. If nothing was sent, the input field
// must contain the default, because a form sends empty fields as well.
func TestFreeParameter(t *testing.T) {
	for name, c := range map[string]struct {
		asked, refused, want string
	}{
		"left out": {"", "", "443"},
		"asked":    {"25", "", "25"},
		"refused":  {"all", "port must be a number.", "all"},
	} {
		t.Run(name, func(t *testing.T) {
			v := newVisit(sslWithAnyPort(), "www.example.org")
			if c.asked != "" {
				v.Query.Set("port", c.asked)
			}
			if c.refused != "" {
				v.Query, v.Refused = nil, c.refused
				v.Typed = url.Values{"domain": {"www.example.org"}, "port": {c.asked}}
			}
			root, _ := checkVisit(t, sslWithAnyPort(), v)
			var got []string
			for _, n := range elements(root, "input") {
				got = append(got, testbed.Attribute(n, "name")+"="+testbed.Attribute(n, "value"))
			}
			wantEqual(t, "the fields of the form", []string{"domain=www.example.org", "port=" + c.want}, got)
		})
	}
}

// TestParametersInText checks how the template "params" lists an operation's parameters. A
// parameter is listed with its default, with the only value that it accepts, as optional, or
// as ignored.
func TestParametersInText(t *testing.T) {
	optional := sslWithAnyPort()
	optional.Params[1].Default = ""
	for _, c := range []struct {
		op   catalog.Operation
		want string
	}{
		{sslWithAnyPort(), "domain, port (default 443)"},
		{optional, "domain, port (optional)"},
		{catalog.SSLCheck(), "domain, port (443)"},
		{catalog.Ping(), "probe (ignored)"},
	} {
		var b strings.Builder
		if err := newView(testSite()).textTemplates.ExecuteTemplate(&b, "params", opViewOf(testSite(), c.op)); err != nil {
			t.Error(err)
		}
		wantEqual(t, c.op.Slug, c.want, b.String())
	}
}
