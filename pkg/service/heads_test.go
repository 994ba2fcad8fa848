package service_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

// mostHead is what the head of a 402 may have in bytes: proxies read it into a page of
// memory, 4,096 bytes, unless they are told otherwise.
const mostHead = 4000

// hostOf is a host name of so many characters.
func hostOf(length int) string {
	const end = ".test"
	name := []byte(strings.Repeat("x", length-len(end)) + end)
	for i := 31; i < length-len(end)-1; i += 32 {
		name[i] = '.'
	}
	return string(name)
}

// rawly makes a request over a new connection, and returns the head of the response,
// byte by byte, and the body.
func (s *shop) rawly(method, path, version string, headers ...string) (head, body []byte) {
	s.Helper()
	host := strings.TrimPrefix(s.url, "http://")
	connection := must(new(net.Dialer).DialContext(s.Context(), "tcp", host))
	defer connection.Close()
	lines := append([]string{fmt.Sprintf("%s %s %s", method, path, version), "Host: " + host, "Connection: close"}, headers...)
	must(io.WriteString(connection, strings.Join(lines, "\r\n")+"\r\n\r\n"))
	const end = "\r\n\r\n"
	head, body, ended := bytes.Cut(must(io.ReadAll(connection)), []byte(end))
	if !ended {
		s.Fatalf("%s: no head in %s", path, head)
	}
	return append(head, end...), body
}

// Every response that asks for a payment passes a proxy as it is installed: to a program and
// to a browser, with a limit and signed offers, for any name that a host can have and any
// query. The header has the signature while there is room, and the body has it always.
func TestHeads(t *testing.T) {
	t.Parallel()
	for _, length := range []int{14, 40, 41, 48, 64, 100, 180, 253} {
		host := hostOf(length)
		s := newShop(t, perMinute(1_000_000), func(p *parts) {
			p.Receipts = newSigner()
			p.Origin = func(*http.Request) string { return "https://" + host }
			id := strings.Repeat("x", len("00000000-0000-0000-0000-000000000000"))
			p.RequestID = func(*http.Request) string { return id }
		})
		for _, op := range catalog.All() {
			long := op.ExampleURL("") + "&more=" + strings.Repeat("x", 6000)
			for _, c := range []asked{
				{"GET", op.ExampleURL(""), "HTTP/1.1", "Accept: */*", length <= 40},
				{"GET", long, "HTTP/1.0", "Accept: application/json", length <= 40},
				{"HEAD", op.ExampleURL(""), "HTTP/1.1", "Accept: */*", length <= 40},
				{"GET", op.ExampleURL(""), "HTTP/1.1", acceptPage, false},
				{"HEAD", long, "HTTP/1.0", acceptPage, false},
			} {
				c.check(s, length)
			}
		}
	}
}

// acceptPage is what a browser accepts.
const acceptPage = "Accept: text/html,*/*;q=0.8"

// asked is a request without a payment, and whether the offer in the head of its response is
// signed.
type asked struct {
	method, path, version, header string
	signed                        bool
}

// check asks a service whose host has so many characters.
func (c asked) check(s *shop, length int) {
	s.Helper()
	head, body := s.rawly(c.method, c.path, c.version, c.header)
	what := fmt.Sprintf("%s %.50s of a host of %d characters, %s", c.method, c.path, length, c.header)
	_, offer, _ := strings.Cut(string(head), "\r\nPayment-Required: ")
	offer, _, _ = strings.Cut(offer, "\r\n")
	raw := must(base64.StdEncoding.DecodeString(offer))
	signed := bytes.Contains(raw, []byte(`"offer-receipt":`))
	if !bytes.HasPrefix(head, []byte(c.version+" 402 ")) || len(raw) == 0 || len(head) > mostHead {
		s.Errorf("%s: a head of %d bytes: %s", what, len(head), head)
	}
	if length < 41 || length > 100 || !signed { // between them it depends on the operation
		same(s.T, what+": the header is signed", signed, c.signed)
	}
	if c.header != acceptPage && c.method == "GET" {
		same(s.T, what+": the body is signed", bytes.Contains(body, []byte(`"offer-receipt":`)), true)
	}
}

// A page of another origin may read everything, and for what caches keep that is said to all.
func TestOrigins(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	for _, c := range []struct {
		path, origin string
		open         bool
	}{
		{dnsPath, "", false}, {dnsPath, "https://other.example", true}, {dnsPath, "null", true},
		{"/v1/catalog", "", true}, {"/v1/catalog", "https://other.example", true},
	} {
		var headers []string
		if c.origin != "" {
			headers = []string{"Origin", c.origin}
		}
		h := s.send(http.MethodGet, c.path, "", headers...).Header
		same(t, c.path+" to "+c.origin, h.Get("Access-Control-Allow-Origin") == "*", c.open)
		same(t, c.path+" to "+c.origin, strings.Contains(h.Get("Access-Control-Expose-Headers"), x402.HeaderRequired), c.open)
	}
}
