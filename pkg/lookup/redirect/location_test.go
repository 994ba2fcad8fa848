package redirect

import (
	"encoding/json"
	"net/url"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/lookup/guard"
)

// locationCase is a row of testdata/locations.tsv: a Location, the result of resolveLocation
// for it, and the rules that explain this result: WHATWG, guard or hostfacts. The first lines
// of the file say what these three names mean.
type locationCase struct{ location, outcome, rules string }

// baseURL returns the URL from which the Locations in testdata/locations.tsv come.
func baseURL() httpsURL { return httpsURL{host: "a.test.com", path: "/d/e?f"} }

// locations returns the rows of testdata/locations.tsv.
func locations(tb testing.TB) (all []locationCase) {
	tb.Helper()
	text, err := os.ReadFile("testdata/locations.tsv")
	if err != nil {
		tb.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.Split(strings.TrimSpace(line), "\t")
		if len(fields) != 3 {
			tb.Fatalf("%q has %d fields, want 3", line, len(fields))
		}
		all = append(all, locationCase{testbed.Must(strconv.Unquote(fields[0])), fields[1], fields[2]})
	}
	return all
}

// outcomeOf returns, as text, the result of resolveLocation for a Location in an answer from
// base.
func outcomeOf(location string) string {
	next, stop := resolveLocation(baseURL(), []string{location, "https://second.test.com/"})
	if stop != "" {
		return string(stop)
	}
	return next.url()
}

func TestFollow(t *testing.T) {
	t.Parallel()
	for _, r := range locations(t) {
		if got := outcomeOf(r.location); got != r.outcome {
			t.Errorf("%q: %s, want %s", r.location, got, r.outcome)
		}
	}
	// The URL standard has no rules for lengths and for bytes that are not UTF-8, so such
	// Locations are here and not in testdata/locations.tsv, which TestWHATWG compares with
	// that standard.
	for location, want := range map[string]string{
		"":                                  "missing_location",
		"/\xe9?\xe9":                        "https://a.test.com/%E9?%E9",
		"https://\xe9.com/":                 "invalid_location",
		"https://%e9.com/":                  "invalid_location",
		"https://b.test.com\x00/":           "invalid_location",
		"/x#" + strings.Repeat("x", maxURL): "invalid_location",
		"/" + strings.Repeat("é", 6000):     "invalid_location",
		"/" + strings.Repeat("x", maxURL-len("https://a.test.com/")):   "https://a.test.com/" + strings.Repeat("x", maxURL-len("https://a.test.com/")),
		"/" + strings.Repeat("x", maxURL-len("https://a.test.com/")+1): "invalid_location",
	} {
		if got := outcomeOf(location); got != want {
			t.Errorf("%.80q: %.80s, want %.80s", location, got, want)
		}
	}
	if _, stop := resolveLocation(baseURL(), nil); stop != MissingLocation {
		t.Errorf("no field: %s", stop)
	}
}

// TestWHATWG compares testdata/locations.tsv with Node, which parses URLs by the standard of
// the WHATWG, as browsers do. Node must agree with exactly the rows that name WHATWG.
func TestWHATWG(t *testing.T) {
	t.Parallel()
	const program = `const base = process.argv[1], all = JSON.parse(require("fs").readFileSync(0));
		const read = (l) => { try { const u = new URL(l, base); u.hash = ""; return u; } catch { return null; } };
		console.log(JSON.stringify(all.map(read).map((u) => u && ({ href: u.href.replaceAll("^", "%5E"), scheme: u.protocol, port: u.port }))));`
	type parsed struct{ Href, Scheme, Port string }
	table := locations(t)
	var texts []string
	for _, r := range table {
		texts = append(texts, r.location)
	}
	node := testbed.Command(t, testbed.Find(t, "Node, which has the standard's URL", "node"), "-e", program, baseURL().url())
	node.Stdin = strings.NewReader(string(testbed.Must(json.Marshal(texts))))
	var urls []*parsed
	testbed.Check(json.Unmarshal(testbed.Must(node.Output()), &urls))
	for i, r := range table {
		u := urls[i]
		followed := u != nil && u.Scheme == "https:" && u.Port == ""
		same := followed && u.Href == r.outcome
		switch StopReason(r.outcome) {
		case InvalidLocation, BlockedHost:
			same = u == nil
		case InsecureRedirect:
			same = u != nil && u.Scheme != "https:"
		case BlockedPort:
			same = u != nil && u.Scheme == "https:" && u.Port != ""
		}
		if same != (r.rules == "WHATWG") || !same && !followed {
			t.Errorf("%q: %s by %s; the standard has %+v", r.location, r.outcome, r.rules, u)
		}
	}
}

// FuzzFollow checks every URL that resolveLocation returns. The host must pass the guard, and
// the path must fit into a request line. Following the returned URL must give the same URL. If
// the reference has a host by RFC 3986, the URL must have that host.
func FuzzFollow(f *testing.F) {
	for _, r := range locations(f) {
		f.Add(r.location)
	}
	f.Add("//0=Aݳ0") // the guard maps this host to another one
	known := map[StopReason]bool{MissingLocation: true, InvalidLocation: true, InsecureRedirect: true, BlockedPort: true, BlockedHost: true}
	f.Fuzz(func(t *testing.T, location string) {
		next, stop := resolveLocation(baseURL(), []string{location})
		if stop != "" {
			if !known[stop] {
				t.Errorf("%q: stop reason %q", location, stop)
			}
			return
		}
		isFollowed(t, location, next)
	})
}

// isFollowed checks the URL that resolveLocation returned for a Location.
func isFollowed(t *testing.T, location string, next httpsURL) {
	t.Helper()
	if host, err := guard.Domain(next.host, guard.DNSName); err != nil || host != next.host {
		t.Errorf("%q: host %q: %v", location, next.host, err)
	}
	foreign := func(r rune) bool { return r < '!' || r > '~' || r == '#' }
	if !strings.HasPrefix(next.path, "/") || strings.ContainsFunc(next.path, foreign) {
		t.Errorf("%q: path %q", location, next.path)
	}
	if again, stop := resolveLocation(next, []string{next.url()}); stop != "" || again != next {
		t.Errorf("%q: %v followed again is %v, %q", location, next, again, stop)
	}
	if host, ok := rfc3986(location); ok && host != next.host {
		t.Errorf("%q: the host is %q, and by RFC 3986 %q", location, next.host, host)
	}
	// Package net/url must parse the URL in the same way. It refuses a stray percent sign, as
	// RFC 3986 does, so all percent signs are removed first.
	if u, err := url.Parse(strings.ReplaceAll(next.url(), "%", "")); err != nil || u.Host != next.host || u.User != nil {
		t.Errorf("%q: %q is read as %v, %v", location, next.url(), u, err)
	}
}

// rfc3986 returns the host to which a reference leads according to package net/url, normalised
// by the guard. If the reference is invalid by RFC 3986 or has no host, ok is false, because
// browsers may read it differently.
func rfc3986(location string) (host string, ok bool) {
	u, err := url.Parse(baseURL().url())
	if err == nil {
		u, err = u.Parse(location)
	}
	beginning := strings.TrimPrefix(strings.ToLower(location), "https:")
	if err != nil || strings.ContainsAny(location, "\\") || u.Opaque != "" || u.Hostname() == "" ||
		strings.HasPrefix(beginning, "///") || beginning != strings.ToLower(location) && !strings.HasPrefix(beginning, "//") {
		return "", false
	}
	host, err = guard.Domain(u.Hostname(), guard.DNSName)
	return host, err == nil
}
