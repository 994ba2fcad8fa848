package simnet

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

// server makes what talks to everybody who connects to port 443 of a host.
type server func(ca *authority, name string) func(net.Conn)

// page is what an origin answers to a request, byte for byte; "" closes the
// connection. The markers are not sent.
type page func(method, path string) string

// How an answer is sent or ends.
const (
	hang    = "\x00hang"    // at the end: nothing more comes
	quit    = "\x00quit"    // at the end: the connection closes
	forever = "\x00forever" // at the end: chunks without end
	drip    = "\x00drip"    // at the start: one byte every tenth of a second
)

// says answers every request alike.
func says(answer string) page { return func(string, string) string { return answer } }

// status is an answer with header lines.
func status(code int, lines ...string) string {
	return fmt.Sprintf("HTTP/1.1 %d X\r\n%s\r\n", code, strings.Join(append(lines, ""), "\r\n"))
}

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

// web is an HTTPS origin.
func web(p page, edits ...edit) server { return webTLS(func(*tls.Config) {}, p, edits...) }

// webTLS is an HTTPS origin with a TLS configuration of its own.
func webTLS(change func(*tls.Config), p page, edits ...edit) server {
	return func(ca *authority, name string) func(net.Conn) {
		config := &tls.Config{
			Certificates: []tls.Certificate{ca.Leaf(name, edits...)},
			MinVersion:   tls.VersionTLS10,
		}
		change(config)
		return func(conn net.Conn) {
			secure := tls.Server(conn, config)
			if secure.Handshake() != nil {
				return
			}
			answer(secure, p)
		}
	}
}

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
		if len(fields) != 3 {
			return
		}
		if !reply(conn, p(fields[0], fields[1])) {
			return
		}
	}
}

// reply sends a page's answer and reports whether the connection goes on.
func reply(conn net.Conn, a string) bool {
	a, ends := strings.CutSuffix(a, quit)
	a, hangs := strings.CutSuffix(a, hang)
	a, endless := strings.CutSuffix(a, forever)
	a, slow := strings.CutPrefix(a, drip)
	if slow {
		dripOut(conn, a)
		return false
	}
	if _, err := io.WriteString(conn, a); err != nil || ends || a == "" && !hangs {
		return false
	}
	chunk := "400\r\n" + strings.Repeat(" ", 0x400) + "\r\n"
	for endless {
		if _, err := io.WriteString(conn, chunk); err != nil {
			return false
		}
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

// versions and client certificates.

func only(version uint16) func(*tls.Config) {
	return func(c *tls.Config) { c.MinVersion, c.MaxVersion = version, version }
}

func wantsCertificate(c *tls.Config) {
	c.ClientAuth, c.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
}

// raw is a host that speaks no TLS of the library's.
func raw(talk func(ca *authority, name string, conn net.Conn)) server {
	return func(ca *authority, name string) func(net.Conn) {
		return func(conn net.Conn) { talk(ca, name, conn) }
	}
}

// swallow reads until the client hangs up.
func swallow(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }

// mute accepts and says nothing.
func mute() server { return raw(func(_ *authority, _ string, conn net.Conn) { swallow(conn) }) }

// plain speaks HTTP without TLS.
func plain() server {
	return raw(func(_ *authority, _ string, conn net.Conn) {
		_, _ = io.WriteString(conn, "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
		swallow(conn)
	})
}

// resets answers the first bytes with a reset.
func resets() server {
	return raw(func(_ *authority, _ string, conn net.Conn) {
		_, _ = conn.Read(make([]byte, 1))
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
	})
}

// alerts refuses every handshake.
func alerts() server {
	return webTLS(func(c *tls.Config) {
		c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return nil, io.ErrUnexpectedEOF }
	}, says(status(200)))
}

// endless sends header after header and never ends them.
func endless() server {
	return func(ca *authority, name string) func(net.Conn) {
		config := &tls.Config{Certificates: []tls.Certificate{ca.Leaf(name)}}
		return func(conn net.Conn) {
			secure := tls.Server(conn, config)
			if secure.Handshake() != nil {
				return
			}
			_, err := io.WriteString(secure, "HTTP/1.1 200 OK\r\n")
			for err == nil {
				_, err = io.WriteString(secure, "X-Filler: "+strings.Repeat("x", 1000)+"\r\n")
			}
		}
	}
}

// drips sends the head of an answer slowly, asked or not.
func drips() server {
	return func(ca *authority, name string) func(net.Conn) {
		config := &tls.Config{Certificates: []tls.Certificate{ca.Leaf(name)}}
		return func(conn net.Conn) {
			secure := tls.Server(conn, config)
			if secure.Handshake() == nil {
				dripOut(secure, status(200, "Server: "+strings.Repeat("x", 1000)))
			}
		}
	}
}

// chooses greets with a version and a cipher suite that the client has not
// offered, and shows its certificate (RFC 5246 §7.4).
func chooses(version, suite uint16) server {
	return raw(func(ca *authority, name string, conn net.Conn) {
		hello := binary.BigEndian.AppendUint16(nil, version)
		hello = append(hello, make([]byte, 32+1)...) // random, no session
		hello = binary.BigEndian.AppendUint16(hello, suite)
		hello = append(hello, 0) // no compression
		leaf := ca.Leaf(name).Certificate[0]
		chain := append(length24(len(leaf)), leaf...)
		chain = append(length24(len(chain)), chain...)
		_, _ = conn.Read(make([]byte, 1<<14))
		_, _ = conn.Write(append(handshakeRecord(2, hello), handshakeRecord(11, chain)...))
		swallow(conn)
	})
}

func handshakeRecord(kind byte, body []byte) []byte {
	message := append(append([]byte{kind}, length24(len(body))...), body...)
	head := binary.BigEndian.AppendUint16([]byte{22, 3, 3}, uint16(len(message)))
	return append(head, message...)
}

func length24(n int) []byte { return []byte{byte(n >> 16), byte(n >> 8), byte(n)} }

// bareHTTP is an origin without TLS.
func bareHTTP(p page) server {
	return raw(func(_ *authority, _ string, conn net.Conn) {
		answer(conn, p)
	})
}
