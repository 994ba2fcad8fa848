package simnet

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/infra/testbed"
)

// authority issues the certificates of this internet.
type authority = testbed.Authority

// edit changes a certificate before it is signed.
type edit = func(*x509.Certificate)

// server makes what talks to everybody who connects to port 443 of a host.
type server func(ca *authority, name string) func(net.Conn)

// page is what an origin answers to a request, byte for byte; "" closes the
// connection. hang is not sent.
type page func(method, path string) string

// hang ends an answer after which nothing more comes.
const hang = "\x00hang"

// must is for what only a mistake in the tables makes an error.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// says answers every request alike.
func says(answer string) page { return func(string, string) string { return answer } }

// status is an answer with header lines.
func status(code int, lines ...string) string {
	return fmt.Sprintf("HTTP/1.1 %d X\r\n%s\r\n", code, strings.Join(append(lines, ""), "\r\n"))
}

func ok() page { return says(status(200, "Server: simnet", "Content-Type: text/html")) }

// to redirects to a location.
func to(location string) page { return says(status(302, "Location: "+location)) }

// paths answers by path; any other is 404.
func paths(pages map[string]string) page {
	return func(_, path string) string {
		if a, ok := pages[path]; ok {
			return a
		}
		return status(404)
	}
}

// root answers / and every other path.
func root(first, other string) page {
	return func(_, path string) string {
		if path == "/" {
			return first
		}
		return other
	}
}

// methods answers HEAD and every other method.
func methods(head string, other page) page {
	return func(method, path string) string {
		if method == "HEAD" {
			return head
		}
		return other(method, path)
	}
}

// chain redirects n times and then answers.
func chain(n int) page {
	return func(_, path string) string {
		if len(path) <= n {
			return status(302, "Location: "+path+"x")
		}
		return status(200)
	}
}

// web is an HTTPS origin.
func web(p page, edits ...edit) server { return webTLS(asIs, p, edits...) }

// webTLS is an HTTPS origin with a TLS configuration of its own.
func webTLS(change func(*tls.Config), p page, edits ...edit) server {
	return secured(change, func(secure *tls.Conn, _ net.Conn) { answer(secure, p) }, edits...)
}

// secured has talk have each connection over which a handshake has succeeded.
func secured(change func(*tls.Config), talk func(secure *tls.Conn, under net.Conn), edits ...edit) server {
	return func(ca *authority, name string) func(net.Conn) {
		config := &tls.Config{Certificates: []tls.Certificate{ca.Leaf(name, edits...)}, MinVersion: tls.VersionTLS10}
		change(config)
		return func(conn net.Conn) {
			if secure := tls.Server(conn, config); secure.Handshake() == nil {
				talk(secure, conn)
			}
		}
	}
}

// asIs is a configuration of TLS without a change.
func asIs(*tls.Config) {}

// answer serves requests on a connection until the client is done with it.
func answer(conn net.Conn, p page) {
	r := bufio.NewReader(conn)
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		for head := line; strings.TrimSpace(head) != ""; {
			if head, err = r.ReadString('\n'); err != nil {
				return
			}
		}
		fields := strings.Fields(line)
		if len(fields) != 3 || !reply(conn, p(fields[0], fields[1])) {
			return
		}
	}
}

// reply sends a page's answer and reports whether the connection goes on.
func reply(conn net.Conn, a string) bool {
	a, hangs := strings.CutSuffix(a, hang)
	if _, err := io.WriteString(conn, a); err != nil || a == "" && !hangs {
		return false
	}
	if hangs {
		swallow(conn)
	}
	return !hangs
}

// dripOut sends one byte every tenth of a second until the client leaves.
func dripOut(conn net.Conn, text string) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for i := range len(text) {
		if _, err := io.WriteString(conn, text[i:i+1]); err != nil {
			return
		}
		<-tick.C
	}
}

// repeat sends a text until the client leaves.
func repeat(conn net.Conn, text string) {
	for {
		if _, err := io.WriteString(conn, text); err != nil {
			return
		}
	}
}

func only(version uint16) func(*tls.Config) {
	return func(c *tls.Config) { c.MinVersion, c.MaxVersion = version, version }
}

// wantsCertificate wants one of the client, over some version.
func wantsCertificate(version uint16) func(*tls.Config) {
	return func(c *tls.Config) {
		only(version)(c)
		c.ClientAuth, c.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
	}
}

// refusesHello ends every handshake with an alert.
func refusesHello(c *tls.Config) {
	c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return nil, io.ErrUnexpectedEOF }
}

// raw is a host that speaks no TLS of the library's.
func raw(talk func(conn net.Conn)) server {
	return func(*authority, string) func(net.Conn) { return talk }
}

// swallow reads until the client hangs up.
func swallow(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }

// hear reads what the client says first.
func hear(conn net.Conn) { _, _ = conn.Read(make([]byte, 1<<14)) }

// resets has a connection end with a reset when it is closed.
func resets(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
}

// sends answers the first bytes with bytes, and waits for the client to leave.
func sends(out ...[]byte) server {
	return raw(func(conn net.Conn) {
		hear(conn)
		_, _ = conn.Write(bytes.Join(out, nil))
		swallow(conn)
	})
}

// showsThen greets with a version and a cipher suite, shows its certificate
// (RFC 5246 §7.4), and then does something else than going on.
func showsThen(version, suite uint16, then func(net.Conn)) server {
	return func(ca *authority, name string) func(net.Conn) {
		return func(conn net.Conn) {
			hear(conn)
			_, _ = conn.Write(append(serverHello(version, suite), leafRecord(ca.Leaf(name).Certificate[0])...))
			then(conn)
		}
	}
}

func serverHello(version, suite uint16) []byte {
	hello := binary.BigEndian.AppendUint16(nil, version)
	hello = append(hello, make([]byte, 32+1)...) // random, no session
	hello = binary.BigEndian.AppendUint16(hello, suite)
	return handshakeRecord(2, append(hello, 0)) // no compression
}

// leafRecord is the Certificate message of TLS 1.2 with one certificate.
func leafRecord(leaf []byte) []byte {
	chain := append(length24(len(leaf)), leaf...)
	return handshakeRecord(11, append(length24(len(chain)), chain...))
}

func handshakeRecord(kind byte, body []byte) []byte {
	message := append(append([]byte{kind}, length24(len(body))...), body...)
	head := binary.BigEndian.AppendUint16([]byte{22, 3, 3}, uint16(len(message)))
	return append(head, message...)
}

func length24(n int) []byte { return []byte{byte(n >> 16), byte(n >> 8), byte(n)} }
