package discovery

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
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

// programs are those of the list with the values of a site.
func programs(s Site) []snippet {
	var list []snippet
	var colored map[string]string // the markup of every file, by its name
	err := errors.Join(json.Unmarshal(must(assets.ReadFile("assets/snippets.json")), &list), json.Unmarshal([]byte(generated(assets, "colored.json")), &colored))
	if err != nil {
		panic(err)
	}
	usdc := x402.USDC()
	own := strings.NewReplacer(documentedOrigin, s.Origin, usdc.Network, s.Terms.Network, usdc.Asset, s.Terms.Asset)
	ownMarkup := strings.NewReplacer(documentedOrigin, html.EscapeString(s.Origin), usdc.Network, html.EscapeString(s.Terms.Network),
		usdc.Asset, html.EscapeString(s.Terms.Asset))
	for i := range list {
		raw := must(assets.ReadFile("assets/snippets/" + list[i].File))
		list[i].Code = strings.TrimSuffix(own.Replace(string(raw)), "\n")
		list[i].markup = strings.TrimSuffix(ownMarkup.Replace(colored[list[i].File]), "\n")
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
	header := sent(must(offer.Challenges("", shownToken)))
	e.Required = wireHeader{x402.HeaderRequired, header, laid(must(base64.StdEncoding.DecodeString(header)))}
	e.Body = string(encode(ChallengeOf(op, s, offer.Required("").WithToken(shownToken), fault.New(fault.PaymentRequired, nil))))
	return e
}

// sent is what a response with the usual headers has of the forms of PAYMENT-REQUIRED.
func sent(headers []string) string {
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
	return wireHeader{name, base64.StdEncoding.EncodeToString(raw), laid(raw)}
}
