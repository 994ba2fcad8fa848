package main

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/infra/local/bill"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

// key1 is a private key, the number 1. account1 is the account of this key.
const (
	key1     = "0x0000000000000000000000000000000000000000000000000000000000000001"
	account1 = "0x7E5F4552091A69125d5DfCb7b8C2659029395Bdf"
)

// wayOf changes the usual offer with the given function, and returns the way to pay in the
// changed offer.
func wayOf(t *testing.T, change func(*x402.PaymentRequired)) bill.Way {
	t.Helper()
	offer := usualOffer()
	change(&offer)
	o, err := parseOfferHeader(encodeOffer(t, offer))
	must(t, err)
	w, err := o.Choose()
	must(t, err)
	return w
}

func amountOf(amount string) func(*x402.PaymentRequired) {
	return func(o *x402.PaymentRequired) { o.Accepts[0].Amount = amount }
}

// TestLimit compares prices in atomic units with MAX, which is in units of the token or in
// atomic units. It also checks that text which is not an amount is refused as MAX.
func TestLimit(t *testing.T) {
	t.Parallel()
	foreign := func(o *x402.PaymentRequired) { o.Accepts[0].Asset = "0x0000000000000000000000000000000000000bad" }
	elsewhere := func(o *x402.PaymentRequired) { o.Accepts[0].Network = "eip155:1" }
	largest := new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), 256), big.NewInt(1)).String()
	for name, c := range map[string]struct {
		max    string
		change func(*x402.PaymentRequired)
		says   string // "" means that the price is allowed
	}{
		"the default":       {defaultMax, amountOf("100000"), ""},
		"one unit more":     {defaultMax, amountOf("100001"), "the price, 0.100001 USDC on Base, is above MAX=0.10"},
		"the largest":       {defaultMax, amountOf(largest), "is above MAX=0.10"},
		"nothing":           {"0", amountOf("0"), ""},
		"more than nothing": {"0", amountOf("1"), "the price, 0.000001 USDC on Base, is above MAX=0"},
		"the smallest":      {"0.000001", amountOf("1"), ""},
		"zeros at the end":  {"0.005000000000000000", amountOf("5000"), ""},
		"too many decimals": {"0.0000001", amountOf("0"), "more than the 6 decimals of USDC"},
		"whole":             {"12", amountOf("12000000"), ""},
		"atomic":            {"5000atomic", amountOf("5000"), ""},
		"above atomic":      {"5000atomic", amountOf("5001"), "is above MAX=5000atomic"},
		"another token":     {"1000", foreign, "MAX=5000atomic allows the price in atomic units"},
		"another token's":   {"5000atomic", foreign, ""},
		"above another's":   {"4999atomic", foreign, "the price, 5000 atomic units of the token 0x0000000000000000000000000000000000000bad on Base, is above"},
		"elsewhere":         {"1000", elsewhere, "on eip155:1 are unknown"},
		"the test network": {"0.005", func(o *x402.PaymentRequired) {
			o.Accepts[0].Network, o.Accepts[0].Asset = "eip155:84532", "0x036CbD53842c5426634e7929541eC2318f3dCF7e"
		}, ""},
		"another letter case":     {"0.005", func(o *x402.PaymentRequired) { o.Accepts[0].Asset = strings.ToLower(o.Accepts[0].Asset) }, ""},
		"its name proves nothing": {"1000", func(o *x402.PaymentRequired) { foreign(o); o.Accepts[0].Extra.Name = "USD Coin" }, "MAX=5000atomic allows"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, err := parseLimit(c.max)
			must(t, err)
			checkError(t, l.checkPrice(wayOf(t, c.change)), c.says)
		})
	}
	for _, bad := range []string{"", " ", "-1", "+1", ".5", "1.", "1e3", "0x10", "$1", "1,5", "1 USDC", "NaN", "1.5atomic", "atomic", strings.Repeat("9", 79) + "atomic", "0." + strings.Repeat("1", 19), strings.Repeat("1", 61)} {
		if l, err := parseLimit(bad); !errors.Is(err, errUsage) {
			t.Errorf("%q is %+v, %v", bad, l, err)
		}
	}
}

// TestEcho signs an offer with members that this client does not know. The payment must repeat
// parts of the offer exactly as the server wrote them. The signature must be valid for
// MaxValidity only, although the offer asks for more. The text that V=1 shows must omit the
// schemas of extensions, and must keep numbers as they were written.
func TestEcho(t *testing.T) {
	t.Parallel()
	const text = `{"x402Version":2,"resource":{"url":"u","more":[1.50]},"accepts":[{"scheme":"upto"},` +
		`{"scheme":"exact","network":"solana:x"},` +
		`{"scheme":"exact","network":"eip155:8453","asset":"0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913","amount":"7","payTo":"0x209693Bc6afc0C5328bA36FaF03C514EF312287C","maxTimeoutSeconds":999999999999,"extra":{"name":"USD Coin","version":"2","more":{"a":1}},"outputSchema":null}],` +
		`"extensions":{"x":{"info":{"n":1.0},"schema":{"type":"object"}}}}`
	o, err := parseOfferHeader(base64.StdEncoding.EncodeToString([]byte(text)))
	must(t, err)
	w, err := o.Choose()
	must(t, err)
	header, err := signPayment(newBuyer(t, "", "").client.Wallet, o, w, noon())
	must(t, err)
	raw, err := base64.StdEncoding.DecodeString(header)
	var got bill.Signed
	must(t, err, json.Unmarshal(raw, &got))
	if string(got.Accepted) != string(o.Accepts[2]) || string(got.Resource) != string(o.Resource) || string(got.Extensions) != string(o.Extensions) {
		t.Errorf("echoed: %s", raw)
	}
	if until := fmt.Sprint(noon().Unix() + bill.MaxValidity); got.Payload.Authorization.ValidBefore != until || got.Payload.Authorization.Value != "7" {
		t.Errorf("%+v, want it valid until %s", got.Payload.Authorization, until)
	}
	if shown := decodeHeader(header); strings.Contains(string(shown), "schema\"") || !strings.Contains(string(shown), `"n": 1.0`) {
		t.Errorf("shown:\n%s", shown)
	}
}

// FuzzOffer checks that every offer is either refused with an error or can be signed, and that no
// text in it steers the terminal.
func FuzzOffer(f *testing.F) {
	f.Add([]byte(`{"x402Version":2,"accepts":[{"scheme":"exact","network":"eip155:8453","asset":"0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913","amount":"7","payTo":"0x209693Bc6afc0C5328bA36FaF03C514EF312287C","maxTimeoutSeconds":300,"extra":{"name":"USD Coin","version":"2"}}],"extensions":{"a":{"schema":{}}}}`))
	f.Add([]byte(`{"x402Version":2,"accepts":[null],"extensions":{"a":null}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		header := base64.StdEncoding.EncodeToString(raw)
		if where := findSteering(string(decodeHeader(header))); where != "" {
			t.Errorf("shown: %s", where)
		}
		o, err := parseOfferHeader(header)
		if err != nil {
			return
		}
		w, err := o.Choose()
		if err != nil {
			return
		}
		if where := findSteering(w.Price()); where != "" {
			t.Errorf("the price: %s", where)
		}
		if _, err := signPayment(newBuyer(t, "", "").client.Wallet, o, w, noon()); err != nil {
			t.Errorf("%s: %v", raw, err)
		}
	})
}

// FuzzLimit checks every text that parseLimit accepts: the limit must not allow a price that
// is higher than the number in the text.
func FuzzLimit(f *testing.F) {
	for _, s := range []string{"0.10", "12", "5000atomic", "0.0000001"} {
		f.Add(s, uint64(100_000))
	}
	f.Fuzz(func(t *testing.T, s string, amount uint64) {
		l, err := parseLimit(s)
		if err != nil {
			return
		}
		w := bill.Way{Value: new(big.Int).SetUint64(amount), USDC: true}
		most, ok := new(big.Rat).SetString(strings.TrimSuffix(s, "atomic"))
		if !ok {
			t.Fatalf("%q was read", s)
		}
		if !strings.HasSuffix(s, "atomic") {
			most.Mul(most, big.NewRat(1_000_000, 1))
		}
		if l.checkPrice(w) == nil && new(big.Rat).SetInt(w.Value).Cmp(most) > 0 {
			t.Errorf("MAX=%s allows %d", s, amount)
		}
	})
}
