package testbed

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// TestSecrets checks that a payment is found in every form in which a log could show it, and
// that a text which a log may contain is not mistaken for a payment.
func TestSecrets(t *testing.T) {
	t.Parallel()
	// This is the private key of Account(0), a well-known test account.
	w := Must(x402test.WalletFromHex("ac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80", rand.Reader))
	terms := x402.Terms{Network: "eip155:8453", Asset: w.Address().Checksum(), PayTo: w.Address().Checksum(), Name: "USD Coin", Version: "2"}
	var s Secrets
	var header string
	for range 3 {
		header = Must(w.Pay(x402.PaymentRequired{Accepts: []x402.Requirements{terms.Requirements("5000")}}, time.Now()))
		s.Add(header)
	}
	s.Add("garbage")
	p := Must(x402.DecodePayment(header))
	sig := hex.EncodeToString(p.Signature)
	for name, text := range map[string]string{
		"the header":               `{"header":"` + header + `"}`,
		"a piece of it":            "x=" + header[101:161],
		"its end":                  strings.TrimRight(header, "=")[len(header)-80:] + "\n",
		"the signature":            "reason=0x" + sig,
		"without 0x":               `"` + sig + `"`,
		"in capitals":              "0X" + strings.ToUpper(sig),
		"r":                        "r " + sig[:64],
		"s":                        "s=0x" + sig[64:128] + ",",
		"r without its first half": sig[20:61],
		"as bytes in JSON":         base64.StdEncoding.EncodeToString(p.Signature),
	} {
		if s.Shown("before\n"+text+" after") == "" {
			t.Errorf("%s is not noticed", name)
		}
	}
	for name, text := range map[string]string{
		"nothing":            "",
		"nonce and payer":    "0x" + hex.EncodeToString(p.Nonce[:]) + " " + p.From.Checksum(),
		"a shortened piece":  "0x" + sig[:8] + "...",
		"somebody's hash":    strings.Repeat("0123456789abcdef", 8),
		"a long word":        strings.Repeat("word", 40),
		"as long as a payer": sig[:40],
	} {
		if run := s.Shown(text); run != "" {
			t.Errorf("%s counts as a secret: %s", name, run)
		}
	}
}
