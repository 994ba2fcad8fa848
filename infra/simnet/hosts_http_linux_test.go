package simnet

import (
	"crypto/tls"
	"io"
	"net"
	"strings"
)

// answerHosts are about what an origin answers, byte for byte.
func answerHosts() []host {
	var all []host
	for name, head := range heads() {
		all = append(all, host{name: name + ".example.com", serve: web(says(head))})
	}
	for name, p := range fallbacks() {
		all = append(all, host{name: name + ".example.com", serve: web(p)})
	}
	h2 := func(c *tls.Config) { c.NextProtos = []string{"h2"} }
	return append(all,
		host{name: "h2only.example.com", serve: webTLS(h2, ok())},
		host{name: "afterreset.example.com", serve: resetsLater()},
		host{name: "farewell.example.com", serve: farewell()},
	)
}

// heads are whole answers, to any request.
func heads() map[string]string {
	const ok, end = "HTTP/1.1 200 OK\r\n", "\r\n\r\n"
	return map[string]string{
		"twoservers":  ok + "Server: a\r\nServer: b" + end,
		"utf8value":   ok + "Server: caf\xc3\xa9" + end,
		"mixedbytes":  ok + "Cache-Control: caf\xe9\r\nCache-Control: caf\xc3\xa9" + end,
		"folded":      ok + "Server: a\r\n\t b" + end,
		"spacecolon":  ok + "Server : a" + end,
		"emptyvalue":  ok + "Server:\r\nX-Powered-By:   " + end,
		"shouting":    ok + "SERVER: a\r\nx-FRAME-options: b" + end,
		"spaces":      ok + "Server: \t a b \t" + end,
		"lfonly":      "HTTP/1.1 200 OK\nServer: a\n\n",
		"noreason":    "HTTP/1.1 200\r\nServer: a" + end,
		"longreason":  "HTTP/1.1 200 " + strings.Repeat("x", 5000) + "\r\nServer: a" + end,
		"http10":      "HTTP/1.0 200 OK\r\nServer: a" + end,
		"http3":       "HTTP/3.0 200 OK\r\nServer: a" + end,
		"headbody":    ok + "Server: a\r\nContent-Length: 5" + end + "hello",
		"interim":     "HTTP/1.1 100 Continue\r\nServer: no\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + ok + "Server: a" + end,
		"switching":   "HTTP/1.1 101 Switching Protocols\r\nServer: a\r\nUpgrade: x" + end,
		"big":         ok + "Server: " + strings.Repeat("x", 40<<10) + end,
		"manyheaders": ok + strings.Repeat("X-Filler: 0123456789\r\n", 2000) + "Server: a" + end,
		"gzipped":     ok + "Content-Encoding: gzip\r\nServer: a" + end,
		"badlength":   ok + "Content-Length: x\r\nServer: a" + end,
		"twolengths":  ok + "Content-Length: 1\r\nContent-Length: 2\r\nServer: a" + end,
		"oddcoding":   ok + "Transfer-Encoding: zzz\r\nServer: a" + end,
		// Not HTTP/1.1, or not within bounds.
		"toobig":     ok + "Server: " + strings.Repeat("x", 70<<10) + end,
		"toolong":    "HTTP/1.1 200 " + strings.Repeat("x", 70<<10) + end,
		"interims":   strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", 5000) + ok + end,
		"nocolon":    ok + "nonsense" + end,
		"control":    ok + "Server: a\x01b" + end,
		"nulbyte":    ok + "Server: a\x00b" + end,
		"status99":   "HTTP/1.1 99 X" + end,
		"status000":  "HTTP/1.1 000 X" + end,
		"status099":  "HTTP/1.1 099 X" + end,
		"status600":  "HTTP/1.1 600 X" + end,
		"status2000": "HTTP/1.1 2000 X" + end,
		"statusword": "HTTP/1.1 OK" + end,
		"http09":     "<html>hello</html>\n",
		"http2":      "HTTP/2 200 OK\r\nServer: a" + end,
		"lowercase":  "http/1.1 200 OK\r\nServer: a" + end,
		"icy":        "ICY 200 OK\r\nServer: a" + end,
		"h2frame":    "\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x64\r\n\r\n",
		"ssh":        "SSH-2.0-OpenSSH_9.9\r\n\r\n",
	}
}

// fallbacks answer HEAD and GET differently, or a path and another.
func fallbacks() map[string]page {
	methods := func(head, get string) page {
		return func(method, _ string) string {
			if method == "HEAD" {
				return head
			}
			return get
		}
	}
	got := status(200, "Server: got", "Content-Length: 5") + "hello"
	return map[string]page{
		"both405":    methods(status(405, "Content-Length: 0"), status(405, "Server: got", "Content-Length: 0")),
		"both501":    methods(status(501), status(501, "Server: got", "Connection: close")),
		"body405":    methods(status(405, "Content-Length: 5")+"wrong", got),
		"close405":   methods(status(405, "Connection: close"), got),
		"old405":     methods("HTTP/1.0 405 X\r\n\r\n", got),
		"endless405": methods(status(405, "Content-Length: 0"), status(200, "Server: got")+strings.Repeat("x", 1<<20)),
		"hang405":    methods(status(405, "Content-Length: 0"), hang),
		"quit405":    methods(status(405, "Content-Length: 0"), ""),
		"head400":    methods(status(400), got), "head403": methods(status(403), got), "head404": methods(status(404), got), "headonly500": methods(status(500), got),
		"headhangs": methods(hang, got),
	}
}

// resetsLater is an HTTPS origin that resets when it was asked.
func resetsLater() server {
	return func(ca *authority, name string) func(net.Conn) {
		config := &tls.Config{Certificates: []tls.Certificate{ca.Leaf(name)}}
		return func(conn net.Conn) {
			secure := tls.Server(conn, config)
			_, _ = secure.Read(make([]byte, 1))
			if tcp, ok := conn.(*net.TCPConn); ok {
				_ = tcp.SetLinger(0)
			}
		}
	}
}

// farewell says goodbye by TLS in place of an answer.
func farewell() server {
	return func(ca *authority, name string) func(net.Conn) {
		config := &tls.Config{Certificates: []tls.Certificate{ca.Leaf(name)}}
		return func(conn net.Conn) {
			secure := tls.Server(conn, config)
			_, _ = secure.Read(make([]byte, 1))
			_ = secure.CloseWrite()
			_, _ = io.Copy(io.Discard, conn)
		}
	}
}

// locationHosts redirect once, each to its location, and answer any other path.
func locationHosts() []host {
	var all []host
	for name, location := range locations() {
		all = append(all, host{name: name + ".example.com", serve: web(once("Location: " + location))})
	}
	for _, code := range []int{301, 303, 305, 306, 307, 308, 399} {
		name := map[int]string{301: "s301", 303: "s303", 305: "s305", 306: "s306", 307: "s307", 308: "s308", 399: "s399"}[code]
		all = append(all, host{name: name + ".example.com", serve: web(func(_, path string) string {
			if path == "/" {
				return status(code, "Location: /x")
			}
			return status(200)
		})})
	}
	return append(all,
		host{name: "twolocations.example.com", serve: web(once("Location: /first", "Location: /second"))},
		host{name: "endlesshops.example.com", serve: web(func(_, path string) string { return status(302, "Location: "+path+"x") })},
		host{name: "queries.example.com", serve: web(func(_, path string) string {
			return status(302, "Location: /?n="+strings.Repeat("1", len(path)))
		})},
		host{name: "threeloop.example.com", serve: web(paths(map[string]string{
			"/": status(302, "Location: /a"), "/a": status(302, "Location: /b#x"), "/b": status(302, "Location: /a#y"),
		}))},
		host{name: "head405hops.example.com", serve: web(func(method, path string) string {
			if method == "HEAD" {
				return status(405, "Content-Length: 0")
			}
			if path == "/" {
				return status(302, "Location: /x", "Content-Length: 0")
			}
			return status(200, "Content-Length: 0")
		})},
		host{name: "hop999.example.com", serve: web(to("https://http999.example.com/"))},
		host{name: "hopdrips.example.com", serve: web(to("https://drips.example.com/"))},
		host{name: "hopreset.example.com", serve: web(to("https://reset.example.com/"))},
		host{name: "hophole.example.com", serve: web(to("https://hole.example.com/"))},
		host{name: "hopempty.example.com", serve: web(to("https://empty.example.com/"))},
		host{name: "hopsix.example.com", serve: web(to("https://six.example.com/"))},
	)
}

// once redirects from / and answers everywhere else.
func once(lines ...string) page {
	return func(_, path string) string {
		if path == "/" {
			return status(302, lines...)
		}
		return status(200)
	}
}

// locations are Location values, after the host's name.
func locations() map[string]string {
	return map[string]string{
		"loc-slashes": "//www.example.com/x", "loc-three": "///www.example.com", "loc-back": `/\www.example.com`, "loc-backs": `\\www.example.com`,
		"loc-opaque": "https:www.example.com", "loc-oneslash": "https:/www.example.com", "loc-noname": "https://?x",
		"loc-backat": `https://www.example.com\@10.0.0.1/`, "loc-emptyport": "https://www.example.com:/", "loc-zeroport": "https://www.example.com:0443/",
		"loc-hugeport": "https://www.example.com:99999/", "loc-wordport": "https://www.example.com:x/", "loc-rootdot": "https://www.example.com./",
		"loc-twodots": "https://www.example.com../", "loc-shout": "HTTPS://WWW.EXAMPLE.COM/", "loc-widedot": "https://www。example。com/",
		"loc-escaped": "https://www%2eexample.com/", "loc-tab": "https://www.exa\tmple.com/", "loc-badescape": "/%zz", "loc-latin": "/caf\xe9",
		"loc-space": "/a b?c d", "loc-outer": "  /x  ", "loc-query": "?x=1", "loc-fragment": "#frag", "loc-dot": ".", "loc-up": "../..",
		"loc-withfragment": "https://www.example.com/#frag", "loc-long": "/" + strings.Repeat("x", 20<<10), "loc-longish": "/" + strings.Repeat("x", 8<<10),
		"loc-mailto": "mailto:a@example.com", "loc-data": "data:text/plain,x", "loc-file": "file:///etc/passwd", "loc-ws": "wss://www.example.com/",
		"loc-httplocal": "http://localhost/", "loc-zone": "https://[fe80::1%25lo]/", "loc-widedigits": "https://１２７.0.0.1/",
		"loc-zero": "https://0/", "loc-short": "https://127.1/", "loc-goog": "https://metadata.goog/", "loc-local": "https://foo.local/",
		"loc-under": "https://_dmarc.example.com/", "loc-idn": "https://bücher.com/", "loc-puny": "https://xn--bcher-kva.com/",
		"loc-badpuny": "https://xn--a.com/", "loc-star": "https://*.example.com/", "loc-v6port": "https://[::1]:443/", "loc-port22": "https://www.example.com:22/",
		"loc-userhost": "https://www.example.com@10.0.0.1/", "loc-userinfo": "https://:@www.example.com/", "loc-emptyuser": "https://@www.example.com/",
		"loc-semicolon": "/a;b?c=d;e", "loc-nul": "/a\x00b", "loc-utf8": "/bücher?ü", "loc-plus": "/a+b%20c", "loc-justscheme": "https:", "loc-colon": ":",
	}
}
