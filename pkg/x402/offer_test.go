package x402_test

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// An offer that nobody could pay, or that no client could echo, is refused when
// it is made, and the error says what is wrong with it.
func TestNewOfferRefuses(t *testing.T) {
	whole := func() x402.PaymentRequired {
		return x402.PaymentRequired{
			X402Version: 2, Error: "Payment required", Resource: x402.Resource{URL: "https://api.example.com/v1/x"},
			Accepts: []x402.Requirements{terms().Requirements("5000")},
		}
	}
	extension := func(p *x402.PaymentRequired, raw string) {
		p.Extensions = map[string]json.RawMessage{"bazaar": json.RawMessage(raw)}
	}
	if _, err := x402.NewOffer(whole()); err != nil {
		t.Fatal(err)
	}
	for says, spoil := range map[string]func(p *x402.PaymentRequired){
		"one way to pay": func(p *x402.PaymentRequired) { p.Accepts = nil },
		"network":        func(p *x402.PaymentRequired) { p.Accepts[0].Network = "base" },
		"asset":          func(p *x402.PaymentRequired) { p.Accepts[0].Asset = "0x12" },
		"payTo":          func(p *x402.PaymentRequired) { p.Accepts[0].PayTo = "nobody" },
		"amount":         func(p *x402.PaymentRequired) { p.Accepts[0].Amount = "0.005" },
		"bazaar":         func(p *x402.PaymentRequired) { extension(p, `{"info":`) },
		"info":           func(p *x402.PaymentRequired) { extension(p, `{"info":7}`) },
		"must stay below": func(p *x402.PaymentRequired) {
			extension(p, `{"info":{"x":"`+strings.Repeat("x", x402.MaxOfferHeader)+`"}}`)
		},
	} {
		p := whole()
		spoil(&p)
		if _, err := x402.NewOffer(p); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want an error about %q", err, says)
		}
	}
}

// An offer is signed once, when there is a key, by the signer of receipts; what a client
// echoes of the signature, or leaves out, changes nothing.
func TestSignedOffer(t *testing.T) {
	for name, echo := range map[string]func(map[string]json.RawMessage){
		"echoed":   func(map[string]json.RawMessage) {},
		"left out": func(e map[string]json.RawMessage) { delete(e, x402.ExtensionReceipt) },
		"of another offer": func(e map[string]json.RawMessage) {
			e[x402.ExtensionReceipt] = json.RawMessage(`{"info":{"offers":[]}}`)
		},
		"not an extension": func(e map[string]json.RawMessage) { e[x402.ExtensionReceipt] = json.RawMessage(`7`) },
	} {
		within(t, nil, func(t *testing.T, b *harness) {
			signs := newReceipts(t)
			signs.err = errors.New("not in memory")
			if still := must(b.offer.Signed(signs)); still != b.offer || must(b.offer.Signed(nil)) != b.offer {
				t.Error("signed without a key")
			}
			signs.err = nil
			signed := must(b.offer.Signed(signs))
			if must(signed.Signed(signs)) != signed {
				t.Error("signed twice")
			}
			b.offer = signed
			one, two := challengeOf(t, signed, "", "one"), challengeOf(t, signed, "a reason", "two")
			if !slices.Equal(one.Info.Offers, two.Info.Offers) || len(one.Info.Offers) != 1 || one.Info.Offers[0].Format != "jws" {
				t.Fatalf("%+v and %+v", one, two)
			}
			jws := strings.Split(one.Info.Offers[0].Signature, ".")
			if !ed25519.Verify(signs.public, []byte(jws[0]+"."+jws[1]), must(base64.RawURLEncoding.DecodeString(jws[2]))) {
				t.Errorf("%s is not signed", jws)
			}
			want := `{"amount":"` + signed.Required("").Accepts[0].Amount + `","asset":"` + terms().Asset + `","network":"eip155:8453","payTo":"` + terms().PayTo +
				`","resourceUrl":"https://api.example.com/v1/x","scheme":"exact","version":1}`
			if said := string(must(base64.RawURLEncoding.DecodeString(jws[1]))); said != want {
				t.Errorf("signed is %s, want %s", said, want)
			}
			out := b.ask(b.sign(func(d *x402test.Draft) { echo(d.Payload.Extensions) }), "GET /a")
			b.expect(name, out, 200, "", "true", false, true)
			if _, shown := b.sent[0].Extensions[x402.ExtensionReceipt]; shown || len(b.sent) != 1 {
				t.Errorf("the facilitator is sent %+v", b.sent)
			}
		})
	}
	unsignable := offer(t, terms(), "5000", "Rome").Required("")
	unsignable.Resource.URL = "/v1/x"
	if o, err := must(x402.NewOffer(unsignable)).Signed(newReceipts(t)); err == nil {
		t.Errorf("an offer at no URL is signed: %+v", o)
	}
}

// offers is the extension offer-receipt of a challenge.
type offers struct {
	Info struct {
		Offers []struct{ Format, Signature string }
	}
}

func challengeOf(t *testing.T, o *x402.Offer, reason, token string) (e offers) {
	t.Helper()
	var p x402.PaymentRequired
	raw := must(base64.StdEncoding.DecodeString(must(o.Challenge(reason, token))))
	if err := errors.Join(json.Unmarshal(raw, &p), json.Unmarshal(p.Extensions[x402.ExtensionReceipt], &e)); err != nil {
		t.Fatalf("%v in %s", err, raw)
	}
	return e
}
