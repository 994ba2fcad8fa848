package service_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

// mostHead is the largest allowed size of the head of a 402, in bytes. By default, proxies
// read a head into one page of memory, 4,096 bytes.
const mostHead = 4000

// hostOf returns a host name of the given length.
func hostOf(length int) string {
	const end = ".test"
	name := []byte(strings.Repeat("x", length-len(end)) + end)
	for i := 31; i < length-len(end)-1; i += 32 {
		name[i] = '.'
	}
	return string(name)
}

// rawRequest makes a request over a new connection. It returns the exact bytes of the response's
// head, and the body.
func (s *shop) rawRequest(method, path, version string, headers ...string) (head, body []byte) {
	s.Helper()
	host := strings.TrimPrefix(s.url, "http://")
	connection := testbed.Must(new(net.Dialer).DialContext(s.Context(), "tcp", host))
	defer connection.Close()
	lines := append([]string{fmt.Sprintf("%s %s %s", method, path, version), "Host: " + host, "Connection: close"}, headers...)
	testbed.Must(io.WriteString(connection, strings.Join(lines, "\r\n")+"\r\n\r\n"))
	const end = "\r\n\r\n"
	head, body, ended := bytes.Cut(testbed.Must(io.ReadAll(connection)), []byte(end))
	if !ended {
		s.Fatalf("%s: no head in %s", path, head)
	}
	return append(head, end...), body
}

// TestHeads checks that the head of every 402 has at most mostHead bytes, so that it gets
// through a proxy with default settings. The host names go from the shortest to the longest.
// The requests are those of programs and browsers, some with a long query or an Origin header.
// The offer in the header must be signed if there is room for a signature. The offer in a JSON
// body must always be signed.
func TestHeads(t *testing.T) {
	t.Parallel()
	for _, length := range []int{14, 24, 40, 51, 60, 64, 100, 180, 253} {
		host := hostOf(length)
		s := newShop(t, perMinute(1_000_000), func(p *parts) {
			p.Receipts = newSigner()
			p.Facilitator = refusingFacilitator{p.Facilitator}
			p.Origin = func(*http.Request) string { return "https://" + host }
			id := strings.Repeat("x", len("00000000-0000-0000-0000-000000000000"))
			p.RequestID = func(*http.Request) string { return id }
		})
		for _, op := range catalog.All() {
			long := op.ExampleURL("") + "&more=" + strings.Repeat("x", 6000)
			for _, c := range []challengedRequest{
				{"GET", op.ExampleURL(""), "HTTP/1.1", []string{"Accept: */*"}},
				{"GET", long, "HTTP/1.0", []string{"Accept: application/json"}},
				{"HEAD", op.ExampleURL(""), "HTTP/1.1", []string{"Accept: */*"}},
				{"GET", op.ExampleURL(""), "HTTP/1.1", []string{acceptPage}},
				{"HEAD", long, "HTTP/1.0", []string{acceptPage}},
				{"GET", op.ExampleURL(""), "HTTP/1.1", []string{"Accept: */*", "Origin: https://page.example"}},
				{"GET", op.ExampleURL(""), "HTTP/1.1", []string{acceptPage, "Origin: https://page.example"}},
				{"GET", op.ExampleURL(""), "HTTP/1.1", []string{"Accept: */*", x402.HeaderSignature + ": " + s.sign(op.ExampleURL(""))}},
			} {
				signed := c.check(s, length)
				if length <= 60 && len(c.headers) == 1 && c.headers[0] != acceptPage && !signed {
					t.Errorf("%s of a host of %d characters: the offer in the header is not signed", op.Slug, length)
				}
			}
		}
	}
}

// refusingFacilitator is a facilitator that refuses every payment, with a reason of the
// largest possible length.
type refusingFacilitator struct{ x402.Facilitator }

func (refusingFacilitator) Settle(context.Context, x402.Payload, x402.Requirements) x402.Settlement {
	return x402.Settlement{Class: x402.Refused, Reason: strings.Repeat("r", 128)}
}

// acceptPage is the Accept header of a browser.
const acceptPage = "Accept: text/html,*/*;q=0.8"

// challengedRequest is a request that must be answered with a 402.
type challengedRequest struct {
	method, path, version string
	headers               []string
}

// check sends the request to a service whose host name has the given length. It checks the
// head and the body of the 402, and reports whether the offer in the head is signed. The offer
// must be signed unless the head has no room for the signature.
func (c challengedRequest) check(s *shop, length int) bool {
	s.Helper()
	head, body := s.rawRequest(c.method, c.path, c.version, c.headers...)
	what := fmt.Sprintf("%s %.50s of a host of %d characters, %.60q", c.method, c.path, length, c.headers)
	_, header, _ := strings.Cut(string(head), "\r\nPayment-Required: ")
	header, _, _ = strings.Cut(header, "\r\n")
	raw := testbed.Must(base64.StdEncoding.DecodeString(header))
	if !bytes.HasPrefix(head, []byte(c.version+" 402 ")) || len(raw) == 0 || len(head) > mostHead {
		s.Errorf("%s: a head of %d bytes: %s", what, len(head), head)
	}
	signed := bytes.Contains(raw, []byte(signature))
	if c.method == http.MethodHead {
		return signed
	}
	if strings.HasPrefix(c.headers[len(c.headers)-1], x402.HeaderSignature) && !bytes.Contains(body, []byte("settlement refused: rrr")) {
		s.Errorf("%s: the payment was not refused: %s", what, body)
	}
	if slices.Contains(c.headers, acceptPage) { // the page shows the terms without the signature
		return signed
	}
	_, extension, found := strings.Cut(string(body), signature)
	extension, _, ended := strings.Cut(extension, `}}`)
	if !found || !ended {
		s.Fatalf("%s: the body has no signature: %.2000s", what, body)
	}
	missing := base64.StdEncoding.EncodedLen(len(signature + extension))
	if !signed && len(head)+missing < mostHead-slack {
		s.Errorf("%s: a head of %d bytes has room for a signature of %d", what, len(head), missing)
	}
	return signed
}

// signature is the beginning of the extension that holds the signature of the terms.
const signature = `"offer-receipt":`

// slack is the number of bytes by which the method check may misjudge the room that a head has
// for a signature. The sizes are rounded, and net/http adds one header only sometimes.
const slack = 40

// TestOrigins checks that a page of another origin may read every response. A priced response
// has the headers with this permission only if the request comes from such a page. A document
// always has them, because caches keep documents and give them to any client.
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
		checkEqual(t, c.path+" to "+c.origin, h.Get("Access-Control-Allow-Origin") == "*", c.open)
		checkEqual(t, c.path+" to "+c.origin, strings.Contains(h.Get("Access-Control-Expose-Headers"), x402.HeaderRequired), c.open)
	}
}

// termsOf returns the resource and the payment options of an offer.
func termsOf(t *testing.T, offer []byte) string {
	t.Helper()
	var o x402.PaymentRequired
	if err := json.Unmarshal(offer, &o); err != nil {
		t.Fatal(err)
	}
	return o.Resource.URL + " " + string(testbed.Must(json.Marshal(o.Accepts)))
}
