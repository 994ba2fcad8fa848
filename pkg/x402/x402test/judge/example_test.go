package judge_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
	"github.com/hostfacts/hostfacts/pkg/x402/x402http"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test/judge"
)

// Run tests a shop three times: without a failure, with replies that get lost, and with a
// stranger who repeats a payer's request. The payers in this example repeat their signature.
// Without Rows and Ways, Run plays every kind of failure in every way, which takes minutes.
func ExampleRun() {
	world, err := x402test.World(x402.Base)
	if err != nil {
		fmt.Println(err)
		return
	}
	books := new(ledgertest.Memory) // the records outlive the handlers
	shop := judge.Handler(func(s judge.Settings) http.Handler {
		seller, err := x402http.New(x402http.Config{
			PayTo:       payTo,
			Facilitator: s.Facilitator,
			Ledger:      books,
			Origin:      "http://shop.example",
			PerMinute:   -1,
			Log:         slog.New(slog.DiscardHandler),
		})
		if err != nil {
			fmt.Println(err)
			return nil
		}
		mux := http.NewServeMux()
		mux.Handle("GET /weather", seller.Sell("0.01", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "fair")
		})))
		return mux
	})
	report, err := judge.Run(context.Background(), judge.Config{
		Seller:   shop,
		World:    world,
		Goods:    judge.Goods{Path: "/weather"},
		Promises: []judge.Promise{judge.PromiseSame},
		Rows:     []string{"clean", "reply-lost", "stranger"},
		Ways:     []judge.Way{judge.Same},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, row := range report.Rows {
		for _, played := range row.Cases {
			fmt.Println(row.Row, played.Verdict)
		}
	}
	// Output:
	// clean held
	// reply-lost held
	// stranger held
}
