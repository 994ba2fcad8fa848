package simnet

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hostfacts/hostfacts/pkg/guard"
	"github.com/hostfacts/hostfacts/pkg/lookup"
)

// redirectHosts are about chains; some are stops of another's.
func redirectHosts() []host {
	return []host{
		{name: "there", serve: web(to("https://www.example.com/"))},
		{name: "relative", serve: web(paths(map[string]string{
			"/": status(301, "Location: a/b?x=1#frag"), "/a/b?x=1": status(308, "Location: ../c"), "/c": status(200),
		}))},
		{name: "hops5", serve: web(chain(5))},
		{name: "ping", serve: web(to("https://pong.example.com/"))},
		{name: "pong", serve: web(to("https://ping.example.com/"))},
		{name: "toturning", serve: web(to("https://mixed.example.com/"))},
	}
}

// redirectRows are every stop reason and code of resolve-redirect (spec §2.5).
func redirectRows() []row {
	trace := asks("resolve-redirect")
	return slices.Concat([]row{
		trace("example.com", want{"stop_reason": nil, "hop_count": 1, "hops.0.status": 200, "hops.0.location": nil, "final_url": "https://example.com/"}),
		trace("there", want{
			"start_url": "https://there.example.com/", "final_url": "https://www.example.com/", "hop_count": 2, "truncated": false, "stop_reason": nil,
			"hops.0.index": 0, "hops.0.method": "HEAD", "hops.0.status": 302, "hops.0.location": "https://www.example.com/", "hops.1.peer_ip": starts("93.184."),
		}),
		trace("relative", want{"final_url": "https://relative.example.com/c", "hop_count": 3, "hops.1.url": "https://relative.example.com/a/b?x=1"}),
		trace("head405", want{"hop_count": 1, "hops.0.method": "GET"}),
		trace("http999", want{"hop_count": 1, "hops.0.status": 999, "stop_reason": nil}),
		trace("turning", want{"hop_count": 2, "hops.0.peer_ip": "93.184.2.13", "hops.1.peer_ip": "93.184.2.13"}),
		trace("ping", want{"stop_reason": "loop", "hop_count": 2}),
		trace("toturning", stopped("blocked_address")),
		trace("gone", fails(lookup.NXDomain)),
		trace("closed", fails(lookup.ConnectFailed)),
	},
		alike("resolve-redirect", want{"hop_count": 5, "truncated": true, "stop_reason": "max_hops"}, "hops5"),
		alike("resolve-redirect", fails(lookup.HandshakeFailed), "alert", "junkchain"),
		alike("resolve-redirect", fails(lookup.HTTPFailed), "hangup", "endless"),
		alike("resolve-redirect", want{"hop_count": 1, "stop_reason": nil}, "old"),
		alike("resolve-redirect", fails(lookup.RedirectTimeout), "quiet", "drips"),
		alike("resolve-redirect", fails(lookup.RedirectTimeout, guard.Unresolved), "refused"),
	)
}

func stopped(reason string) want {
	return want{"stop_reason": reason, "hop_count": 1, "truncated": false, "hops.0.status": 302}
}

func arrives(url string) want {
	return want{"final_url": url, "hop_count": 2, "truncated": false, "stop_reason": nil}
}

// locationSites redirect once, each to a location, and answer any other path: a
// location of every kind that package redirect follows, stops at, or fails on.
func locationSites() []site {
	var sites []site
	add := func(location string, w want) {
		name := fmt.Sprintf("location%d.example.com", len(sites))
		r := row{name: fmt.Sprintf("%.60q", location), op: "resolve-redirect", domain: name, want: w}
		sites = append(sites, site{host{name: name, serve: web(root(status(302, "Location: "+location), status(200)))}, []row{r}})
	}
	for _, reason := range slices.Sorted(maps.Keys(stopsAt())) {
		for _, location := range stopsAt()[reason] {
			add(location, stopped(reason))
		}
	}
	for _, url := range []string{"https://mute.example.com/", "https://silent.example.com/", "https://drips.example.com/"} {
		add(url, fails(lookup.RedirectTimeout))
	}
	for _, same := range []string{"//www.example.com/", "https://www.example.com:0443/", "https://www。example。com/#frag"} {
		add(same, arrives("https://www.example.com/"))
	}
	add("https://bücher.com/", arrives("https://xn--bcher-kva.com/"))
	add("https://expired.example.com/", arrives("https://expired.example.com/"))
	add("/"+strings.Repeat("y", 8<<10), want{"hop_count": 2, "stop_reason": nil})
	add("/a\x00b", want{"hop_count": 2, "hops.0.location": "/ab", "stop_reason": nil})
	return sites
}

// stopsAt are locations that are not followed, or cannot be, by the reason. What
// looks like another host is among the corpora.
func stopsAt() map[string][]string {
	return map[string][]string{
		"missing_location":  {""},
		"loop":              {"#frag", "../.."},
		"invalid_location":  {"https://%zz/", "https://a@example.com/", "/" + strings.Repeat("x", 20<<10)},
		"insecure_redirect": {"http://example.com/", "file:///etc/passwd"},
		"blocked_port":      {"https://example.com:8443/", "https://www.example.com:22/"},
		"blocked_host":      {"https://localhost/", "https://127.0.0.1/", "https://[::1]:443/"},
		"blocked_address":   {"https://loopback.example.com/"},
		"nxdomain":          {"https://gone.example.com/"},
		"connect_failed":    {"https://closed.example.com/", "https://servfail.example.com/", "https://hole.example.com/"},
		"handshake_failed":  {"https://alert.example.com/", "https://reset.example.com/"},
		"http_failed":       {"https://hangup.example.com/"},
	}
}
