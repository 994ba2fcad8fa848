package buyer_test

import (
	"context"
	"crypto/rand"
	"math/big"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hostfacts/hostfacts/infra/paymcp/buyer"
	"github.com/hostfacts/hostfacts/infra/paymcp/purse"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// buyerPlace is a folder, a wallet and a server. Each call of start stands for a new process.
type buyerPlace struct {
	t              *testing.T
	dir            string
	seller         *seller
	wallet         *x402test.Wallet
	terms          buyer.Terms
	chain          x402.Evidence
	receiptWarning string
}

func newPlace(t *testing.T, keepsRecords bool) *buyerPlace {
	p := &buyerPlace{t: t, dir: t.TempDir(), seller: newSeller(keepsRecords)}
	p.wallet = must[*x402test.Wallet](t)(x402test.NewWallet(rand.Reader))
	usdc := x402.USDC()
	p.terms = buyer.Terms{PayTo: payee, Network: usdc.Network, Asset: usdc.Asset, PerCall: big.NewInt(10_000), PerDay: big.NewInt(1_000_000)}
	return p
}

// start returns a new Buyer for the folder, as a new process would make it.
func (p *buyerPlace) start() *buyer.Buyer {
	kept := must[*purse.Purse](p.t)(purse.Open(p.dir, time.Now, time.After))
	return &buyer.Buyer{
		Server: "https://api.example.com/mcp", Upstream: p.seller, Purse: kept,
		Terms:   func() (buyer.Terms, error) { return p.terms, nil },
		Wallet:  func() (*x402test.Wallet, error) { return p.wallet, nil },
		Chain:   func(string, string) x402.Evidence { return p.chain },
		Receipt: func(context.Context, buyer.PaidAnswer) string { return p.receiptWarning },
		Now:     time.Now, After: time.After, Wait: buyer.CallTime,
		HowToAllow: "pay-mcp allow", HowToForget: func(id string) string { return "pay-mcp forget " + id },
	}
}

// call asks a question in a process that may be killed before it has the answer. The result
// died reports whether the process was killed.
func call(b *buyer.Buyer, arguments string) (r buyer.Result, died bool) {
	defer func() {
		if cause := recover(); cause != nil {
			if cause != errKilled {
				panic(cause)
			}
			died = true
		}
	}()
	return b.Call(context.Background(), "dns_lookup", []byte(arguments)), false
}

// isAnswered reports whether a result has an answer that is not an error.
func isAnswered(r buyer.Result) bool { return r.Reply != nil && !r.Reply.IsError }

// textOf returns all the text in a result that a model reads.
func textOf(r buyer.Result) string {
	text := strings.Join(r.Notes, "\n")
	if r.Reply != nil {
		text = r.Reply.Text() + "\n" + text
	}
	return text
}

const question = `{"domain":"example.com"}`

// inNewPlace runs a test with a fake clock, in a new place.
func inNewPlace(t *testing.T, keepsRecords bool, run func(t *testing.T, p *buyerPlace)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { run(t, newPlace(t, keepsRecords)) })
}

func (p *buyerPlace) checkTransfers(transfers int, what string) {
	p.t.Helper()
	if got := p.seller.transfers(); got != transfers {
		p.t.Errorf("%s: %d transfers, want %d", what, got, transfers)
	}
}
