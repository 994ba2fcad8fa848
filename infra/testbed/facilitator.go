package testbed

import (
	"crypto/rand"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// LocalTerms are those of the local runner, so that a facilitator agrees with it:
// it is paid at an account of the development mnemonic (boot.LocalPayTo).
func LocalTerms(tb testing.TB) x402.Terms {
	tb.Helper()
	return Terms(Address(tb, Account(1)))
}

// Facilitator is the one of play money.
type Facilitator struct {
	*x402test.Facilitator
	URL string // where it listens; empty when it does not
}

// NewFacilitator makes one on the local runner's terms and the clock of this
// machine, which the caller may change in a part of the configuration.
func NewFacilitator(tb testing.TB, config x402test.FacilitatorConfig) *Facilitator {
	tb.Helper()
	config.Terms, config.Now = LocalTerms(tb), time.Now
	f, err := x402test.NewFacilitator(config)
	if err != nil {
		tb.Fatal(err)
	}
	return &Facilitator{Facilitator: f}
}

// StartFacilitator makes one that listens until the test ends. behave decides
// how settlements go; nil is honest.
func StartFacilitator(tb testing.TB, behave func(n int, key string) x402test.Behaviour) *Facilitator {
	tb.Helper()
	f := NewFacilitator(tb, x402test.FacilitatorConfig{Behave: behave})
	server := httptest.NewServer(f)
	tb.Cleanup(server.Close)
	f.URL = server.URL
	return f
}

// Moved are a payer's lines in the books.
func (f *Facilitator) Moved(payer string) []x402test.Transfer {
	var list []x402test.Transfer
	for _, t := range f.Transfers() {
		if KeyPayer(t.Key) == strings.ToLower(payer) {
			list = append(list, t)
		}
	}
	return list
}

// KeyPayer is who pays by the payment with a ledger key, in lower case.
func KeyPayer(key string) string {
	parts := strings.Split(key, "|")
	if len(parts) < 3 {
		return ""
	}
	return parts[2]
}

// CallPayer is who pays by the body of a call to a facilitator, in lower case;
// empty for a body that names nobody.
func CallPayer(body []byte) string {
	var q struct {
		PaymentPayload x402.Payload `json:"paymentPayload"`
	}
	_ = json.Unmarshal(body, &q) // the facilitator judges it
	return strings.ToLower(q.PaymentPayload.Payload.Authorization.From)
}

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
