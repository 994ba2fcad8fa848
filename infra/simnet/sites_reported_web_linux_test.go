package simnet

import (
	"crypto/tls"
	"io"
	"net"
	"slices"

	"github.com/hostfacts/hostfacts/pkg/lookup"
)

// reportedOrigins are what origins do in a handshake and in the head of an answer.
func reportedOrigins() []site {
	const (
		head, end   = "HTTP/1.1 200 OK\r\n", "\r\n\r\n"
		rc4MD5      = 4 // which Go does not know
		agree, ours = "both: ", "the service: "
	)
	sends := func(name, answer string, w want) site {
		return answered(name, web(says(answer)), w.with("status", 200))
	}
	headers := func(s site, w want) site {
		s.rows = append(s.rows, asks("headers")(s.name, w))
		return s
	}
	served := func(name string, serve server, w want) site {
		return headers(certified(name, serve, w), want{"status": 200, "headers.server": "simnet"})
	}
	// openssl s_server answers no HEAD: who waits for it has got through the handshake.
	shown := func(name string, serve server) site {
		return headers(certified(name, serve, want{"tls_version": "tlsv1.2"}), fails(lookup.HeadersTimeout))
	}
	picky := func(likes func(*tls.ClientHelloInfo) bool) server {
		return webTLS(func(c *tls.Config) {
			c.MaxVersion = tls.VersionTLS12
			c.GetConfigForClient = func(h *tls.ClientHelloInfo) (*tls.Config, error) {
				if !likes(h) {
					return nil, io.ErrUnexpectedEOF
				}
				return nil, nil
			}
		}, ok())
	}
	bySHA1 := func(h *tls.ClientHelloInfo) bool { return slices.Contains(h.SignatureSchemes, tls.PKCS1WithSHA1) }
	below12 := func(h *tls.ClientHelloInfo) bool { return h.SupportedVersions[0] < tls.VersionTLS12 }
	warns := func(ca *authority, name string) func(net.Conn) {
		talk := web(ok())(ca, name)
		return func(conn net.Conn) {
			_, _ = conn.Write([]byte{21, 3, 1, 0, 2, 1, 112}) // unrecognized_name
			talk(conn)
		}
	}
	oldRoot := func(ca *authority, name string) tls.Certificate {
		leaf := ca.Leaf(name)
		leaf.Certificate = append(leaf.Certificate, ca.Leaf(name, expired()).Certificate[0])
		return leaf
	}
	table := []struct {
		report
		site
	}{
		{report{"curl/curl#11605", ours + "browsers, and curl from 8.3 on, take a first line that begins with a space"},
			sends("spacefirst", head+" Server: a"+end, want{"headers.server": "a"})},
		{report{"projectdiscovery/nuclei#7363", ours + "a second status line is not a field, the others are"},
			sends("statustwice", "HTTP/1.0 200 OK\r\nHTTP/1.0 200 OK\r\nServer: a"+end, want{"headers.server": "a"})},
		{report{"louislam/uptime-kuma#5972", agree + "a line may end with LF alone (RFC 9112 §2.2)"},
			sends("barefeeds", "HTTP/1.1 200 OK\nServer: a\n\n", want{"headers.server": "a"})},
		{report{"louislam/uptime-kuma#4899", agree + "blanks behind a value are not a part of it"},
			sends("trailing", head+"Server: a \t \r\nX-Powered-By: b"+end, want{"headers.server": "a", "headers.x-powered-by": "b"})},
		{report{"louislam/uptime-kuma#6345", agree + "one name that is not a token does not lose the others"},
			sends("notoken", head+"X@Y(Z): c\r\nServer: a"+end, want{"headers.server": "a"})},
		{report{"curl/curl#8844", agree + "each fold is a space (RFC 9112 §5.2); curl -I prints the lines"},
			sends("folded", head+"Server: a\r\n  b\r\n\tc"+end, want{"headers.server": "a b c"})},
		{report{"algesten/ureq#316", agree + "296 of the top million leave out the space and the reason"},
			sends("noreason", "HTTP/1.1 200\r\nServer: a"+end, want{"headers.server": "a"})},
		{report{"httpwg/http-core#845", agree + "the answer came over HTTP/1.1, whatever it says"},
			sends("h2line", "HTTP/2 200\r\nServer: a"+end, want{"headers.server": "a"})},
		{report{"rbsec/sslscan#229", agree + "a warning before the ServerHello is not a refusal"},
			served("warns", warns, want{"hostname_match": true})},
		{report{"louislam/uptime-kuma#3323", agree + "the leaf is asked about, and not an expired root behind it"},
			served("oldroot", shows(oldRoot), want{"expired": false})},
		{report{"ssllabs/ssllabs-scan#781", agree + "a chain signed by SHA-1 wants a hello that takes it"},
			served("sha1chain", picky(bySHA1), want{"tls_version": "tlsv1.2"})},
		{report{"nabla-c0d3/sslyze#729", agree + "a key exchange may be signed by SHA-1 alone"},
			shown("sha1only", byOpenSSL("rsa:2048", "-tls1_2", "-sigalgs", "RSA+SHA1", "-cipher", "ECDHE:@SECLEVEL=0"))},
		{report{"zmap/zcrypto#449", agree + "a key of 512 bits is still a key that is shown"},
			shown("rsa512", byOpenSSL("rsa:512", "-tls1_2", "-cipher", "ALL:@SECLEVEL=0"))},
		{report{"testssl/testssl.sh#784", ours + "a suite that nobody offered was chosen, and the leaf shown"},
			headers(certified("yassl", greets(tls.VersionTLS12, rc4MD5), want{"tls_version": "tlsv1.2", "cipher": "tls_rsa_with_rc4_128_md5"}), fails(lookup.HandshakeFailed))},
		{report{"testssl/testssl.sh#253", agree + "nobody offers as little as TLS 1.1 unasked"},
			headers(certified("below12", picky(below12), fails(lookup.HandshakeFailed, "The host refused the TLS handshake with alert 80")), fails(lookup.HandshakeFailed))},
	}
	sites := make([]site, len(table))
	for i, r := range table {
		for j := range r.rows {
			r.rows[j] = r.named(r.rows[j])
		}
		sites[i] = r.site
	}
	return sites
}
