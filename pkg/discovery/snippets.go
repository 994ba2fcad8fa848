package discovery

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"html"
	"strings"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/receipt"
)

// snippet is a program that calls the first operation of the catalog. Its text is a file of
// assets/snippets in which this deployment's values replace the documented ones. infra/clients
// runs the program as it is shown.
type snippet struct {
	ID      string // anchor on the page
	Title   string
	Name    string // the file name under which to save it
	Install string // commands to run first; "" means none
	Run     string // the command that runs it; "" if the snippet is itself a command
	Text    string // an explanation, with `code` in backticks
	Code    string
	// Language names the tab of the page that shows the snippet. It is the ID of the first
	// program in that tab. Only the first program of a tab is unfolded. A snippet without a
	// Language is elsewhere on the page.
	Language string
	File     string // the file's name in assets/snippets
	// markup is the program as HTML, coloured and escaped. TestPrograms in infra/house makes it
	// from the file ahead of time, so no function contains a lexer.
	markup string
}

// documentedOrigin is the origin in the files of assets/snippets. The deployment's origin
// replaces it. In the same way, the deployment's network and token replace those of x402.USDC.
const documentedOrigin = "https://api.example.com"

// programs returns all programs, with the values of a Site.
func programs(s Site) []snippet {
	var list []snippet
	var colored map[string]string // the markup of every file, by its name
	if err := json.Unmarshal(must(assets.ReadFile("assets/snippets.json")), &list); err != nil {
		panic(err)
	}
	if err := json.Unmarshal([]byte(generated(assets, "colored.json")), &colored); err != nil {
		panic(err)
	}
	usdc := x402.USDC()
	inText := strings.NewReplacer(
		documentedOrigin, s.Origin,
		usdc.Network, s.Terms.Network,
		usdc.Asset, s.Terms.Asset,
	)
	inMarkup := strings.NewReplacer(
		documentedOrigin, html.EscapeString(s.Origin),
		usdc.Network, html.EscapeString(s.Terms.Network),
		usdc.Asset, html.EscapeString(s.Terms.Asset),
	)
	for i := range list {
		file := list[i].File
		text := string(must(assets.ReadFile("assets/snippets/" + file)))
		list[i].Code = strings.TrimSuffix(inText.Replace(text), "\n")
		list[i].markup = strings.TrimSuffix(inMarkup.Replace(colored[file]), "\n")
	}
	return list
}

// shownToken is the retry token in the examples. The service makes a new token for every
// challenge.
const shownToken = "AAECAwQFBgcICQoLDA0ODw"

// wireHeader is a payment header in encoded and decoded form.
type wireHeader struct{ Name, Encoded, Decoded string }

// wireExample is an example of a whole handshake. The offer is this deployment's. The signature
// that the client sent and the receipt that the Gate returned were recorded, in one paid call
// of the first operation of a service at https://api.example.com. They are recorded because the
// function that serves documents has neither a key nor code to sign with.
// TestRecordedHandshakeIsReal makes the recording and checks that the code still produces the
// same bytes.
type wireExample struct {
	Required  wireHeader `json:"-"`
	Body      string     `json:"-"` // the body of the 402, as sent
	Signature wireHeader
	Response  wireHeader
	// The facts about the recorded payment. Origin is the seller's origin, Key the payer's
	// private key, and Signed the time of the signature in UTC.
	Origin, Payer, Payee, Key, Signed string
}

// wireExampleOf returns the example handshake for an operation of a Site.
func wireExampleOf(op catalog.Operation, s Site) (e wireExample) {
	if err := json.Unmarshal(must(assets.ReadFile("assets/handshake.json")), &e); err != nil {
		panic(err)
	}
	offer := must(must(x402.NewOffer(Offer(op, s))).Signed(shownReceipts{keys: s.ReceiptKeys}))
	header := usualForm(must(offer.Challenges("", shownToken)))
	e.Required = wireHeader{
		Name:    x402.HeaderRequired,
		Encoded: header,
		Decoded: indented(must(base64.StdEncoding.DecodeString(header))),
	}
	required := offer.Required("").WithToken(shownToken)
	challenge := ChallengeOf(op, s, required, fault.New(fault.PaymentRequired, nil))
	e.Body = string(encode(challenge))
	return e
}

// usualForm returns the value of PAYMENT-REQUIRED that a response with the usual headers
// carries. This is the first of the given values that is short enough, or else the last one.
// The longest value comes first.
func usualForm(headers []string) string {
	for _, header := range headers {
		if len(header) < x402.MaxOfferHeader {
			return header
		}
	}
	return headers[len(headers)-1]
}

// shownReceipts makes example offers with a signature of zeros, because the function that
// serves documents does not have the Site's private key.
type shownReceipts struct {
	x402.Receipts
	keys []ed25519.PublicKey
}

// SignOffer implements x402.Receipts.
func (r shownReceipts) SignOffer(o receipt.Offer) (string, error) {
	if len(r.keys) == 0 {
		return "", nil
	}
	return receipt.Shown(o, r.keys[0])
}

func headerOf(name string, raw []byte) wireHeader {
	return wireHeader{
		Name:    name,
		Encoded: base64.StdEncoding.EncodeToString(raw),
		Decoded: indented(raw),
	}
}
