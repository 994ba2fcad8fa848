package redirect

import (
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/guard"
)

// locations are what follow makes of a Location on https://a.test.com/d/e?f.
func locations() map[string]string {
	long := "/" + strings.Repeat("x", maxURL)
	all := map[string]string{
		"https://b.test.com/x?y#z":  "https://b.test.com/x?y",
		"x":                         "https://a.test.com/d/x",
		"../x/./y":                  "https://a.test.com/x/y",
		"?g":                        "https://a.test.com/d/e?g",
		"?":                         "https://a.test.com/d/e?",
		"//b.test.com/x":            "https://b.test.com/x",
		"HTTPS://B.Test.COM/X":      "https://b.test.com/X",
		"https://b.test.com?x":      "https://b.test.com/?x",
		"https://b.test.com:443/x":  "https://b.test.com/x",
		"https://b.test.com:0443/x": "https://b.test.com/x",
		"https://bücher.com/":       "https://xn--bcher-kva.com/",
		"/é?ü=ö":                    "https://a.test.com/%C3%A9?%C3%BC=%C3%B6",
		"/\xe9?\xe9":                "https://a.test.com/%E9?%E9",
		"/?\"<>'`{}|":               "https://a.test.com/?%22%3C%3E'`{}|",
		"/a%2Fb":                    "https://a.test.com/a%2Fb",
		"/?x HTTP/1.1":              "https://a.test.com/?x%20HTTP/1.1",
		// Browsers read the next as another host; RFC 3986 does not.
		"/\\b.test.com":    "https://a.test.com/%5Cb.test.com",
		"\\\\b.test.com/x": "https://a.test.com/d/%5C%5Cb.test.com/x",
		"":                 "missing_location",
	}
	for reason, refused := range map[string][]string{
		"invalid_location": {
			"/x#" + long[1:],
			"https://b.test.com\\@c.test.com/", "https://b.te%2est.com/", "https://b.test.com/%zz", "https://b.test.com:x/", "/a\tb",
			":", "//", "//?a", "//#a", "///b.test.com", long, "/" + strings.Repeat("é", 6000), "https:b.test.com", "https:///b.test.com",
			"https://?x", "https://:443/", "https:", "https://u@b.test.com/", "https://@b.test.com/", "https://u:p@b.test.com:8443",
		},
		"insecure_redirect": {
			"http://b.test.com/", "http://127.0.0.1:8080/", "javascript:alert(1)", "mailto:a@b.test.com", "b.test.com:443/",
			"http://u:p@b.test.com:99999/",
		},
		"blocked_port": {
			"https://b.test.com:8443/", "https://b.test.com:0/", "https://127.0.0.1:8443/",
		},
		"blocked_host": {
			"https://b.test.com../", "https://127.0.0.1/", "https://2130706433/", "https://[::1]/", "https://[fe80::1%25eth0]/",
			"https://[::ffff:169.254.169.254]/", "https://localhost/", "https://x.internal/", "https://b_c.test.com/",
			"https://b..com/", "https://\xe9.com/", "https://１２７.0.0.1/", "//169.254.169.254/latest/",
		},
	} {
		for _, location := range refused {
			all[location] = reason
		}
	}
	return all
}

func TestFollow(t *testing.T) {
	t.Parallel()
	from := httpsURL{host: "a.test.com", path: "/d/e?f"}
	for location, want := range locations() {
		p, stop := follow(from, []string{location, "https://second.test.com/"})
		got := string(stop)
		if stop == "" {
			got = p.url()
		}
		if got != want {
			t.Errorf("%.80q: %s, want %s", location, got, want)
		}
	}
	if _, stop := follow(from, nil); stop != MissingLocation {
		t.Errorf("no field: %s", stop)
	}
}

// FuzzFollow: a URL that is followed has a host that the guard passes and a
// path that fits into a request line, and following its own URL leads to it.
func FuzzFollow(f *testing.F) {
	for location := range locations() {
		if len(location) < 200 {
			f.Add(location)
		}
	}
	f.Add("//0=Aݳ0") // a host for the guard's mapping, which changes it
	line := regexp.MustCompile(`^/[!-~]*$`)
	known := map[StopReason]bool{MissingLocation: true, InvalidLocation: true, InsecureRedirect: true, BlockedPort: true, BlockedHost: true}
	f.Fuzz(func(t *testing.T, location string) {
		p, stop := follow(httpsURL{host: "a.test.com", path: "/d/e?f"}, []string{location})
		if stop != "" {
			if !known[stop] {
				t.Errorf("%q: stop reason %q", location, stop)
			}
			return
		}
		if host, err := guard.Domain(p.host, guard.Hostname); err != nil || host != p.host {
			t.Errorf("%q: host %q: %v", location, p.host, err)
		}
		if !line.MatchString(p.path) || strings.Contains(p.path, "#") {
			t.Errorf("%q: path %q", location, p.path)
		}
		u, err := url.Parse(p.url())
		if err != nil || u.Host != p.host || u.Scheme != "https" || u.User != nil {
			t.Errorf("%q: %q is read as %v, %v", location, p.url(), u, err)
		}
		if again, stop := follow(p, []string{p.url()}); stop != "" || again != p {
			t.Errorf("%q: %v followed again is %v, %q", location, p, again, stop)
		}
	})
}
