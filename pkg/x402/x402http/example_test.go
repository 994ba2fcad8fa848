package x402http_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
	"github.com/hostfacts/hostfacts/pkg/x402/x402http"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// quiet keeps log lines out of the examples.
func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// books are a facilitator that settles play money for payTo.
func books() *x402test.Facilitator {
	terms := x402.USDC()
	terms.PayTo = payTo
	return must(x402test.NewFacilitator(x402test.FacilitatorConfig{Terms: terms, Now: time.Now}))
}

// A handler is sold for a cent. The client asks for the price, signs a payment, and sends
// it twice, as one does whose first answer was lost: it is charged once.
func Example() {
	money := books()
	facilitator := httptest.NewServer(money)
	defer facilitator.Close()

	seller, err := x402http.New(x402http.Config{
		PayTo: payTo, Facilitator: facilitator.URL, Evidence: money.Evidence(), Ledger: new(ledgertest.Memory), Origin: "http://127.0.0.1:8080", Log: quiet(),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	weather := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Println("the handler runs")
		_, _ = fmt.Fprintf(w, "fair in %s", r.URL.Query().Get("city"))
	})
	mux := http.NewServeMux()
	mux.Handle("GET /weather", seller.Sell("0.01", weather))
	shop := httptest.NewServer(mux)
	defer shop.Close()

	client := &x402test.Client{HTTP: http.DefaultClient, Wallet: must(x402test.NewWallet(rand.Reader)), Now: time.Now}
	url := shop.URL + "/weather?city=Oslo"
	unpaid := must(client.Get(context.Background(), url, ""))
	fmt.Println(unpaid.Status)
	signature := must(client.Sign(context.Background(), url))
	for range 2 {
		paid := must(client.Get(context.Background(), url, signature))
		fmt.Println(paid.Status, string(paid.Body))
	}
	// Output:
	// 402
	// the handler runs
	// 200 fair in Oslo
	// 200 fair in Oslo
}
