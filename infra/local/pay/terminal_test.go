package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode"

	"github.com/hostfacts/hostfacts/pkg/x402"
)

// steering is text with characters that could steer a terminal: C1 control characters that clear
// the screen and change the color, characters that reorder or hide text, and a line separator.
const steering = "\u009b2J\u009b31mPAID \u202egnp.exe\u2066\u200b\u2028\x7f"

// findSteering looks for the first character in a text that moves the cursor, hides text or
// reorders text. It returns a quoted piece of the text that begins with this character, or ""
// if there is no such character.
func findSteering(text string) string {
	i := strings.IndexFunc(text, func(r rune) bool {
		return r != '\n' && (unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp))
	})
	if i < 0 {
		return ""
	}
	return fmt.Sprintf("%+q", text[i:min(i+40, len(text))])
}

// usualOffer returns an offer for 5000 atomic units of USDC on Base.
func usualOffer() x402.PaymentRequired {
	return x402.PaymentRequired{X402Version: x402.Version, Accepts: []x402.Requirements{x402.Terms{
		Network: "eip155:8453", Asset: "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913",
		PayTo: "0x209693Bc6afc0C5328bA36FaF03C514EF312287C", Name: "USD Coin", Version: "2",
	}.Requirements("5000")}}
}

// encodeOffer returns an offer as the value of the header PAYMENT-REQUIRED.
func encodeOffer(t *testing.T, offer x402.PaymentRequired) string {
	t.Helper()
	raw, err := json.Marshal(offer)
	must(t, err)
	// encoding/json escapes the line separator U+2028, but a server may send it unescaped.
	return base64.StdEncoding.EncodeToString([]byte(strings.NewReplacer(`\u2028`, "\u2028").Replace(string(raw))))
}
