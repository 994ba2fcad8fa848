package x402test_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
	"github.com/hostfacts/hostfacts/pkg/x402/x402http"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test/judge"
)

// This is a test of a shop: a new wallet pays for an answer in play money.
func Example() {
	config := x402http.Config{
		PayTo:  "0x70997970C51812dc3A010C7d01b50e0d17dc79C8",
		Ledger: new(ledgertest.Memory),
		Origin: "http://shop.example",
		Log:    slog.New(slog.DiscardHandler),
	}
	config.Settler, config.Evidence = x402test.PlayMoney(config.PayTo)
	seller, err := x402http.New(config)
	if err != nil {
		fmt.Println(err)
		return
	}
	mux := http.NewServeMux()
	mux.Handle("GET /weather", seller.Sell("0.01", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "fair")
	})))
	shop := httptest.NewServer(mux)
	defer shop.Close()

	wallet, err := x402test.NewWallet(rand.Reader)
	if err != nil {
		fmt.Println(err)
		return
	}
	client := x402test.Client{HTTP: http.DefaultClient, Wallet: wallet, Now: time.Now}
	answer, _, err := client.Buy(context.Background(), shop.URL+"/weather")
	fmt.Println(answer.Status, string(answer.Body), err)
	// Output:
	// 200 fair <nil>
}

// A play-money facilitator loses its first reply after the money has moved. The seller looks at
// the chain, which here is the facilitator's journal, and answers all the same. The payer sends
// the same signature again, and has paid only once.
func ExampleNewFacilitator() {
	terms := x402.USDC()
	terms.PayTo = "0x70997970C51812dc3A010C7d01b50e0d17dc79C8"
	facilitator, err := x402test.NewFacilitator(x402test.FacilitatorConfig{
		Terms: terms,
		Now:   time.Now,
		Behave: func(n int, _ string) x402test.Behaviour {
			if n == 0 {
				return x402test.DropAfter
			}
			return x402test.Honest
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	bank := httptest.NewServer(facilitator)
	defer bank.Close()
	seller, err := x402http.New(x402http.Config{
		PayTo:       terms.PayTo,
		Facilitator: bank.URL,
		Evidence:    facilitator.Evidence(),
		Ledger:      new(ledgertest.Memory),
		Origin:      "http://shop.example",
		Log:         slog.New(slog.DiscardHandler),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	shop := httptest.NewServer(seller.Sell("0.01", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "fair")
	}), x402http.Named("weather")))
	defer shop.Close()

	wallet, err := x402test.NewWallet(rand.Reader)
	if err != nil {
		fmt.Println(err)
		return
	}
	client := x402test.Client{HTTP: http.DefaultClient, Wallet: wallet, Now: time.Now}
	signature, err := client.Sign(context.Background(), shop.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 2 {
		answer, err := client.Get(context.Background(), shop.URL, signature)
		fmt.Println(answer.Status, err)
	}
	fmt.Println("transfers:", len(facilitator.Transfers()))
	// Output:
	// 200 <nil>
	// 200 <nil>
	// transfers: 1
}

// printingTB replaces the testing.T of a real test.
type printingTB struct{ ctx context.Context }

// Helper implements x402test.TB.
func (printingTB) Helper() {}

// Context implements x402test.TB.
func (p printingTB) Context() context.Context { return p.ctx }

// Logf implements x402test.TB.
func (printingTB) Logf(string, ...any) {}

// Errorf implements x402test.TB.
func (printingTB) Errorf(format string, args ...any) { fmt.Printf(format+"\n", args...) }

// Judge tests a shop twice: without a failure, and with a reply that gets lost. Without
// Config.Rows it plays every kind of failure, which takes minutes.
func ExampleJudge() {
	books := new(ledgertest.Memory)
	newShop := func(facilitator string) http.Handler {
		seller, err := x402http.New(x402http.Config{
			PayTo:       "0x70997970C51812dc3A010C7d01b50e0d17dc79C8",
			Facilitator: facilitator,
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
	}
	t := printingTB{context.Background()} // a test uses its *testing.T here
	report := x402test.Judge(t, newShop, func(c *judge.Config) {
		c.Goods.Path = "/weather"
		c.Promises = []judge.Promise{judge.PromiseSame, judge.PromiseNew}
		c.Rows = []string{"clean", "reply-lost"}
	})
	fmt.Println("broken:", report.Count(judge.Broken), "held:", report.Count(judge.Held) > 0)
	// Output:
	// broken: 0 held: true
}
