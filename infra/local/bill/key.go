package bill

import (
	"crypto/rand"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/infra/local/keyfile"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// ReadKey reads the private key of a wallet from a file that nobody else can read.
func ReadKey(path string) (*x402test.Wallet, error) {
	text, err := keyfile.Read(path)
	if err != nil {
		return nil, err
	}
	defer clear(text)
	wallet, err := x402test.WalletFromHex(strings.TrimPrefix(strings.TrimSpace(string(text)), "0x"), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("%q must hold a private key and nothing else: 32 bytes of hex, with or without 0x", path)
	}
	return wallet, nil
}

// Client returns a client that pays with a wallet. It follows no redirect, because a signature
// is for the URL that was requested.
func Client(wallet *x402test.Wallet, over http.RoundTripper) *x402test.Client {
	return &x402test.Client{Wallet: wallet, HTTP: &http.Client{
		Timeout:       60 * time.Second,
		Transport:     over,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}
