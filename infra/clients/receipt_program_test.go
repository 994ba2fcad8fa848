package clients

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/receipt"
)

// receiptProgram returns the program that the documentation page shows in its chapter about
// receipts.
func receiptProgram() program {
	return program{id: "receipt", title: "Checking a receipt", tools: nodeWorkshop, from: npm()}
}

// The verdicts that the program prints about a receipt.
const (
	holds       = "The receipt holds: did:web:"
	doesNotHold = "The receipt DOES NOT HOLD: "
	notProven   = "The receipt is NOT PROVEN: "
)

// judged is a case for the program: a request whose receipt the program checks.
type judged struct {
	path string // the path and query; "" means the example call
	// host is the host in the requested URL. If it is not empty, the service is configured for
	// the host localhost. If it is empty, both hosts are 127.0.0.1.
	host   string
	change step                       // what an attacker does with the answer; nil means nothing
	said   func(s *receipt.Statement) // changes what the receipt states, if it is not nil; the receipt is then signed again
	by     ed25519.PrivateKey         // the key that signs the changed receipt; nil means the service's key
	want   string                     // a part of the program's output
}

const example = "/v1/tools/dns?domain=example.com&type=MX"

// TestReceiptProgram runs the program with three kinds of receipts, and checks the verdict on
// each. Honest receipts hold, even if they spell the question in another way than the request.
// Receipts that are provably false do not hold. The others prove nothing.
func TestReceiptProgram(t *testing.T) {
	t.Parallel()
	_, stranger, _ := ed25519.GenerateKey(rand.Reader) // never fails
	for name, c := range map[string]judged{
		"a default":             {path: "/v1/tools/dns?domain=example.com", want: holds},
		"the name of the host":  {host: "LocalHost.", want: holds},
		"tracking":              {path: example + "&utm_source=x&gclid=1", want: holds},
		"order and case":        {path: "/v1/tools/dns?type=mx&domain=EXAMPLE.com.", want: holds},
		"percent-encoding":      {path: "/v1/tools/dns?d%6fmain=ex%61mple.com&type=%4DX", want: holds},
		"another alphabet":      {path: "/v1/tools/dns?domain=B%C3%9CCHER.example.com", want: holds},
		"the ping":              {path: "/v1/tools/ping", want: holds},
		"the ping with a probe": {path: "/v1/tools/ping?probe=1", want: holds},

		"another domain":  {change: asking("domain=example.com", "domain=www.example.com"), want: doesNotHold + "it is for domain=www.example.com, and example.com was asked"},
		"another type":    {change: asking("type=MX", "type=NS"), want: doesNotHold + "it is for type=NS, and MX was asked"},
		"another tool":    {said: requested("GET /v1/tools/whois?domain=example.com"), want: doesNotHold + "it is for GET /v1/tools/whois"},
		"another method":  {said: requested("POST /v1/tools/dns?domain=example.com&type=MX"), want: doesNotHold + "it is for POST /v1/tools/dns"},
		"another answer":  {change: changing(nil, otherExchange), want: doesNotHold + "it is for another answer"},
		"another payer":   {said: func(s *receipt.Statement) { s.Payer = testbed.Account(3) }, want: doesNotHold + "it is for the payer 0x"},
		"another network": {said: func(s *receipt.Statement) { s.Network = x402.BaseSepolia }, want: doesNotHold + "it is for the network eip155:84532"},
		"another transaction": {
			said: func(s *receipt.Statement) { s.Transaction = "0x" + strings.Repeat("1", 64) },
			want: doesNotHold + "it is for the transaction 0x111",
		},
		"another signature": {change: changing(resigned(forged), nil), want: doesNotHold + "did:web:127.0.0.1"},

		"no receipt":                  {change: changing(func(r *x402.SettleResponse) { r.Extensions = x402.ResponseExtensions{} }, nil), want: notProven + "none came"},
		"a key that is not published": {said: func(*receipt.Statement) {}, by: stranger, want: notProven + "did:web:127.0.0.1"},
		"a key of another host": {
			said: func(s *receipt.Statement) { s.ResourceURL = "https://other.example/v1/tools/dns" },
			want: notProven + "it is signed by did:web:other.example#",
		},
		"no question":                   {said: requested(""), want: notProven + "it does not say what was asked"},
		"a part of the question":        {said: requested("GET /v1/tools/dns?domain=example.com"), want: notProven + "it does not say type"},
		"more than the question":        {said: requested("GET /v1/tools/dns?domain=example.com&server=x&type=MX"), want: notProven + "it is for server=x, which was not asked"},
		"a default that is another one": {path: "/v1/tools/dns?domain=example.com", said: requested("GET /v1/tools/dns?domain=example.com&type=NS"), want: notProven + "it is for type=NS, which was not asked"},
		"no transaction":                {said: func(s *receipt.Statement) { s.Transaction = "" }, want: holds},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.check(t)
		})
	}
}

func (c judged) check(t *testing.T) {
	zone := exampleZone(t) + "xn--bcher-kva.example.com. 30 A 192.0.2.78\nwww.example.com. 30 MX 10 mx1.example.com.\n"
	w, addr := newWorld(t, resolverOf(t, zone, nil)), testbed.FreeAddr(t)
	g := newGateway(t, "http://"+addr)
	named, asked := g.url, g.url // the configured address and the requested one, both of the attacker's gateway
	if c.host != "" {
		named = strings.Replace(g.url, "127.0.0.1", "localhost", 1)
		asked = strings.Replace(g.url, "127.0.0.1", c.host, 1)
	}
	w.env["BASE_URL"] = named
	s := w.startAt(t, addr)
	switch {
	case c.change != nil:
		g.play(c.change)
	case c.said != nil:
		key := c.by
		if key == nil {
			key = w.key()
		}
		g.play(changing(resigned(func(jws string) string { return c.signed(t, jws, key) }), nil))
	}
	p, path := receiptProgram(), c.path
	if path == "" {
		path = example
	}
	o := p.end(t, p.at(t, p.tools(t), s, named+example, asked+path))
	if !strings.Contains(o.notes, c.want) || (o.err == nil) != (c.want == holds) {
		t.Errorf("it does not say %q: %v\n%s\n%s", c.want, o.err, o.out, o.notes)
	}
}

// requested returns a function that makes a receipt state another question.
func requested(request string) func(*receipt.Statement) {
	return func(s *receipt.Statement) { s.Request = request }
}

// otherExchange replaces the mail server mx1 in an answer by mx2.
func otherExchange(body []byte) []byte {
	return bytes.Replace(body, []byte("mx1"), []byte("mx2"), 1)
}

// signed returns a changed copy of a receipt, which is a JWS. c.said changes the statement of
// the copy, and the given key signs the result.
func (c judged) signed(t *testing.T, jws string, key ed25519.PrivateKey) string {
	payload := testbed.Must(base64.RawURLEncoding.DecodeString(strings.Split(jws, ".")[1]))
	said := decoded[receipt.Statement](t, payload)
	c.said(&said)
	return testbed.Must(testbed.Must(receipt.NewSigner(key, []ed25519.PublicKey{publicOf(key)})).Sign(said))
}
