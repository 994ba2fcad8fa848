package discovery

import (
	"encoding/base64"
	"encoding/json"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// shownToken is the retry token of the example. The service makes a new one for
// every challenge.
const shownToken = "AAECAwQFBgcICQoLDA0ODw"

// wireHeader is a payment header as it travels and as it reads.
type wireHeader struct{ Name, Encoded, Decoded string }

// wireExample is a whole handshake. The offer is this deployment's own; the rest is one
// paid call for the first operation of a service at https://api.example.com: the signature
// that the client sent and the receipt that the Gate returned. A signature is made with a
// key, and the function that serves documents has neither key nor signing code, so
// TestRecordedHandshakeIsReal records it, and holds it to the code, byte by byte.
type wireExample struct {
	Required  wireHeader `json:"-"`
	Body      string     `json:"-"` // of the 402, as sent
	Signature wireHeader
	Response  wireHeader
	// What the recorded payment was made with, and when, in UTC.
	Origin, Payer, Payee, Key, Signed string
}

// wireExampleOf composes the example for an operation of a site.
func wireExampleOf(op catalog.Operation, s Site) (e wireExample) {
	if err := json.Unmarshal(must(assets.ReadFile("assets/handshake.json")), &e); err != nil {
		panic(err)
	}
	required := Offer(op, s).WithToken(shownToken)
	e.Required = headerOf(x402.HeaderRequired, encode(required))
	e.Body = string(encode(ChallengeOf(s.DuplicateWindow, required, fault.New(fault.PaymentRequired, nil))))
	return e
}

func headerOf(name string, raw []byte) wireHeader {
	return wireHeader{name, base64.StdEncoding.EncodeToString(raw), laid(raw)}
}
