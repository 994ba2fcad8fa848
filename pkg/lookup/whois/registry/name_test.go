package registry

import (
	"testing"

	"github.com/hostfacts/hostfacts/pkg/fault"
)

// A query that ParseQuery did not make is refused.
func TestCheck(t *testing.T) {
	t.Parallel()
	for _, d := range []string{"", "Example.com", "example.com.", "127.0.0.1", "a/../b.com"} {
		if err := check(Query{Domain: d}); err == nil || fault.From(err).Code != fault.InvalidDomain {
			t.Errorf("check of %q: %v", d, err)
		}
	}
}

func TestRegistrable(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"example.com":                   "example.com",
		"www.example.com":               "example.com",
		"a.b.c.example.co.uk":           "example.co.uk",
		"example.co.uk":                 "example.co.uk",
		"co.uk":                         "co.uk",
		"foo.github.io":                 "github.io",
		"github.io":                     "github.io",
		"x.duckdns.org":                 "duckdns.org",
		"x.uk.com":                      "uk.com",
		"a.b.blogspot.com":              "blogspot.com",
		"x.s3.amazonaws.com":            "amazonaws.com",
		"www.city.kawasaki.jp":          "city.kawasaki.jp",
		"a.b.c.kawasaki.jp":             "b.c.kawasaki.jp",
		"x.www.ck":                      "www.ck",
		"a.b.c.k12.ca.us":               "c.k12.ca.us",
		"www.unknown-tld-xyz":           "www.unknown-tld-xyz",
		"a.b.unknown-tld-xyz":           "b.unknown-tld-xyz",
		"www.xn--85x722f.xn--55qx5d.cn": "xn--85x722f.xn--55qx5d.cn",
	} {
		if got := registrable(name); got != want {
			t.Errorf("registrable(%s) = %s, want %s", name, got, want)
		}
	}
}
