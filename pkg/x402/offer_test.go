package x402_test

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
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

// A payer who was offered the operation on another transport may echo that offer, and
// nothing that is a mixture of two.
func TestEchoOfASibling(t *testing.T) {
	bazaar := func(info string) map[string]json.RawMessage {
		return map[string]json.RawMessage{"bazaar": json.RawMessage(`{"info":` + info + `}`)}
	}
	const http, mcp = `{"type":"http","query":{"a":1}}`, `{"type":"mcp","tool":"x"}`
	for echoed, fits := range map[string]bool{
		http: true, mcp: true, `{"type":"mcp","tool":"x","more":1}`: true,
		`{"type":"mcp","query":{"a":1}}`: false, `{"type":"http","tool":"x"}`: false, `{}`: false,
	} {
		within(t, nil, func(t *testing.T, b *harness) {
			required, sibling := b.offer.Required(""), b.offer.Required("")
			required.Extensions, sibling.Extensions = bazaar(http), bazaar(mcp)
			b.offer = must(x402.NewOffer(required, sibling))
			out := b.ask(b.sign(func(d *x402test.Draft) { d.Payload.Extensions = bazaar(echoed) }), "GET /a")
			if (out.Status == 200) != fits {
				t.Errorf("%s: %d %v", echoed, out.Status, out.Fault)
			}
		})
	}
	spoilt := x402.PaymentRequired{Accepts: []x402.Requirements{terms().Requirements("5000")}}
	if _, err := x402.NewOffer(spoilt, x402.PaymentRequired{Extensions: bazaar("7")}); err == nil {
		t.Error("a sibling that nobody could echo is taken")
	}
}

// What is echoed must hold all that was advertised, to any depth: objects may
// grow, lists and values must be the same.
func TestEchoOfNestedValues(t *testing.T) {
	const advertised = `{"list":[1,"a",{"k":[true,null]}],"deep":{"a":{"b":"c"}}}`
	for echoed, fits := range map[string]bool{
		advertised: true,
		`{"more":1,"list":[1,"a",{"k":[true,null]}],"deep":{"more":1,"a":{"b":"c","more":1}}}`: true,
		`{"list":[1,"a",{"k":[true,false]}],"deep":{"a":{"b":"c"}}}`:                           false,
		`{"list":[1,"a",{"k":[true]}],"deep":{"a":{"b":"c"}}}`:                                 false,
		`{"list":[1,"a",{"k":[true,null],"more":1}],"deep":{"a":{"b":"c"}}}`:                   false,
		`{"list":[1,"a",{"j":[true,null]}],"deep":{"a":{"b":"c"}}}`:                            false,
		`{"list":[1,"a",7],"deep":{"a":{"b":"c"}}}`:                                            false,
		`{"list":[1,"a",{"k":[true,null]},3],"deep":{"a":{"b":"c"}}}`:                          false,
		`{"list":"1","deep":{"a":{"b":"c"}}}`:                                                  false,
		`{"list":[1,"a",{"k":[true,null]}],"deep":{"a":"c"}}`:                                  false,
	} {
		within(t, nil, func(t *testing.T, b *harness) {
			required := b.offer.Required("")
			required.Extensions = map[string]json.RawMessage{"bazaar": json.RawMessage(`{"info":` + advertised + `}`)}
			b.offer = must(x402.NewOffer(required))
			h := b.sign(func(d *x402test.Draft) {
				d.Payload.Extensions = map[string]json.RawMessage{"bazaar": json.RawMessage(`{"info":` + echoed + `}`)}
			})
			out := b.ask(h, "GET /a")
			if fits {
				b.expect(echoed, out, 200, "", "true", false, true)
				return
			}
			b.expect(echoed, out, 402, fault.PaymentRequired, "false", false, false)
			if !strings.Contains(fmt.Sprint(out.Fault.Public()), "extension_echo_mismatch") {
				t.Errorf("%s: %q", echoed, out.Fault.Public())
			}
		})
	}
}
