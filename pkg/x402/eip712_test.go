package x402

import (
	"encoding/hex"
	"errors"
	"math/big"
	"strings"
	"testing"
)

// vector is a payment that was signed outside this code base, with viem. The signer's key is
// the well-known key 0 of the Hardhat and Anvil development chains.
const vector = `{
  "x402Version": 2,
  "payload": {
    "authorization": {
      "from": "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266",
      "to": "0x209693Bc6afc0C5328bA36FaF03C514EF312287C",
      "value": "10000",
      "validAfter": "0",
      "validBefore": "1795219500",
      "nonce": "0xf3746613c2d920b5fdabc0856f2aeb2d4f88ee6037b8cc5d04a71a4462f13480"
    },
    "signature": "0x5c15776fb9d58b5c1b08e8b4b43d0e248b33f0b2a3c79a3986caf0c12846dc425f7d4cdaddc4e724b6bf191a7d5fdeaf943e45cda16e5b8c5b8b1ce447298ef51b"
  },
  "resource": {"url": "https://api.example.com/v1/report?city=Oslo", "description": "City report", "mimeType": "application/json"},
  "accepted": {
    "scheme": "exact", "network": "eip155:8453",
    "asset": "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913",
    "amount": "10000", "payTo": "0x209693Bc6afc0C5328bA36FaF03C514EF312287C",
    "maxTimeoutSeconds": 300, "extra": {"name": "USD Coin", "version": "2"}
  },
  "extensions": {}
}`

func baseTerms() Terms {
	return Terms{
		Network: "eip155:8453", Asset: "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913",
		PayTo: "0x209693Bc6afc0C5328bA36FaF03C514EF312287C", Name: "USD Coin", Version: "2",
	}
}

func decodeVector(t *testing.T) *Payment {
	t.Helper()
	p, err := DecodePayment(b64(vector))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestTokenDomain(t *testing.T) {
	sepolia := Terms{Network: "eip155:84532", Asset: "0x036CbD53842c5426634e7929541eC2318f3dCF7e", Name: "USDC", Version: "2"}
	for _, c := range []struct {
		terms Terms
		want  string
	}{
		{baseTerms(), "02fa7265e7c5d81118673727957699e4d68f74cd74b7db77da710fe8a2c7834f"},
		{sepolia, "71f17a3b2ff373b803d70a5a07c046c1a2bc8e89c09ef722fcb047abe94c9818"},
	} {
		d, err := c.terms.TokenDomain()
		if err != nil || hex.EncodeToString(d[:]) != c.want {
			t.Errorf("domain of %s is %x, %v; want %s", c.terms.Network, d, err, c.want)
		}
	}
	for _, bad := range []Terms{{Network: "base"}, {Network: "eip155:"}, {Network: "eip155:08453"}, {Network: "eip155:-1"}, {Network: "eip155:8453", Asset: "0x12"}} {
		if _, err := bad.TokenDomain(); err == nil {
			t.Errorf("domain of %+v has no error", bad)
		}
	}
}

func TestSignedVector(t *testing.T) {
	p := decodeVector(t)
	domain, err := baseTerms().TokenDomain()
	if err != nil {
		t.Fatal(err)
	}
	digest := p.Digest(domain)
	if got, want := hex.EncodeToString(digest[:]), "920695fe518372173730c6ae19f29f3505990a618692a88aff5a10638498b1c8"; got != want {
		t.Fatalf("digest %s, want %s", got, want)
	}
	if err := p.Check(digest); err != nil {
		t.Fatalf("signed vector: %v", err)
	}
	if got, want := p.From.Checksum(), "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266"; got != want {
		t.Errorf("checksum address %s, want %s", got, want)
	}
}

// TestSignatureForms plays changed signatures, none of which Check may accept. If the token
// contract is certain to refuse a signature, Check must say what is wrong with it. If only the
// chain can tell, Check must return errForeign, so that the signature is passed on.
func TestSignatureForms(t *testing.T) {
	domain, err := baseTerms().TokenDomain()
	if err != nil {
		t.Fatal(err)
	}
	order, _ := new(big.Int).SetString("fffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141", 16)
	highS := func(sig []byte) []byte {
		s := new(big.Int).Sub(order, new(big.Int).SetBytes(sig[32:64]))
		out := append([]byte{}, sig[:32]...)
		out = append(out, s.FillBytes(make([]byte, 32))...)
		return append(out, 27+28-sig[64])
	}
	for _, c := range []struct {
		name    string
		change  func([]byte) []byte
		foreign bool
		wantErr string
	}{
		{"high s", highS, false, "upper half"},
		{"s is the order", func(s []byte) []byte { return append(append(append([]byte{}, s[:32]...), order.Bytes()...), 27) }, true, ""},
		{"v 0", func(s []byte) []byte { return append(append([]byte{}, s[:64]...), 0) }, false, "v is 0"},
		{"v 1", func(s []byte) []byte { return append(append([]byte{}, s[:64]...), 1) }, false, "v is 1"},
		{"v 29", func(s []byte) []byte { return append(append([]byte{}, s[:64]...), 29) }, false, "v is 29"},
		{"high s and v 0", func(s []byte) []byte { s = highS(s); return append(s[:64], s[64]-27) }, false, "v is"},
		{"65 bytes of a contract wallet: v 31", func(s []byte) []byte { return append(append([]byte{s[0] ^ 1}, s[1:64]...), 31) }, true, ""},
		{"65 bytes of a contract wallet: high s", func(s []byte) []byte { s = highS(s); s[0] ^= 1; return s }, true, ""},
		{"66 bytes", func(s []byte) []byte { return append(s, 0) }, true, ""},
		{"zero r and s", func(s []byte) []byte { return append(make([]byte, 64), 27) }, true, ""},
		{"contract wallet, 200 bytes", func([]byte) []byte { return make([]byte, 200) }, true, ""},
	} {
		p := decodeVector(t)
		p.Signature = c.change(p.Signature)
		err := p.Check(p.Digest(domain))
		if c.foreign != errors.Is(err, errForeign) || err == nil || (c.wantErr != "" && !strings.Contains(err.Error(), c.wantErr)) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// TestCheckOrigin checks a payee's signature of an origin, which other software made. The
// payee's private key is the number 1. CheckOrigin must accept the signature for this origin
// and this payee. It must refuse another origin, another payee, and a malformed signature.
func TestCheckOrigin(t *testing.T) {
	const (
		payee = "0x7e5f4552091a69125d5dfcb7b8c2659029395bdf"
		proof = "0x0541d3571eb64b761bbc93345b0e9c1b825bf1e70b988d8205e39a67c6df6b286c2893c5c3adfdf6528d1c64f1a5287f53e6cebf58bfb94fb3d20240fdb535841c"
	)
	if err := CheckOrigin("https://api.example.com", proof, payee); err != nil {
		t.Error(err)
	}
	for name, c := range map[string][3]string{
		"slash":        {"https://api.example.com/", proof, payee},
		"other origin": {"https://api.example.org", proof, payee},
		"other payee":  {"https://api.example.com", proof, "0x209693Bc6afc0C5328bA36FaF03C514EF312287C"},
		"short":        {"https://api.example.com", proof[:130], payee},
		"v":            {"https://api.example.com", proof[:130] + "00", payee},
		"garbage":      {"https://api.example.com", "0x" + "ff00000000000000000000000000000000000000000000000000000000000000ff00000000000000000000000000000000000000000000000000000000000000001b", payee},
		"no payee":     {"https://api.example.com", proof, ""},
	} {
		if CheckOrigin(c[0], c[1], c[2]) == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}
