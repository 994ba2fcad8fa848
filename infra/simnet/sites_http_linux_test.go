package simnet

import (
	"crypto/tls"
	"io"
	"net"
	"slices"
	"strings"

	"github.com/hostfacts/hostfacts/pkg/fault"
)

// httpHosts are about answers of ordinary origins.
func httpHosts() []host {
	every := status(200,
		"Access-Control-Allow-Origin: *", "Cache-Control: no-cache", "Cache-Control: private", "Content-Security-Policy: default-src 'none'",
		"Content-Security-Policy-Report-Only: img-src *", "Content-Type: text/html", "Cross-Origin-Opener-Policy: same-origin",
		"Cross-Origin-Resource-Policy: same-site", "Location: /elsewhere", "Permissions-Policy: camera=()", "Referrer-Policy: no-referrer",
		"Server: caf\xe9", "Strict-Transport-Security: max-age=1", "Strict-Transport-Security: max-age=2", "WWW-Authenticate: Basic",
		"X-Content-Type-Options: nosniff", "X-Frame-Options: DENY", "X-Powered-By: simnet", "Set-Cookie: a=b")
	got := says(status(200, "Server: got", "Content-Length: 5") + "hello")
	return []host{
		{name: "http500", serve: web(says(status(500)))},
		{name: "headers", serve: web(says(every))},
		{name: "head405", serve: web(methods(status(405, "Content-Length: 0"), got))},
		{name: "head501", serve: web(methods(status(501, "Content-Length: 0"), got))},
		{name: "http999", serve: web(says("HTTP/1.1 999 Request denied\r\n\r\n"))},
		{name: "garbage", serve: web(says("\x00\x01\x02\r\n\r\n"))},
		{name: "hangup", serve: web(says(""))},
		{name: "quiet", serve: web(says(hang))},
		{name: "endless", serve: secured(asIs, func(secure *tls.Conn, _ net.Conn) { // headers without end
			_, _ = io.WriteString(secure, "HTTP/1.1 200 OK\r\n")
			repeat(secure, "X-Filler: "+strings.Repeat("x", 1000)+"\r\n")
		})},
		{name: "drips", serve: secured(asIs, func(secure *tls.Conn, _ net.Conn) { // asked or not
			dripOut(secure, status(200, "Server: "+strings.Repeat("x", 1000)))
		})},
		{name: "none", serve: web(says(status(204)))},
	}
}

// headersRows are those of headers, and the fields of spec §2.4.
func headersRows() []row {
	headers := asks("headers")
	const handshake = "The TLS handshake failed"
	return slices.Concat([]row{
		headers("headers", want{
			"url": "https://headers.example.com/", "method": "HEAD", "status": 200, "headers.cache-control": "no-cache, private",
			"headers.server": "café", "headers.strict-transport-security": "max-age=1", "headers.location": "/elsewhere",
		}),
		headers("none", want{"status": 204, "headers.server": none}),
		headers("head405", want{"method": "GET", "status": 200, "headers.server": "got"}),
		headers("head501", want{"method": "GET", "status": 200}),
		headers("there", want{"status": 302, "headers.location": "https://www.example.com/"}),
		headers("http500", want{"status": 500}),
		headers("six", want{"peer_ip": "2606:2800:220:1::6"}),
		headers("[::1]", fails(fault.InvalidDomain)),
		headers("gone", fails(fault.NXDomain)),
	},
		alike("headers", want{"status": 200}, "expired", "stranger", "tls10", "rc4", "selfsigned"),
		alike("headers", fails(fault.ConnectFailed), "closed", "wall"),
		alike("headers", fails(fault.HandshakeFailed), "alert", "plain", "mtls12"),
		alike("headers", fails(fault.HandshakeFailed, handshake), "junkchain", "mlkemonly", "mtls13", "hangupatonce", "junkleaf"),
		alike("headers", fails(fault.HTTPFailed), "hangup", "garbage", "http999", "endless"),
		alike("headers", fails(fault.HeadersTimeout), "quiet", "drips", "mute", "silent"),
	)
}

// answered is a site about an answer, and what headers makes of it.
func answered(name string, serve server, w want) site {
	return site{host{name: full(name), serve: serve, tools: []string{"curl"}}, []row{asks("headers")(name, w)}}
}

// answerSites are about what an origin answers, byte for byte: an answer of each
// kind that package origin takes, refuses, or asks again about.
func answerSites() []site {
	const head, end = "HTTP/1.1 200 OK\r\n", "\r\n\r\n"
	sends := func(name, answer string, w want) site { return answered(name, web(says(answer)), w) }
	failed := func(why string) want { return fails(fault.HTTPFailed, "The HTTPS request failed: "+why) }
	empty405 := status(405, "Content-Length: 0")
	differs := func(name, get string, w want) site {
		return answered(name, web(methods(empty405, func(string, string) string { return get })), w)
	}
	h2 := func(c *tls.Config) { c.NextProtos = []string{"h2"} }
	return []site{
		answered("h2only", webTLS(h2, ok()), want{"status": 200, "headers.server": "simnet"}),
		sends("mixedbytes", head+"Cache-Control: caf\xe9\r\nCache-Control: caf\xc3\xa9"+end, want{"headers.cache-control": "café, café"}),
		sends("folded", head+"Server: a\r\n\t b"+end, want{"headers.server": "a b"}),
		sends("http3", "HTTP/3.0 200 OK\r\nServer: a"+end, want{"status": 200, "headers.server": "a"}),
		sends("longreason", "HTTP/1.1 200 "+strings.Repeat("x", 5000)+"\r\nServer: a"+end, want{"headers.server": "a"}),
		sends("interim", "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"+head+"Server: a"+end, want{"status": 200, "headers.server": "a"}),
		sends("toobig", head+"Server: "+strings.Repeat("x", 70<<10)+end, failed("the response headers are longer than 64 KiB.")),
		sends("status600", "HTTP/1.1 600 X"+end, failed("the response status is outside 100 to 599.")),
		sends("control", head+"Server: a\x01b"+end, failed("the response is not HTTP/1.1.")),
		differs("both405", status(405, "Server: got", "Content-Length: 0"), want{"method": "GET", "status": 405, "headers.server": "got"}),
		differs("hang405", hang, fails(fault.HeadersTimeout)),
		differs("quit405", "", failed("the connection ended without a response.")),
	}
}
