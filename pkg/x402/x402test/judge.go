package x402test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test/judge"
)

// TB has the methods of testing.TB that Judge uses.
type TB interface {
	Helper()
	Context() context.Context
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
}

// Judge plays failures of paid requests against a seller. It fails the test if the seller does
// something that the protocol forbids, or breaks a promise that the seller makes. The function
// build returns the seller's handler. Its argument is the URL of the facilitator that settles
// the handler's payments; this URL followed by /node is the URL of a node of the chain. Judge
// calls build for each kind of failure, and again each time it has killed the seller. All
// these handlers must use the same ledger.
//
// Without options, the payers buy with a GET of /, and the seller promises nothing beyond the
// protocol. An option can set what the payers buy, and what the seller promises:
//
//	x402test.Judge(t, newShop, func(c *judge.Config) {
//		c.Goods.Path = "/weather?city=Oslo"
//		c.Promises = []judge.Promise{judge.PromiseSame, judge.PromiseNew}
//	})
func Judge(t TB, build func(facilitator string) http.Handler, options ...func(*judge.Config)) *judge.Report {
	t.Helper()
	c := judge.Config{
		Seller: judge.Handler(func(s judge.Settings) http.Handler { return build(s.Facilitator) }),
		Goods:  judge.Goods{Path: "/"},
		Hold:   2 * time.Second,
		Slow:   200 * time.Millisecond,
	}
	for _, set := range options {
		set(&c)
	}
	if c.World.Money == nil {
		var err error
		if c.World, err = World(x402.Base); err != nil {
			t.Errorf("%v", err)
			return nil
		}
	}
	report, err := judge.Run(t.Context(), c)
	if err != nil {
		t.Errorf("%v", err)
		return report
	}
	var text strings.Builder
	if err := report.WriteText(&text); err != nil {
		t.Errorf("%v", err)
	}
	t.Logf("%s", text.String())
	for _, broken := range report.Broken() {
		t.Errorf("%s", broken)
	}
	return report
}

// World returns the surroundings of a seller for package judge, on a known network: play money,
// a node of its chain, and wallets.
func World(network string) (judge.World, error) {
	id, err := x402.ChainID(network)
	if err != nil {
		return judge.World{}, fmt.Errorf("x402test: %w", err)
	}
	terms := x402.Network(network).USDC
	if terms.Asset == "" {
		return judge.World{}, fmt.Errorf("x402test: nothing is known of the network %s", network)
	}
	books := newBooks(FacilitatorConfig{Terms: terms, Now: time.Now})
	return judge.World{
		Network: network,
		Money:   books.InProcess(),
		Node:    Node{Moved: books.Transfers, ChainID: id, Now: time.Now},
		NewPayer: func(key string, random io.Reader) (judge.Payer, error) {
			return WalletFromHex(key, random)
		},
	}, nil
}
