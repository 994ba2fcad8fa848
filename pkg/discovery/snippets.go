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

// snippet is a program that the documentation shows. The program calls the first operation of
// the catalog. It is a file of assets/snippets with the values of this deployment.
// infra/clients runs the program as it is shown.
type snippet struct {
	ID      string // the snippet's anchor on the documentation page
	Title   string
	Name    string // the name of the file in which to save the program
	Install string // commands to run first; "" means none
	Run     string // the command that runs the program; "" if the snippet is itself a command
	Text    string // an explanation of the program; words in backticks are shown as code
	Code    string
	// Language says in which tab of the page the snippet is shown: it is the ID of the first
	// snippet in that tab. Only that first snippet is unfolded. If Language is empty, the
	// snippet is not in a tab, but elsewhere on the page.
	Language string
	File     string // the file's name in assets/snippets
	// markup is the program as HTML, coloured and escaped. TestPrograms in infra/house makes
	// it from the file before the deployment, so that no Lambda function contains a lexer.
	markup string
}

// documentedOrigin is the origin in the files of assets/snippets. The deployment's origin
// replaces it. In the same way, the deployment's network and token replace the network and the
// token of x402.USDC.
const documentedOrigin = "https://api.example.com"

// programs returns all example programs, with the origin, the network and the token of a Site.
func programs(s Site) []snippet {
	var list []snippet
	var colored map[string]string // the markup of every file, by its name
	if err := json.Unmarshal(must(assets.ReadFile("assets/snippets.json")), &list); err != nil {
		panic(err)
	}
	if err := json.Unmarshal([]byte(readGenerated(assets, "colored.json")), &colored); err != nil {
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

// wireHeader is a payment header of HTTP. Encoded is its value, and Decoded is the JSON in
// that value, indented.
type wireHeader struct{ Name, Encoded, Decoded string }

// wireExample is an example of a whole paid call. The offer in it is this deployment's. The
// headers with the client's signature and the Gate's response are a recording, because the
// function that serves documents has neither a key nor code to sign with. They were recorded
// in a paid call of the first operation of a service at https://api.example.com.
// TestRecordedHandshakeIsReal makes the recording and checks that the code still produces the
// same bytes.
type wireExample struct {
	Required  wireHeader `json:"-"`
	Body      string     `json:"-"` // the body of the 402
	Signature wireHeader
	Response  wireHeader
	// Facts about the recorded payment. Origin is the origin of the seller. Payer and Payee
	// are addresses. Key is the payer's private key, and Signed is the time of the signature
	// in UTC.
	Origin, Payer, Payee, Key, Signed string
}

// wireExampleOf returns the example of a paid call, with the offer for an operation of a Site.
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

// usualForm chooses among possible values of the header PAYMENT-REQUIRED, given from the
// longest to the shortest. It returns the first value that is shorter than MaxOfferHeader, or
// else the last one. The service makes the same choice for a response with the usual headers.
func usualForm(headers []string) string {
	for _, header := range headers {
		if len(header) < x402.MaxOfferHeader {
			return header
		}
	}
	return headers[len(headers)-1]
}

// shownReceipts signs the example offers with a signature of zeros, because the function that
// serves documents does not have the Site's private key.
type shownReceipts struct {
	x402.Receipts
	keys []ed25519.PublicKey
}

// SignOffer implements x402.Receipts. If the Site has no receipt key, it returns no signature.
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
