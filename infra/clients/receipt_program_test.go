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
	verdictHolds       = "The receipt holds: did:web:"
	verdictDoesNotHold = "The receipt DOES NOT HOLD: "
	verdictNotProven   = "The receipt is NOT PROVEN: "
)

// receiptCase is a case of TestReceiptProgram: a request whose receipt the program checks.
type receiptCase struct {
	path string // the path and query; "" means the example call
	// requestHost is the host in the requested URL; the BASE_URL of the service then has the
	// host localhost. If requestHost is empty, both URLs have the host 127.0.0.1.
	requestHost     string
	change          step                       // what an attacker does with the answer; nil means nothing
	changeStatement func(s *receipt.Statement) // changes what the receipt states, and the receipt is signed again; nil means no change
	signingKey      ed25519.PrivateKey         // the key that signs the changed receipt; nil means the service's key
	want            string                     // a part of the program's output
}

const example = "/v1/tools/dns?domain=example.com&type=MX"

// TestReceiptProgram runs the program with three kinds of receipts, and checks the verdict on
// each. Honest receipts hold, even if they spell the question in another way than the request.
// Receipts that are provably false do not hold. The others prove nothing.
func TestReceiptProgram(t *testing.T) {
	t.Parallel()
	_, stranger, _ := ed25519.GenerateKey(rand.Reader) // never fails
	for name, c := range map[string]receiptCase{
		"a default":             {path: "/v1/tools/dns?domain=example.com", want: verdictHolds},
		"the name of the host":  {requestHost: "LocalHost.", want: verdictHolds},
		"tracking":              {path: example + "&utm_source=x&gclid=1", want: verdictHolds},
		"order and case":        {path: "/v1/tools/dns?type=mx&domain=EXAMPLE.com.", want: verdictHolds},
		"percent-encoding":      {path: "/v1/tools/dns?d%6fmain=ex%61mple.com&type=%4DX", want: verdictHolds},
		"another alphabet":      {path: "/v1/tools/dns?domain=B%C3%9CCHER.example.com", want: verdictHolds},
		"the ping":              {path: "/v1/tools/ping", want: verdictHolds},
		"the ping with a probe": {path: "/v1/tools/ping?probe=1", want: verdictHolds},

		"another domain":  {change: changeQuestion("domain=example.com", "domain=www.example.com"), want: verdictDoesNotHold + "it is for domain=www.example.com, and example.com was asked"},
		"another type":    {change: changeQuestion("type=MX", "type=NS"), want: verdictDoesNotHold + "it is for type=NS, and MX was asked"},
		"another tool":    {changeStatement: stateRequest("GET /v1/tools/whois?domain=example.com"), want: verdictDoesNotHold + "it is for GET /v1/tools/whois"},
		"another method":  {changeStatement: stateRequest("POST /v1/tools/dns?domain=example.com&type=MX"), want: verdictDoesNotHold + "it is for POST /v1/tools/dns"},
		"another answer":  {change: changeAnswer(nil, replaceMailServer), want: verdictDoesNotHold + "it is for another answer"},
		"another payer":   {changeStatement: func(s *receipt.Statement) { s.Payer = testbed.Account(3) }, want: verdictDoesNotHold + "it is for the payer 0x"},
		"another network": {changeStatement: func(s *receipt.Statement) { s.Network = x402.BaseSepolia }, want: verdictDoesNotHold + "it is for the network eip155:84532"},
		"another transaction": {
			changeStatement: func(s *receipt.Statement) { s.Transaction = "0x" + strings.Repeat("1", 64) },
			want:            verdictDoesNotHold + "it is for the transaction 0x111",
		},
		"another signature": {change: changeAnswer(replaceReceipt(forgeSignature), nil), want: verdictDoesNotHold + "did:web:127.0.0.1"},

		"no receipt":                  {change: changeAnswer(func(r *x402.SettleResponse) { r.Extensions = x402.ResponseExtensions{} }, nil), want: verdictNotProven + "none came"},
		"a key that is not published": {changeStatement: func(*receipt.Statement) {}, signingKey: stranger, want: verdictNotProven + "did:web:127.0.0.1"},
		"a key of another host": {
			changeStatement: func(s *receipt.Statement) { s.ResourceURL = "https://other.example/v1/tools/dns" },
			want:            verdictNotProven + "it is signed by did:web:other.example#",
		},
		"no question":                   {changeStatement: stateRequest(""), want: verdictNotProven + "it does not say what was asked"},
		"a part of the question":        {changeStatement: stateRequest("GET /v1/tools/dns?domain=example.com"), want: verdictNotProven + "it does not say type"},
		"more than the question":        {changeStatement: stateRequest("GET /v1/tools/dns?domain=example.com&server=x&type=MX"), want: verdictNotProven + "it is for server=x, which was not asked"},
		"a default that is another one": {path: "/v1/tools/dns?domain=example.com", changeStatement: stateRequest("GET /v1/tools/dns?domain=example.com&type=NS"), want: verdictNotProven + "it is for type=NS, which was not asked"},
		"no transaction":                {changeStatement: func(s *receipt.Statement) { s.Transaction = "" }, want: verdictHolds},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.check(t)
		})
	}
}

func (c receiptCase) check(t *testing.T) {
	zone := exampleZone(t) + "xn--bcher-kva.example.com. 30 A 192.0.2.78\nwww.example.com. 30 MX 10 mx1.example.com.\n"
	w, addr := newWorld(t, resolverOf(t, zone, nil)), testbed.FreeAddr(t)
	g := newGateway(t, "http://"+addr)
	// The service has the BASE_URL named, and the program requests a URL that begins with asked.
	// Both lead to the gateway, which plays the attacker.
	named, asked := g.url, g.url
	if c.requestHost != "" {
		named = strings.Replace(g.url, "127.0.0.1", "localhost", 1)
		asked = strings.Replace(g.url, "127.0.0.1", c.requestHost, 1)
	}
	w.env["BASE_URL"] = named
	s := w.startAt(t, addr)
	switch {
	case c.change != nil:
		g.setPlan(c.change)
	case c.changeStatement != nil:
		key := c.signingKey
		if key == nil {
			key = w.key()
		}
		g.setPlan(changeAnswer(replaceReceipt(func(jws string) string { return c.changedReceipt(t, jws, key) }), nil))
	}
	p, path := receiptProgram(), c.path
	if path == "" {
		path = example
	}
	o := p.outcomeOf(t, p.changedCommand(t, p.tools(t), s, named+example, asked+path))
	if !strings.Contains(o.notes, c.want) || (o.err == nil) != (c.want == verdictHolds) {
		t.Errorf("it does not say %q: %v\n%s\n%s", c.want, o.err, o.out, o.notes)
	}
}

// stateRequest returns a function that makes a receipt state another question.
func stateRequest(request string) func(*receipt.Statement) {
	return func(s *receipt.Statement) { s.Request = request }
}

// replaceMailServer replaces the mail server mx1 in an answer by mx2.
func replaceMailServer(body []byte) []byte {
	return bytes.Replace(body, []byte("mx1"), []byte("mx2"), 1)
}

// changedReceipt returns a changed copy of a receipt, which is a JWS. c.changeStatement
// changes the statement of the copy, and the given key signs the result.
func (c receiptCase) changedReceipt(t *testing.T, jws string, key ed25519.PrivateKey) string {
	payload := testbed.Must(base64.RawURLEncoding.DecodeString(strings.Split(jws, ".")[1]))
	said := decodeJSON[receipt.Statement](t, payload)
	c.changeStatement(&said)
	return testbed.Must(testbed.Must(receipt.NewSigner(key, []ed25519.PublicKey{publicOf(key)})).Sign(said))
}
