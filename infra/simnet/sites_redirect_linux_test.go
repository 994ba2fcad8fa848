package simnet

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hostfacts/hostfacts/pkg/fault"
)

// redirectHosts are about chains; some are stops of another's.
func redirectHosts() []host {
	hosts := []host{
		{name: "there", serve: web(to("https://www.example.com/"))},
		{name: "relative", serve: web(paths(map[string]string{
			"/": status(301, "Location: a/b?x=1#frag"), "/a/b?x=1": status(308, "Location: ../c"), "/c": status(200),
		}))},
		{name: "hops4", serve: web(chain(4))},
		{name: "hops5", serve: web(chain(5))},
		{name: "self", serve: web(to("https://self.example.com/"))},
		{name: "ping", serve: web(to("https://pong.example.com/"))},
		{name: "pong", serve: web(to("https://ping.example.com/"))},
		{name: "nowhere", serve: web(says(status(302)))},
		{name: "three04", serve: web(says(status(304, "Location: /x")))},
		{name: "three00", serve: web(says(status(300, "Location: /x")))},
		{name: "toturning", serve: web(to("https://mixed.example.com/"))},
		{name: "twolocations", serve: web(root(status(302, "Location: /first", "Location: /second"), status(200)))},
		{name: "endlesshops", serve: web(func(_, path string) string { return status(302, "Location: "+path+"x") })},
		{name: "queries", serve: web(func(_, path string) string {
			return status(302, "Location: /?n="+strings.Repeat("1", len(path)))
		})},
		{name: "threeloop", serve: web(paths(map[string]string{
			"/": status(302, "Location: /a"), "/a": status(302, "Location: /b#x"), "/b": status(302, "Location: /a#y"),
		}))},
		{name: "head405hops", serve: web(methods(status(405, "Content-Length: 0"),
			root(status(302, "Location: /x", "Content-Length: 0"), status(200, "Content-Length: 0"))))},
	}
	for _, code := range []int{301, 303, 305, 306, 307, 308, 399} {
		hosts = append(hosts, host{name: fmt.Sprintf("s%d", code), serve: web(root(status(code, "Location: /x"), status(200)))})
	}
	return hosts
}

// redirectRows are every stop reason and code of resolve-redirect (spec §2.5).
func redirectRows() []row {
	trace := asks("resolve-redirect")
	rows := slices.Concat([]row{
		trace("example.com", want{"stop_reason": none, "hop_count": 1, "hops.0.status": 200, "hops.0.location": none, "final_url": "https://example.com/"}),
		trace("there", want{
			"start_url": "https://there.example.com/", "final_url": "https://www.example.com/", "hop_count": 2, "truncated": false, "stop_reason": none,
			"hops.0.index": 0, "hops.0.method": "HEAD", "hops.0.status": 302, "hops.0.location": "https://www.example.com/", "hops.1.peer_ip": starts("93.184."),
		}),
		trace("relative", want{"final_url": "https://relative.example.com/c", "hop_count": 3, "hops.1.url": "https://relative.example.com/a/b?x=1"}),
		trace("head405", want{"hop_count": 1, "hops.0.method": "GET"}),
		trace("hops4", want{"hop_count": 5, "truncated": false, "stop_reason": none}),
		trace("three04", want{"stop_reason": none, "hops.0.location": "/x"}),
		trace("three00", want{"stop_reason": none}),
		trace("turning", want{"hop_count": 2, "hops.0.peer_ip": "93.184.2.13", "hops.1.peer_ip": "93.184.2.13"}),
		trace("ping", want{"stop_reason": "loop", "hop_count": 2}),
		trace("threeloop", want{"hop_count": 3, "truncated": false, "stop_reason": "loop"}),
		trace("self", stopped("loop")),
		trace("nowhere", stopped("missing_location")),
		trace("toturning", stopped("blocked_address")),
		trace("s305", want{"hop_count": 1, "stop_reason": none, "hops.0.location": "/x"}),
		trace("example.com:443", fails(fault.InvalidDomain)),
		trace("gone", fails(fault.NXDomain)),
		trace("closed", fails(fault.ConnectFailed)),
		trace("manylast", fails(fault.BlockedAddress)),
	},
		alike("resolve-redirect", want{"hop_count": 1, "stop_reason": none}, "s306", "s399"),
		alike("resolve-redirect", want{"hop_count": 5, "truncated": true, "stop_reason": "max_hops"}, "hops5", "endlesshops", "queries"),
		alike("resolve-redirect", fails(fault.HandshakeFailed), "alert", "rsa9216"),
		alike("resolve-redirect", fails(fault.HTTPFailed), "hangup", "http999", "endless"),
		alike("resolve-redirect", fails(fault.RedirectTimeout), "quiet", "drips"),
	)
	for name, path := range map[string]string{"twolocations": "/first", "s301": "/x", "s303": "/x", "s307": "/x", "s308": "/x", "head405hops": "/x"} {
		rows = append(rows, trace(name, arrives("https://"+full(name)+path)))
	}
	return rows
}

// stopped is a trace of one hop, which redirects, and is not followed.
func stopped(reason string) want {
	return want{"stop_reason": reason, "hop_count": 1, "truncated": false, "hops.0.status": 302}
}

// arrives is a trace of a redirect that leads to a page.
func arrives(url string) want {
	return want{"final_url": url, "hop_count": 2, "truncated": false, "stop_reason": none}
}

// locationSites redirect once, each to a location, and answer any other path: what
// becomes of a Location (RFC 3986, and what follows).
func locationSites() []site {
	var sites []site
	add := func(location string, answer func(url string) want) {
		name := fmt.Sprintf("location%d.example.com", len(sites))
		r := row{name: fmt.Sprintf("%.60q", location), op: "resolve-redirect", domain: name, want: answer("https://" + name)}
		sites = append(sites, site{host{name: name, serve: web(root(status(302, "Location: "+location), status(200)))}, []row{r}})
	}
	for _, location := range slices.Sorted(maps.Keys(leads())) {
		add(location, func(url string) want {
			if to := leads()[location]; to[0] != '/' {
				return arrives(to)
			}
			return arrives(url + leads()[location])
		})
	}
	for _, reason := range slices.Sorted(maps.Keys(stopsAt())) {
		for _, location := range stopsAt()[reason] {
			add(location, func(string) want { return stopped(reason) })
		}
	}
	for _, url := range []string{"https://mute.example.com/", "https://silent.example.com/", "https://drips.example.com/"} {
		add(url, func(string) want { return fails(fault.RedirectTimeout) })
	}
	add("/"+strings.Repeat("y", 8<<10), func(string) want { return want{"hop_count": 2, "stop_reason": none} })
	add("https://expired.example.com/", func(string) want { return want{"hop_count": 2, "stop_reason": none} })
	add("https://example.com:443/", func(string) want { return want{"hop_count": 2, "stop_reason": none} })
	add("/a\x00b", func(string) want { return fails(fault.HTTPFailed) })
	return sites
}

// leads are locations that are followed, and the URL that they lead to; a path is
// on the same host.
func leads() map[string]string {
	urls := map[string]string{
		"///www.example.com": "///www.example.com", `/\www.example.com`: "/%5Cwww.example.com", `\\www.example.com`: "/%5C%5Cwww.example.com",
		"/caf\xe9": "/caf%E9", "/a b?c d": "/a%20b?c%20d", "  /x  ": "/x", "?x=1": "/?x=1", "/a;b?c=d;e": "/a;b?c=d;e",
		"/bücher?ü": "/b%C3%BCcher?%C3%BC", "/a+b%20c": "/a+b%20c",
		"//www.example.com/x": "https://www.example.com/x", "https://six.example.com/": "https://six.example.com/",
		"https://bücher.com/": "https://xn--bcher-kva.com/", "https://xn--bcher-kva.com/": "https://xn--bcher-kva.com/",
	}
	for _, same := range []string{
		"https://www.example.com:/", "https://www.example.com:0443/", "https://www.example.com./", "HTTPS://WWW.EXAMPLE.COM/",
		"https://www。example。com/", "https://www.example.com/#frag",
	} {
		urls[same] = "https://www.example.com/"
	}
	return urls
}

// stopsAt are locations that are not followed, or cannot be, by the reason.
func stopsAt() map[string][]string {
	return map[string][]string{
		"missing_location": {""},
		"loop":             {"#frag", ".", "../.."},
		"invalid_location": {
			"https://%zz/", "https://a@example.com/", "https:///path", "https:www.example.com", "https:/www.example.com", "https://?x",
			`https://www.example.com\@10.0.0.1/`, "https://www.example.com:x/", "https://www%2eexample.com/", "https://www.exa\tmple.com/", "/%zz",
			"/" + strings.Repeat("x", 20<<10), "https://www.example.com@10.0.0.1/", "https://:@www.example.com/", "https://@www.example.com/", "https:", ":",
		},
		"insecure_redirect": {
			"http://example.com/", "ftp://example.com/", "javascript:alert(1)", "mailto:a@example.com", "data:text/plain,x", "file:///etc/passwd",
			"wss://www.example.com/", "http://localhost/",
		},
		"blocked_port": {"https://example.com:8443/", "https://example.com:80/", "https://www.example.com:99999/", "https://www.example.com:22/"},
		"blocked_host": {
			"https://localhost/", "https://127.0.0.1/", "https://[::1]/", "https://[::ffff:10.0.0.1]/", "https://2130706433/", "https://0177.0.0.1/",
			"https://0x7f.1/", "https://169.254.169.254/latest/meta-data/", "https://metadata.google.internal/", "https://intranet/",
			"https://www.example.com../", "https://[fe80::1%25lo]/", "https://１２７.0.0.1/", "https://0/", "https://127.1/", "https://metadata.goog/",
			"https://foo.local/", "https://_dmarc.example.com/", "https://xn--a.com/", "https://*.example.com/", "https://[::1]:443/",
		},
		"blocked_address":  {"https://loopback.example.com/"},
		"nxdomain":         {"https://gone.example.com/"},
		"connect_failed":   {"https://closed.example.com/", "https://servfail.example.com/", "https://hole.example.com/", "https://empty.example.com/"},
		"handshake_failed": {"https://alert.example.com/", "https://reset.example.com/"},
		"http_failed":      {"https://hangup.example.com/", "https://http999.example.com/"},
	}
}
