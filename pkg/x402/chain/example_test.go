package chain_test

import (
	"fmt"
	"net/http"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/chain"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
	"github.com/hostfacts/hostfacts/pkg/x402/x402http"
)

// A seller chooses nodes of the chain. They are asked when a facilitator leaves it in doubt
// whether a payment has moved money. If one node fails, the next one is asked.
func ExampleNew() {
	usdc := x402.USDC()
	nodes, err := chain.New(chain.Config{
		URLs:    []string{"https://node.example/key", x402.Network(usdc.Network).PublicNode},
		Network: usdc.Network,
		Asset:   usdc.Asset,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	seller, err := x402http.New(x402http.Config{
		PayTo:       "0x70997970C51812dc3A010C7d01b50e0d17dc79C8",
		Facilitator: "https://facilitator.example",
		Evidence:    nodes,
		Ledger:      new(ledgertest.Memory), // file.Open or dynamo.Open in a shop
		Origin:      "https://shop.example",
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	http.Handle("GET /weather", seller.Sell("0.01", http.NotFoundHandler()))
}
