package discovery

import (
	_ "embed" // the recorded handshake
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// publishedKey is the private key that signed the recorded example: the
// smallest there is. Everybody has it, so nobody keeps money there.
const publishedKey = "0x0000000000000000000000000000000000000000000000000000000000000001"

// shownToken is the retry token of the example. The service makes a new one for
// every challenge.
const shownToken = "AAECAwQFBgcICQoLDA0ODw"

// recordedJSON is one paid call for the first operation of a service at
// https://api.example.com: the signature that the client sent and the receipt
// that the Gate returned. A signature is made with a key, and the function
// that serves documents has neither key nor signing code, so the example is
// recorded by a test (go test ./pkg/discovery -update) and the same test holds
// it to the code, byte by byte.
//
//go:embed assets/handshake.json
var recordedJSON []byte

// recording is the two recorded headers, as they were sent.
type recording struct {
	Signature string `json:"PAYMENT-SIGNATURE"`
	Response  string `json:"PAYMENT-RESPONSE"`
}

// wireHeader is a payment header as it travels and as it reads.
type wireHeader struct{ Name, Encoded, Decoded string }

// wireExample is a whole handshake: the offer is this deployment's own, the
// rest is recorded.
type wireExample struct {
	Required  wireHeader
	Body      string // of the 402, as sent
	Signature wireHeader
	Response  wireHeader
	// What the recorded payment was made with.
	Origin, Payer, Payee, Key string
	Signed                    string // when, in UTC
}

// wireExampleOf composes the example for an operation of a site.
func wireExampleOf(op catalog.Operation, s Site) (wireExample, error) {
	e := wireExample{Key: publishedKey}
	required := Offer(op, s).WithToken(shownToken)
	offer, err := encode(required)
	if err != nil {
		return e, err
	}
	body, err := encode(ChallengeOf(s.DuplicateWindow, required, fault.New(fault.PaymentRequired, nil)))
	if err != nil {
		return e, err
	}
	e.Body = string(body)
	var r recording
	if err := json.Unmarshal(recordedJSON, &r); err != nil {
		return e, fmt.Errorf("recorded handshake: %w", err)
	}
	var p x402.Payload
	for _, h := range []struct {
		to            *wireHeader
		name, encoded string
		into          any
	}{
		{&e.Required, x402.HeaderRequired, base64.StdEncoding.EncodeToString(offer), new(x402.PaymentRequired)},
		{&e.Signature, x402.HeaderSignature, r.Signature, &p}, {&e.Response, x402.HeaderResponse, r.Response, new(x402.SettleResponse)},
	} {
		raw, err := base64.StdEncoding.DecodeString(h.encoded)
		if err == nil {
			err = json.Unmarshal(raw, h.into)
		}
		if err != nil {
			return e, fmt.Errorf("recorded handshake: %w", err)
		}
		*h.to = wireHeader{h.name, h.encoded, laid(raw)}
	}
	a := p.Payload.Authorization
	before, err := strconv.ParseInt(a.ValidBefore, 10, 64)
	e.Origin, e.Payer, e.Payee = p.Resource.URL, a.From, a.To
	e.Signed = time.Unix(before-x402.MaxTimeoutSeconds, 0).UTC().Format(time.DateTime)
	return e, err
}
