package simnet

import (
	"slices"

	"github.com/hostfacts/hostfacts/pkg/fault"
)

// answerRows are what origins answer to headers.
func answerRows() []row {
	headers := func(name string, w want) row { return row{op: "headers", domain: name + ".example.com", want: w} }
	failed := func(name string, code fault.Code, message string) row {
		return row{op: "headers", domain: name + ".example.com", code: code, want: want{"error.message": starts(message)}}
	}
	rows := []row{
		headers("twoservers", want{"headers.server": "a"}),
		headers("utf8value", want{"headers.server": "café"}),
		headers("mixedbytes", want{"headers.cache-control": "café, café"}),
		headers("folded", want{"headers.server": "a b"}),
		headers("spacecolon", want{"headers.server": none}),
		headers("emptyvalue", want{"headers.server": "", "headers.x-powered-by": "", "headers.content-type": none}),
		headers("shouting", want{"headers.server": "a", "headers.x-frame-options": "b"}),
		headers("spaces", want{"headers.server": "a b"}),
		headers("big", want{"headers.server": starts("xxx")}),
		headers("switching", want{"status": 101, "headers.server": "a"}),
		headers("endless405", want{"method": "GET", "status": 200, "headers.server": "got"}),
		headers("both405", want{"method": "GET", "status": 405, "headers.server": "got"}),
		headers("both501", want{"method": "GET", "status": 501, "headers.server": "got"}),
		headers("head400", want{"method": "HEAD", "status": 400, "headers.server": none}),
		headers("head403", want{"method": "HEAD", "status": 403}),
		headers("head404", want{"method": "HEAD", "status": 404}),
		headers("headonly500", want{"method": "HEAD", "status": 500}),
		headers("h2only", want{"status": 200, "headers.server": "simnet"}),
		headers("rc4", want{"status": 200}), headers("negative", want{"status": 200}), headers("selfsigned", want{"status": 200}),
		failed("hang405", fault.HeadersTimeout, ""), failed("headhangs", fault.HeadersTimeout, ""),
	}
	for _, name := range []string{"lfonly", "noreason", "longreason", "http10", "http3", "headbody", "interim", "manyheaders", "gzipped", "badlength", "twolengths", "oddcoding"} {
		rows = append(rows, headers(name, want{"method": "HEAD", "status": 200, "headers.server": "a"}))
	}
	for _, name := range []string{"body405", "close405", "old405"} {
		rows = append(rows, headers(name, want{"method": "GET", "status": 200, "headers.server": "got"}))
	}
	for message, names := range map[string][]string{
		"The HTTPS request failed: the response headers are longer than 64 KiB.": {"toobig", "toolong", "interims"},
		"The HTTPS request failed: the response status is outside 100 to 599.":   {"status000", "status099", "status600"},
		"The HTTPS request failed: the connection ended without a response.":     {"quit405", "afterreset", "farewell"},
		"The HTTPS request failed: the response is not HTTP/1.1.":                {"nocolon", "control", "nulbyte", "status99", "status2000", "statusword", "http09", "http2", "lowercase", "icy", "h2frame", "ssh"},
	} {
		for _, name := range names {
			rows = append(rows, failed(name, fault.HTTPFailed, message))
		}
	}
	for _, name := range []string{"junkchain", "wrongkey", "wrongkey12", "rsa9216", "mlkemonly", "mtls13", "hangupatonce", "resets12", "closes12", "junkleaf"} {
		rows = append(rows, failed(name, fault.HandshakeFailed, "The TLS handshake failed"))
	}
	return rows
}

// locationRows are what becomes of a Location (RFC 3986, and what follows).
func locationRows() []row {
	trace := func(name string, w want) row {
		return row{op: "resolve-redirect", domain: name + ".example.com", want: w}
	}
	var rows []row
	for name, url := range map[string]string{ // where it leads; a path is on the same host
		"loc-slashes": "https://www.example.com/x", "loc-three": "///www.example.com", "loc-back": "/%5Cwww.example.com", "loc-backs": "/%5C%5Cwww.example.com",
		"loc-emptyport": "https://www.example.com/", "loc-zeroport": "https://www.example.com/", "loc-rootdot": "https://www.example.com/",
		"loc-shout": "https://www.example.com/", "loc-widedot": "https://www.example.com/", "loc-latin": "/caf%E9", "loc-space": "/a%20b?c%20d",
		"loc-outer": "/x", "loc-query": "/?x=1", "loc-withfragment": "https://www.example.com/", "loc-semicolon": "/a;b?c=d;e", "loc-utf8": "/b%C3%BCcher?%C3%BC",
		"loc-plus": "/a+b%20c", "loc-idn": "https://xn--bcher-kva.com/", "loc-puny": "https://xn--bcher-kva.com/", "twolocations": "/first",
		"s301": "/x", "s303": "/x", "s307": "/x", "s308": "/x", "head405hops": "/x", "hopsix": "https://six.example.com/",
	} {
		if url[0] == '/' {
			url = "https://" + name + ".example.com" + url
		}
		rows = append(rows, trace(name, want{"final_url": url, "hop_count": 2, "truncated": false, "stop_reason": none}))
	}
	for reason, names := range map[string][]string{
		"invalid_location": {"loc-opaque", "loc-oneslash", "loc-noname", "loc-backat", "loc-wordport", "loc-escaped", "loc-tab", "loc-badescape", "loc-long",
			"loc-userhost", "loc-userinfo", "loc-emptyuser", "loc-justscheme", "loc-colon"},
		"insecure_redirect": {"loc-mailto", "loc-data", "loc-file", "loc-ws", "loc-httplocal"},
		"blocked_port":      {"loc-hugeport", "loc-port22"},
		"blocked_host":      {"loc-twodots", "loc-zone", "loc-widedigits", "loc-zero", "loc-short", "loc-goog", "loc-local", "loc-under", "loc-badpuny", "loc-star", "loc-v6port"},
		"loop":              {"loc-fragment", "loc-dot", "loc-up"},
		"connect_failed":    {"hophole", "hopempty"},
		"handshake_failed":  {"hopreset"},
		"http_failed":       {"hop999"},
	} {
		for _, name := range names {
			rows = append(rows, trace(name, want{"hop_count": 1, "truncated": false, "stop_reason": reason, "hops.0.status": 302}))
		}
	}
	return slices.Concat(rows, []row{
		trace("loc-longish", want{"hop_count": 2, "stop_reason": none}),
		trace("s305", want{"hop_count": 1, "stop_reason": none, "hops.0.location": "/x"}),
		trace("s306", want{"hop_count": 1, "stop_reason": none}), trace("s399", want{"hop_count": 1, "stop_reason": none}),
		trace("endlesshops", want{"hop_count": 5, "truncated": true, "stop_reason": "max_hops"}),
		trace("queries", want{"hop_count": 5, "truncated": true, "stop_reason": "max_hops"}),
		trace("threeloop", want{"hop_count": 3, "truncated": false, "stop_reason": "loop"}),
		{op: "resolve-redirect", domain: "loc-nul.example.com", code: fault.HTTPFailed},
		{op: "resolve-redirect", domain: "hopdrips.example.com", code: fault.RedirectTimeout},
		{op: "resolve-redirect", domain: "drips.example.com", code: fault.RedirectTimeout},
		{op: "resolve-redirect", domain: "rsa9216.example.com", code: fault.HandshakeFailed},
		{op: "resolve-redirect", domain: "http999.example.com", code: fault.HTTPFailed},
		{op: "resolve-redirect", domain: "endless.example.com", code: fault.HTTPFailed},
		{op: "resolve-redirect", domain: "manylast.example.com", code: fault.BlockedAddress},
	})
}
