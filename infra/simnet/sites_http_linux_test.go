package simnet

import (
	"crypto/tls"
	"fmt"
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
	hosts := []host{
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
		{name: "expired500", serve: web(says(status(500)), expired())},
		{name: "none", serve: web(says(status(204)))},
	}
	for _, code := range []int{404, 499, 500, 503} {
		hosts = append(hosts, host{name: fmt.Sprintf("http%d", code), serve: web(says(status(code)))})
	}
	return hosts
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
		alike("headers", want{"status": 200}, "expired", "stranger", "tls10", "rc4", "negative", "selfsigned"),
		alike("headers", fails(fault.ConnectFailed), "closed", "wall"),
		alike("headers", fails(fault.HandshakeFailed), "alert", "plain", "mtls12"),
		alike("headers", fails(fault.HandshakeFailed, handshake), "junkchain", "wrongkey", "wrongkey12", "rsa9216", "mlkemonly", "mtls13", "hangupatonce",
			"resets12", "closes12", "junkleaf"),
		alike("headers", fails(fault.HTTPFailed), "hangup", "garbage", "http999", "endless"),
		alike("headers", fails(fault.HeadersTimeout), "quiet", "drips", "mute", "silent"),
	)
}

// answered is a site about an answer, and what headers makes of it.
func answered(name string, serve server, w want) site {
	return site{host{name: full(name), serve: serve, tools: []string{"curl"}}, []row{asks("headers")(name, w)}}
}

// answerSites are about what an origin answers, byte for byte.
func answerSites() []site {
	ended := fails(fault.HTTPFailed, "The HTTPS request failed: the connection ended without a response.")
	asked := func(then func(secure *tls.Conn, under net.Conn)) server {
		return secured(asIs, func(secure *tls.Conn, under net.Conn) {
			_, _ = secure.Read(make([]byte, 1))
			then(secure, under)
		})
	}
	h2 := func(c *tls.Config) { c.NextProtos = []string{"h2"} }
	return slices.Concat(heads(), badHeads(), fallbacks(), []site{
		answered("h2only", webTLS(h2, ok()), want{"status": 200, "headers.server": "simnet"}),
		answered("afterreset", asked(func(_ *tls.Conn, under net.Conn) { resets(under) }), ended),
		answered("farewell", asked(func(secure *tls.Conn, under net.Conn) { // goodbye in place of an answer
			_ = secure.CloseWrite()
			swallow(under)
		}), ended),
	})
}

// The parts of a whole answer.
const (
	head = "HTTP/1.1 200 OK\r\n"
	end  = "\r\n\r\n"
)

// heads are whole answers, to any request, that are taken.
func heads() []site {
	taken := func(name, answer string, w want) site {
		return answered(name, web(says(answer)), w.with("method", "HEAD"))
	}
	plain := func(name, answer string) site {
		return taken(name, answer, want{"status": 200, "headers.server": "a"})
	}
	return []site{
		taken("twoservers", head+"Server: a\r\nServer: b"+end, want{"headers.server": "a"}),
		taken("utf8value", head+"Server: caf\xc3\xa9"+end, want{"headers.server": "café"}),
		taken("mixedbytes", head+"Cache-Control: caf\xe9\r\nCache-Control: caf\xc3\xa9"+end, want{"headers.cache-control": "café, café"}),
		taken("folded", head+"Server: a\r\n\t b"+end, want{"headers.server": "a b"}),
		taken("spacecolon", head+"Server : a"+end, want{"headers.server": none}),
		taken("emptyvalue", head+"Server:\r\nX-Powered-By:   "+end, want{"headers.server": "", "headers.x-powered-by": "", "headers.content-type": none}),
		taken("shouting", head+"SERVER: a\r\nx-FRAME-options: b"+end, want{"headers.server": "a", "headers.x-frame-options": "b"}),
		taken("spaces", head+"Server: \t a b \t"+end, want{"headers.server": "a b"}),
		taken("switching", "HTTP/1.1 101 Switching Protocols\r\nServer: a\r\nUpgrade: x"+end, want{"status": 101, "headers.server": "a"}),
		taken("big", head+"Server: "+strings.Repeat("x", 40<<10)+end, want{"headers.server": starts("xxx")}),
		plain("lfonly", "HTTP/1.1 200 OK\nServer: a\n\n"),
		plain("noreason", "HTTP/1.1 200\r\nServer: a"+end),
		plain("longreason", "HTTP/1.1 200 "+strings.Repeat("x", 5000)+"\r\nServer: a"+end),
		plain("http10", "HTTP/1.0 200 OK\r\nServer: a"+end),
		plain("http3", "HTTP/3.0 200 OK\r\nServer: a"+end),
		plain("headbody", head+"Server: a\r\nContent-Length: 5"+end+"hello"),
		plain("interim", "HTTP/1.1 100 Continue\r\nServer: no\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"+head+"Server: a"+end),
		plain("manyheaders", head+strings.Repeat("X-Filler: 0123456789\r\n", 2000)+"Server: a"+end),
		plain("gzipped", head+"Content-Encoding: gzip\r\nServer: a"+end),
		plain("badlength", head+"Content-Length: x\r\nServer: a"+end),
		plain("twolengths", head+"Content-Length: 1\r\nContent-Length: 2\r\nServer: a"+end),
		plain("oddcoding", head+"Transfer-Encoding: zzz\r\nServer: a"+end),
	}
}

// badHeads are answers that are not HTTP/1.1, or not within bounds, by what is said
// of them.
func badHeads() []site {
	var sites []site
	for message, answers := range map[string]map[string]string{
		"The HTTPS request failed: the response headers are longer than 64 KiB.": {
			"toobig":   head + "Server: " + strings.Repeat("x", 70<<10) + end,
			"toolong":  "HTTP/1.1 200 " + strings.Repeat("x", 70<<10) + end,
			"interims": strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", 5000) + head + end,
		},
		"The HTTPS request failed: the response status is outside 100 to 599.": {
			"status000": "HTTP/1.1 000 X" + end, "status099": "HTTP/1.1 099 X" + end, "status600": "HTTP/1.1 600 X" + end,
		},
		"The HTTPS request failed: the response is not HTTP/1.1.": {
			"nocolon":    head + "nonsense" + end,
			"control":    head + "Server: a\x01b" + end,
			"nulbyte":    head + "Server: a\x00b" + end,
			"status99":   "HTTP/1.1 99 X" + end,
			"status2000": "HTTP/1.1 2000 X" + end,
			"statusword": "HTTP/1.1 OK" + end,
			"http09":     "<html>hello</html>\n",
			"http2":      "HTTP/2 200 OK\r\nServer: a" + end,
			"lowercase":  "http/1.1 200 OK\r\nServer: a" + end,
			"icy":        "ICY 200 OK\r\nServer: a" + end,
			"h2frame":    "\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x64\r\n\r\n",
			"ssh":        "SSH-2.0-OpenSSH_9.9\r\n\r\n",
		},
	} {
		for name, answer := range answers {
			sites = append(sites, answered(name, web(says(answer)), fails(fault.HTTPFailed, message)))
		}
	}
	return sites
}

// fallbacks answer HEAD and GET differently.
func fallbacks() []site {
	got := status(200, "Server: got", "Content-Length: 5") + "hello"
	empty := func(code int) string { return status(code, "Content-Length: 0") }
	differs := func(name, head, get string, w want) site { return answered(name, web(methods(head, says(get))), w) }
	byGET := func(code int) want { return want{"method": "GET", "status": code, "headers.server": "got"} }
	return []site{
		differs("both405", empty(405), status(405, "Server: got", "Content-Length: 0"), byGET(405)),
		differs("both501", status(501), status(501, "Server: got", "Connection: close"), byGET(501)),
		differs("body405", status(405, "Content-Length: 5")+"wrong", got, byGET(200)),
		differs("close405", status(405, "Connection: close"), got, byGET(200)),
		differs("old405", "HTTP/1.0 405 X\r\n\r\n", got, byGET(200)),
		differs("endless405", empty(405), status(200, "Server: got")+strings.Repeat("x", 1<<20), byGET(200)),
		differs("hang405", empty(405), hang, fails(fault.HeadersTimeout)),
		differs("quit405", empty(405), "", fails(fault.HTTPFailed, "The HTTPS request failed: the connection ended without a response.")),
		differs("head400", status(400), got, want{"method": "HEAD", "status": 400, "headers.server": none}),
		differs("head403", status(403), got, want{"method": "HEAD", "status": 403}),
		differs("head404", status(404), got, want{"method": "HEAD", "status": 404}),
		differs("headonly500", status(500), got, want{"method": "HEAD", "status": 500}),
		differs("headhangs", hang, got, fails(fault.HeadersTimeout)),
	}
}
