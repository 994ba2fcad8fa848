package testbed

import (
	"crypto/rand"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// NewClient is a paying client with a wallet of its own.
func NewClient(tb testing.TB, over *http.Client) *x402test.Client {
	tb.Helper()
	wallet, err := x402test.NewWallet(rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	return &x402test.Client{HTTP: over, Wallet: wallet, Now: time.Now}
}

// FreeAddr is an address of 127.0.0.1 to listen on, for a process that cannot
// choose one itself. Somebody else may be faster.
func FreeAddr(tb testing.TB) string {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
