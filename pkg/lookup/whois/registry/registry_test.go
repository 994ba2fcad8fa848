package registry

import (
	"net/url"
	"strings"
	"testing"

	"github.com/openrdap/rdap"
)

func wrap(services string) string {
	return `{"version":"1.0","publication":"2026-11-01T00:00:00Z","services":[` + services + `]}`
}

func TestParseRegistry(t *testing.T) {
	t.Parallel()
	r, err := parseRegistry([]byte(wrap(`[["COM","net",""],["https://rdap.example.com/v1"]],
		[["kg"],["http://rdap.cctld.kg"]],
		[["dev"],["http://plain.example.dev/","HTTPS://Secure.Example.dev/RDAP?x","https://Secure.Example.dev/RDAP","https://third.example.dev/"]],
		[["co.uk"],["https://co.example.uk/"]],
		[["uk."],["https://rdap.example.uk:8443/a/b/"]],
		[["xn--fiqs8s"],["https://rdap.example.cn/%2f/x"]],
		[["none"],[]],
		[["ftp"],["ftp://x.example.com/","//y.example.com/","https://u:p@z.example.com/","https:///nohost","https://q.example.com/?q","https://f.example.com/#f","https://p.example.com:x/","mailto:x",""]]`)))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"example.com":        "https://rdap.example.com/v1/",
		"example.kg":         "http://rdap.cctld.kg/",
		"example.dev":        "https://secure.example.dev/RDAP/",
		"example.co.uk":      "https://co.example.uk/",
		"co.uk":              "https://co.example.uk/",
		"notco.uk":           "https://rdap.example.uk:8443/a/b/",
		"example.ac.uk":      "https://rdap.example.uk:8443/a/b/",
		"example.xn--fiqs8s": "https://rdap.example.cn/%2f/x/",
		"example.none":       "",
		"example.ftp":        "",
		"example.io":         "",
		"com.io":             "",
	} {
		if got, ok := r.find(name); got != want || ok != (want != "") {
			t.Errorf("find(%s) = %q, %v; want %q", name, got, ok, want)
		}
	}
	good := `[["com"],["https://rdap.example.com/"]]`
	for name, doc := range map[string]string{
		"nothing":        "",
		"no version":     `{"services":[` + good + `]}`,
		"no services":    `{"version":"1.0"}`,
		"empty services": wrap(""),
		"null service":   wrap(good + `,null`),
		"numbers":        wrap(good + `,[[1],["https://rdap.example.com/"]]`),
		"no usable URL":  wrap(`[["com"],["ftp://rdap.example.com/"]]`),
		"trailing text":  wrap(good) + "x",
	} {
		if r, err := parseRegistry([]byte(doc)); err == nil || r != nil {
			t.Errorf("%s: took %d entries", name, len(r))
		}
	}
}

func TestRegistrable(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"example.com":                   "example.com",
		"www.example.com":               "example.com",
		"a.b.c.example.co.uk":           "example.co.uk",
		"co.uk":                         "co.uk",
		"foo.github.io":                 "github.io",
		"x.s3.amazonaws.com":            "amazonaws.com",
		"a.b.c.kawasaki.jp":             "b.c.kawasaki.jp",
		"x.www.ck":                      "www.ck",
		"www.unknown-tld-xyz":           "www.unknown-tld-xyz",
		"www.xn--85x722f.xn--55qx5d.cn": "xn--85x722f.xn--55qx5d.cn",
	} {
		if got := registrable(name); got != want {
			t.Errorf("registrable(%s) = %s, want %s", name, got, want)
		}
	}
}

// FuzzBootstrap takes bytes as a bootstrap file.
func FuzzBootstrap(f *testing.F) {
	f.Add([]byte(wrap(`[["com","net"],["https://rdap.example.com/v1","http://rdap.example.com/"]]`)))
	f.Add([]byte(wrap(`[["co.uk"],["HTTP://[2001:db8::1]:80"]],[["xn--fiqs8s"],["https://x/%2f"]]`)))
	f.Add([]byte("\xef\xbb\xbf" + wrap(`[[],[]],[["kg"],["http://h/"]]`)))
	f.Add([]byte(wrap(`null,[["a"],["https://h:0/","https://h:65535/a?b#c"]]`)))
	f.Add([]byte("10"))
	f.Fuzz(func(t *testing.T, doc []byte) {
		r, err := parseRegistry(doc)
		if (err == nil) != (len(r) > 0) {
			t.Fatalf("%d entries, %v", len(r), err)
		}
		for suffix, base := range r {
			if suffix == "" {
				t.Errorf("suffix %q", suffix)
			}
			u, err := url.Parse(base)
			if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" ||
				u.Fragment != "" || !strings.HasSuffix(base, "/") {
				t.Errorf("base %q: %v", base, err)
				continue
			}
			if got, ok := r.find("example." + suffix); !ok || got == "" {
				t.Errorf("example.%s is not found", suffix)
			}
			// What the library makes of it is the URL that is asked.
			asked := rdap.NewDomainRequest("example.com").WithServer(u).URL()
			if asked == nil || asked.String() != base+"domain/example.com" {
				t.Errorf("%q becomes %v", base, asked)
			}
		}
	})
}
