package x402_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/fault"
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

// Whoever was offered the operation on another transport may echo that offer, and
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
