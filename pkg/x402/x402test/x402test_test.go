package x402test_test

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

func terms() x402.Terms {
	return x402.Terms{
		Network: "eip155:8453", Asset: "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913",
		PayTo: "0x209693Bc6afc0C5328bA36FaF03C514EF312287C", Name: "USD Coin", Version: "2",
	}
}

// The wallet signs as viem does: the vector was made with it and the
// well-known key 0 of the development chains.
func TestWalletVector(t *testing.T) {
	w, err := x402test.WalletFromHex("ac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80", rand.Reader)
	must(t, err)
	if got, want := w.Address().Checksum(), "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266"; got != want {
		t.Errorf("address %s, want %s", got, want)
	}
	digest, err := x402test.Digest(x402.Authorization{
		From: w.Address().String(), To: terms().PayTo, Value: "10000", ValidAfter: "0", ValidBefore: "1795219500",
		Nonce: "0xf3746613c2d920b5fdabc0856f2aeb2d4f88ee6037b8cc5d04a71a4462f13480",
	}, terms())
	if err != nil {
		t.Fatal(err)
	}
	const want = "5c15776fb9d58b5c1b08e8b4b43d0e248b33f0b2a3c79a3986caf0c12846dc425f7d4cdaddc4e724b6bf191a7d5fdeaf943e45cda16e5b8c5b8b1ce447298ef51b"
	if got := hex.EncodeToString(w.Sign(digest)); got != want {
		t.Errorf("signature %s, want %s", got, want)
	}
}

func unbase64(t *testing.T, text string) []byte {
	t.Helper()
	b, err := base64.StdEncoding.DecodeString(text)
	must(t, err)
	return b
}
