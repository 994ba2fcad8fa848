package discovery

import (
	_ "embed" // the recorded handshake
	"encoding/base64"
	"encoding/json"
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
func wireExampleOf(op catalog.Operation, s Site) wireExample {
	required := Offer(op, s).WithToken(shownToken)
	var r recording
	mustRead(recordedJSON, &r)
	signature := decodeHeader(x402.HeaderSignature, r.Signature)
	var p x402.Payload
	mustRead([]byte(signature.Decoded), &p)
	a := p.Payload.Authorization
	before, _ := strconv.ParseInt(a.ValidBefore, 10, 64)
	return wireExample{
		Required:  decodeHeader(x402.HeaderRequired, base64.StdEncoding.EncodeToString(encode(required))),
		Body:      string(encode(ChallengeOf(s.DuplicateWindow, required, fault.New(fault.PaymentRequired, nil)))),
		Signature: signature, Response: decodeHeader(x402.HeaderResponse, r.Response),
		Origin: p.Resource.URL, Payer: a.From, Payee: a.To, Key: publishedKey,
		Signed: time.Unix(before-x402.MaxTimeoutSeconds, 0).UTC().Format(time.DateTime),
	}
}

func decodeHeader(name, encoded string) wireHeader {
	raw, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		panic(err)
	}
	return wireHeader{name, encoded, laid(raw)}
}

// mustRead decodes JSON of ours.
func mustRead(raw []byte, into any) {
	if err := json.Unmarshal(raw, into); err != nil {
		panic(err)
	}
}
