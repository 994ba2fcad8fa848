package discovery

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"slices"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/printable"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/receipt"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// longHost has 64 characters, the longest that the size of the offers is promised for.
const longHost = "the-facts-about-hosts.an-organisation.a-long-registry-name.test1"

// signer signs with one key, as a deployment does.
type signer struct{ *receipt.Signer }

func (s signer) Sign(_ context.Context, d receipt.Statement) (string, error) { return s.Signer.Sign(d) }

// TestOffers holds every offer, by HTTP and of the tool, and the header of its payment, to the
// sizes that gateways take, and to what those who list offers demand: they drop what exceeds
// their limits, or fails its own schema.
func TestOffers(t *testing.T) {
	const mostPayment = 6656
	s, wallet := testSite(), must(x402test.NewWallet(rand.Reader))
	if s.Origin = "https://" + longHost; len(longHost) != 64 {
		t.Fatalf("the host has %d characters, want 64", len(longHost))
	}
	signs := signer{must(receipt.NewSigner(ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)), s.ReceiptKeys))}
	short := func(most int, texts ...string) bool {
		return !slices.ContainsFunc(texts, func(text string) bool { return text == "" || len(text) > most || !printable.ASCII(text) })
	}
	for _, op := range catalog.All() {
		http, tool := Offer(op, s), ToolOffer(op, s)
		same(t, op.Slug, []x402.Requirements{{
			Scheme: "exact", Network: s.Terms.Network, Asset: s.Terms.Asset, Amount: op.Amount, PayTo: s.Terms.PayTo,
			MaxTimeoutSeconds: 300, Extra: x402.Extra{Name: "USD Coin", Version: "2", PaymentFlow: "upfront"},
		}}, http.Accepts)
		same(t, op.Slug, http.Accepts, tool.Accepts)
		if r := http.Resource; r.URL != s.Origin+op.Path || !short(400, r.Description) || !short(32, append(r.Tags, r.ServiceName)...) || len(r.Tags) > 5 {
			t.Errorf("%s: %+v", op.Slug, r)
		}
		for kind, plain := range map[string]x402.PaymentRequired{"http": http, "mcp": tool} {
			offer := must(must(x402.NewOffer(plain)).Signed(signs)).Required("").WithToken(shownToken)
			if header := must(x402.EncodeHeader(offer)); len(header) >= x402.MaxOfferHeader || len(offer.Extensions) != 4 {
				t.Errorf("%s, %s: %d extensions, %d bytes", op.Slug, kind, len(offer.Extensions), len(header))
			}
			for name, raw := range offer.Extensions {
				checkExtension(t, op, kind, name, raw)
			}
			// With an id of payment-identifier, as the client's helper writes it.
			offer.Extensions[x402.ExtensionIdentifier] = bytes.Replace(offer.Extensions[x402.ExtensionIdentifier],
				[]byte(`"required":false`), []byte(`"required":false,"id":"pay_7d5d747be160e280504c099d984bcfe0"`), 1)
			if payment := must(wallet.Pay(offer, s.Now())); len(payment) >= mostPayment {
				t.Errorf("%s, %s: a payment of %d bytes", op.Slug, kind, len(payment))
			}
		}
	}
}

// checkExtension does what a facilitator does before it lists an offer: info fits the
// schema, which needs no other document; and it sees what is wrong.
func checkExtension(t *testing.T, op catalog.Operation, kind, name string, raw []byte) {
	t.Helper()
	var e struct{ Info, Schema json.RawMessage }
	if err := json.Unmarshal(raw, &e); err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(raw, []byte(`"$ref"`)) || bytes.Contains(raw, []byte(`"$id"`)) || bytes.Contains(raw, []byte(`{}`)) {
		t.Errorf("%s, %s: an empty schema or a reference in %s", op.Slug, name, raw)
	}
	const id = `"required":false,"id":"pay_7d5d747be160e280504c099d984bc`
	type change struct {
		old, other string
		ok         bool
	}
	changes := []change{{"", "", true}}
	switch {
	case name == x402.ExtensionIdentifier: // it is offered and not required
		const was = `"required":false`
		changes = append(changes, change{was, id + `fe0"`, true}, change{was, id + `|"`, false}, change{was, was + `,"id":"short"`, false})
	case name == x402.ExtensionReceipt:
		changes = append(changes, change{`"format":"jws",`, ``, false}, change{`"offers":[`, `"receipts":[`, false})
	case name == "bazaar" && kind == "mcp":
		changes = append(changes, change{`"type":"mcp"`, `"type":"http"`, false})
	case name == "bazaar":
		changes = append(changes, change{`"type":"http"`, `"type":"mcp"`, false}, change{`"method":"GET"`, `"method":"POST"`, false},
			change{`"queryParams":{`, `"body":{},"queryParams":{`, false})
		if op.Kind != catalog.SmokeTest { // its one parameter is optional
			changes = append(changes, change{`"domain":`, `"host":`, false})
		}
	}
	s := validator(e.Schema)
	for _, c := range changes {
		info := bytes.Replace(e.Info, []byte(c.old), []byte(c.other), 1)
		if err := fits(s, info); (err == nil) != c.ok || c.old != "" && bytes.Equal(info, e.Info) {
			t.Errorf("%s, %s: %s for %s: %v", op.Slug, name, c.other, c.old, err)
		}
	}
}
