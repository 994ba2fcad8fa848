package x402http_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
	"github.com/hostfacts/hostfacts/pkg/x402/mcptest"
	"github.com/hostfacts/hostfacts/pkg/x402/x402http"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// quiet returns a logger that drops its lines, so that examples print only their results.
func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// newSeller returns a seller that takes play money.
func newSeller() *x402http.Seller { return newSellerAt(time.Now) }

// newSellerAt returns a seller that takes play money and whose clock is the function now.
func newSellerAt(now func() time.Time) *x402http.Seller {
	config := x402http.Config{
		PayTo:  "0x70997970C51812dc3A010C7d01b50e0d17dc79C8",
		Ledger: new(ledgertest.Memory), // a shop has file.Open or dynamo.Open here
		Origin: "http://127.0.0.1:8080",
		Log:    quiet(),
		Now:    now,
	}
	config.Settler, config.Evidence = x402test.PlayMoney(config.PayTo)
	seller, err := x402http.New(config)
	if err != nil {
		panic(err)
	}
	return seller
}

// newClient returns a client that pays.
func newClient() *x402test.Client {
	wallet, err := x402test.NewWallet(rand.Reader)
	if err != nil {
		panic(err)
	}
	return &x402test.Client{HTTP: http.DefaultClient, Wallet: wallet, Now: time.Now}
}

// buy pays for a URL and prints the answer.
func buy(client *x402test.Client, url string) {
	answer, _, err := client.Buy(context.Background(), url)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(answer.Status, string(answer.Body))
}

// A handler sells for a cent. The client asks for the price, signs a payment, and sends it
// twice, as a client does when the first answer was lost. The client is charged once.
func Example() {
	seller := newSeller()
	weather := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Println("the handler runs")
		_, _ = fmt.Fprintf(w, "fair in %s", r.FormValue("city"))
	})
	mux := http.NewServeMux()
	mux.Handle("GET /weather", seller.Sell("0.01", weather))
	shop := httptest.NewServer(mux)
	defer shop.Close()

	client := newClient()
	url := shop.URL + "/weather?city=Oslo"
	signature, err := client.Sign(context.Background(), url)
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 2 {
		answer, err := client.Get(context.Background(), url, signature)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(answer.Status, string(answer.Body))
	}
	// Output:
	// the handler runs
	// 200 fair in Oslo
	// 200 fair in Oslo
}

// A handler learns who has paid. It also learns the name of the purchase, which it can use in
// its calls to other services.
func ExampleSeller_Sell() {
	seller := newSeller()
	report := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sale, _ := x402.SaleOf(r.Context())
		fmt.Println("paid in atomic units:", sale.Amount, "length of the name:", len(sale.Purchase), "again:", sale.Repeat)
		_, _ = io.WriteString(w, "the report")
	})
	shop := httptest.NewServer(seller.Sell("5", report, x402http.Named("report")))
	defer shop.Close()

	buy(newClient(), shop.URL)
	// Output:
	// paid in atomic units: 5000000 length of the name: 64 again: false
	// 200 the report
}

// The last ticket is sold once. Its buyer can get it again, and everybody else is refused
// without a charge.
func ExampleCheck() {
	tickets := 1
	soldOut := x402http.Check(func(w http.ResponseWriter, _ *http.Request) {
		if tickets == 0 {
			x402http.Refuse(w, http.StatusGone, "sold out")
		}
	})
	ticket := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		tickets--
		_, _ = io.WriteString(w, "row 7")
	})
	shop := httptest.NewServer(newSeller().Sell("20", ticket, soldOut, x402http.Named("ticket")))
	defer shop.Close()

	first := newClient()
	buy(first, shop.URL)
	buy(first, shop.URL)
	buy(newClient(), shop.URL)
	// Output:
	// 200 row 7
	// 200 row 7
	// 410 sold out
}

// The handler of a slow job answers 202 until the job is done. Owed turns this into a 503 with
// the handler's text. When the job is done, the same client gets the result without another
// charge.
func ExampleOwed() {
	done := false
	job := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if done {
			_, _ = io.WriteString(w, "the result")
			return
		}
		w.Header().Set("Retry-After", "20") // when the client should ask again
		w.WriteHeader(http.StatusAccepted)
		_, _ = io.WriteString(w, "still running")
		done = true
	})
	var later atomic.Int64 // how many seconds the seller's clock is ahead, so that the example need not wait
	seller := newSellerAt(func() time.Time { return time.Now().Add(time.Duration(later.Load()) * time.Second) })
	shop := httptest.NewServer(seller.Sell("0.10", job, x402http.Owed(http.StatusAccepted), x402http.Named("job")))
	defer shop.Close()

	client := newClient()
	buy(client, shop.URL)
	later.Add(20)
	buy(client, shop.URL)
	// Output:
	// 503 still running
	// 200 the result
}

// The body of a POST is part of the purchase: a client that sends the same body twice is
// charged once.
func ExamplePost() {
	summary := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		fmt.Println("the handler runs")
		_, _ = fmt.Fprintf(w, "%d words", len(bytes.Fields(text)))
	})
	mux := http.NewServeMux()
	newSeller().Handle(mux, "POST /summary", "0.02", summary, x402http.Post(1<<20))
	shop := httptest.NewServer(mux)
	defer shop.Close()

	client, ctx, url := newClient(), context.Background(), shop.URL+"/summary"
	text := []byte("To be, or not to be")
	for range 2 {
		asked, err := client.Post(ctx, url, "text/plain", text, "")
		if err != nil {
			fmt.Println(err)
			return
		}
		offer, err := asked.Required()
		if err != nil {
			fmt.Println(err)
			return
		}
		signature, err := client.Wallet.Pay(offer, time.Now())
		if err != nil {
			fmt.Println(err)
			return
		}
		answer, err := client.Post(ctx, url, "text/plain", text, signature)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(answer.Status, string(answer.Body))
	}
	// Output:
	// the handler runs
	// 200 6 words
	// 200 6 words
}

// An endpoint is sold as a tool. The argument of a call replaces the wildcard in the path.
func ExampleSeller_MCP() {
	seller, mux := newSeller(), http.NewServeMux()
	weather := seller.Sell("0.01", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(w, "fair in %s", r.PathValue("city"))
	}))
	mux.Handle("GET /weather/{city}", weather)
	mux.Handle("POST /mcp", seller.MCP("weather", "1.0", mux, x402http.Tool{
		Endpoint: weather, Path: "/weather/{city}", Name: "weather", Description: "The weather of a city.",
		Params: []x402http.Param{{Name: "city", Description: "Name of the city.", Required: true}},
	}))
	shop := httptest.NewServer(mux)
	defer shop.Close()

	client, ctx, args := newClient(), context.Background(), map[string]any{"city": "Oslo"}
	signature, err := mcptest.SignCall(ctx, client, shop.URL+"/mcp", "weather", args)
	if err != nil {
		fmt.Println(err)
		return
	}
	result, err := mcptest.Call(ctx, client, shop.URL+"/mcp", "weather", args, signature, "")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(result.Text())
	// Output:
	// fair in Oslo
}

// Reconcile finds the payments that requests left undecided or unanswered. Here an answer is
// still owed.
func ExampleSeller_Reconcile() {
	seller := newSeller()
	shop := httptest.NewServer(seller.Sell("0.01", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "closed today", http.StatusServiceUnavailable)
	}), x402http.Named("weather")))
	defer shop.Close()
	buy(newClient(), shop.URL)

	found, err := seller.Reconcile(context.Background())
	fmt.Println("owed:", found.Owed, "in doubt:", found.Open, err)
	// Output:
	// 503 closed today
	//
	// owed: 1 in doubt: 0 <nil>
}

// A test of a handler can pay with play money.
func Example_testOfYourHandler() {
	// In a real test this is the program's own handler, sold by a seller like this one.
	handler := newSeller().Sell("0.01", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.FormValue("city"))
	}), x402http.Named("weather"))

	shop := httptest.NewServer(handler)
	defer shop.Close()
	client := newClient()
	unpaid, err := client.Get(context.Background(), shop.URL+"?city=Oslo", "")
	fmt.Println(unpaid.Status, err)
	paid, _, err := client.Buy(context.Background(), shop.URL+"?city=Oslo")
	fmt.Println(paid.Status, string(paid.Body), err)
	// Output:
	// 402 <nil>
	// 200 Oslo <nil>
}
