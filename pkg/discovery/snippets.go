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

// snippet is a program that calls the first operation of the catalog. What is
// shown is a file of assets/snippets with this deployment's values in place of
// the documented ones, and infra/clients runs it as shown.
type snippet struct {
	ID      string // anchor on the page
	Title   string
	Name    string // what to save it as
	Install string // commands before it; empty: none
	Run     string // the command that runs it; empty: it is one itself
	Text    string // what to know about it, with `code`
	Code    string
	// Language is the tab of the page that it is in, the ID of its first
	// program; the others are folded. Without one it stands elsewhere.
	Language string
	File     string // in assets/snippets
	// markup is the program as HTML, coloured and escaped. It is made from the file
	// ahead of time, by TestGenerated, so that no function carries a lexer.
	markup string
}

// documentedOrigin is the origin in the files. A deployment's own replaces it, and so do its
// network and its token, which are those of x402.USDC there.
const documentedOrigin = "https://api.example.com"

// programs returns the programs of the list with the values of a site.
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
	offer := must(must(x402.NewOffer(Offer(op, s))).Signed(shownReceipts{keys: s.ReceiptKeys}))
	header := usualForm(must(offer.Challenges("", shownToken)))
	e.Required = wireHeader{
		Name:    x402.HeaderRequired,
		Encoded: header,
		Decoded: laid(must(base64.StdEncoding.DecodeString(header))),
	}
	required := offer.Required("").WithToken(shownToken)
	challenge := ChallengeOf(op, s, required, fault.New(fault.PaymentRequired, nil))
	e.Body = string(encode(challenge))
	return e
}

// usualForm returns the form of PAYMENT-REQUIRED that fits beside the usual headers.
func usualForm(headers []string) string {
	for _, header := range headers {
		if len(header) < x402.MaxOfferHeader {
			return header
		}
	}
	return headers[len(headers)-1]
}

// shownReceipts stand for the signer of a site, whose private key is not where documents are
// made: zeros stand for its signature.
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
		Decoded: laid(raw),
	}
}
