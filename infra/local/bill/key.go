package bill

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/infra/local/keyfile"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// ReadKey returns the wallet of the private key in a file. It refuses a file that other users
// can read or write.
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

// ThrowawayWallet returns the wallet of the key in a file. If the file does not exist,
// ThrowawayWallet creates the file with a random key. The account of a random key has no
// money, so such a wallet can pay only with play money.
func ThrowawayWallet(path string) (*x402test.Wallet, error) {
	wallet, err := ReadKey(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return wallet, err
	}
	var key [32]byte
	if _, err := rand.Read(key[:]); err != nil {
		return nil, err
	}
	err = keyfile.Write(path, []byte(hex.EncodeToString(key[:])+"\n"))
	if err != nil && !errors.Is(err, fs.ErrExist) { // if the file exists now, another process has created it
		return nil, err
	}
	return ReadKey(path)
}

// Client returns an HTTP client that pays with a wallet. The client follows no redirect,
// because a signature is for the URL that was requested.
func Client(wallet *x402test.Wallet, transport http.RoundTripper) *x402test.Client {
	return &x402test.Client{Wallet: wallet, HTTP: &http.Client{
		Timeout:       60 * time.Second,
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}
