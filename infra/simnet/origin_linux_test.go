package simnet

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/infra/testbed"
)

type authority = testbed.Authority

type edit = func(*x509.Certificate)

// server makes what talks to everybody who connects to port 443 of a host.
type server func(t *testing.T, ca *authority, name string) func(net.Conn)

// page is what an origin answers to a request, byte for byte; "" closes the connection.
type page func(method, path string) string

// hang ends an answer after which nothing more comes.
const hang = "\x00hang"

func says(answer string) page { return func(string, string) string { return answer } }

func status(code int, lines ...string) string {
	return fmt.Sprintf("HTTP/1.1 %d X\r\n%s\r\n", code, strings.Join(append(lines, ""), "\r\n"))
}

func ok() page { return says(status(200, "Server: simnet", "Content-Type: text/html")) }

func to(location string) page { return says(status(302, "Location: "+location)) }

func paths(pages map[string]string) page {
	return func(_, path string) string {
		if a, ok := pages[path]; ok {
			return a
		}
		return status(404)
	}
}

func root(first, other string) page {
	return func(_, path string) string { return map[bool]string{true: first, false: other}[path == "/"] }
}

func chain(n int) page {
	return func(_, path string) string {
		if len(path) <= n {
			return status(302, "Location: "+path+"x")
		}
		return status(200)
	}
}

func web(p page, edits ...edit) server { return webTLS(asIs, p, edits...) }

// webTLS is an HTTPS origin with another TLS configuration.
func webTLS(change func(*tls.Config), p page, edits ...edit) server {
	return secured(change, func(secure *tls.Conn) { answer(secure, p) }, edits...)
}

// talks has talk have each connection over TLS.
func talks(talk func(*tls.Conn)) server { return secured(asIs, talk) }

// secured has talk have each connection over which a handshake has succeeded.
func secured(change func(*tls.Config), talk func(*tls.Conn), edits ...edit) server {
	return func(_ *testing.T, ca *authority, name string) func(net.Conn) {
		config := &tls.Config{Certificates: []tls.Certificate{ca.Leaf(name, edits...)}, MinVersion: tls.VersionTLS10}
		change(config)
		return func(conn net.Conn) {
			if secure := tls.Server(conn, config); secure.Handshake() == nil {
				talk(secure)
			}
		}
	}
}

func asIs(*tls.Config) {}

// answer serves requests on a connection until the client is done with it.
func answer(conn net.Conn, p page) {
	r := bufio.NewReader(conn)
	for {
		line, err := r.ReadString('\n')
		for head := line; err == nil && strings.TrimSpace(head) != ""; {
			head, err = r.ReadString('\n')
		}
		fields := strings.Fields(line)
		if err != nil || len(fields) != 3 {
			return
		}
		text, hangs := strings.CutSuffix(p(fields[0], fields[1]), hang)
		if _, err := io.WriteString(conn, text); err != nil || text == "" && !hangs {
			return
		}
		if hangs {
			swallow(conn)
			return
		}
	}
}

func wantsCertificate(c *tls.Config) {
	c.MinVersion = tls.VersionTLS13
	c.ClientAuth, c.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
}

// refuses ends the handshake at a hello that offers more than a version.
func refuses(highest uint16) func(*tls.Config) {
	return func(c *tls.Config) {
		c.GetConfigForClient = func(h *tls.ClientHelloInfo) (*tls.Config, error) {
			if h.SupportedVersions[0] > highest {
				return nil, io.ErrUnexpectedEOF
			}
			return nil, nil
		}
	}
}

func raw(talk func(conn net.Conn)) server {
	return func(*testing.T, *authority, string) func(net.Conn) { return talk }
}

// byOpenSSL has an openssl s_server talk to each connection in its turn, with a certificate for a
// key of a kind. It sends back what it is sent, reversed, so that no client is waited for.
func byOpenSSL(key string, args ...string) server {
	return func(t *testing.T, _ *authority, name string) func(net.Conn) {
		file := filepath.Join(t.TempDir(), "server.pem") // key and certificate
		request := append([]string{"req", "-x509", "-nodes", "-days", "30", "-subj", "/CN=" + name, "-addext", "subjectAltName=DNS:" + name,
			"-keyout", file, "-out", file, "-newkey"}, strings.Fields(key)...)
		testbed.Must(exec.Command("openssl", request...).Output())
		at := testbed.FreeAddr(t)
		p, err := testbed.Launch(exec.Command("openssl", append([]string{"s_server", "-accept", at, "-rev", "-cert", file}, args...)...), nil)
		if err == nil {
			t.Cleanup(p.Kill)
			err = p.Listens(at)
		}
		if err != nil {
			t.Fatal(err)
		}
		return func(conn net.Conn) {
			server := testbed.Must(net.Dial("tcp", at))
			go func() {
				_, _ = io.Copy(server, conn)
				server.Close()
			}()
			_, _ = io.Copy(conn, server)
		}
	}
}

func swallow(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }

func hear(conn net.Conn) { _, _ = conn.Read(make([]byte, 1<<14)) }

// greets greets with a version and a suite, shows its certificate (RFC 5246 §7.4), and says no more.
func greets(version, suite uint16) server {
	return func(_ *testing.T, ca *authority, name string) func(net.Conn) {
		sized := func(b []byte) []byte {
			return append([]byte{byte(len(b) >> 16), byte(len(b) >> 8), byte(len(b))}, b...)
		}
		record := func(kind byte, body []byte) []byte {
			message := append([]byte{kind}, sized(body)...)
			return append(binary.BigEndian.AppendUint16([]byte{22, 3, 3}, uint16(len(message))), message...)
		}
		hello := append(binary.BigEndian.AppendUint16(nil, version), make([]byte, 32+1)...) // random, no session
		hello = append(binary.BigEndian.AppendUint16(hello, suite), 0)                      // no compression
		shown := append(record(2, hello), record(11, sized(sized(ca.Leaf(name).Certificate[0])))...)
		return func(conn net.Conn) {
			hear(conn)
			_, _ = conn.Write(shown)
			swallow(conn)
		}
	}
}
