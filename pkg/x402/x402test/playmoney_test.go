package x402test_test

import (
	"crypto/rand"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
	"github.com/hostfacts/hostfacts/pkg/x402/x402http"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

const payee = "0x70997970C51812dc3A010C7d01b50e0d17dc79C8"

// TestPlayMoney buys the same thing twice in a row from a seller with play money. Both
// requests must get the answer, but the seller's handler must run only once. Reconciling must
// then find no answer that is still owed.
func TestPlayMoney(t *testing.T) {
	t.Parallel()
	config := x402http.Config{PayTo: payee, Ledger: new(ledgertest.Memory), Origin: "http://127.0.0.1:8080", Log: slog.New(slog.DiscardHandler)}
	config.Settler, config.Evidence = x402test.PlayMoney(payee)
	seller, err := x402http.New(config)
	if err != nil {
		t.Fatal(err)
	}
	runs := 0
	shop := httptest.NewServer(seller.Sell("0.01", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		runs++
		_, _ = fmt.Fprint(w, "fair")
	})))
	defer shop.Close()
	wallet, err := x402test.NewWallet(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	client := &x402test.Client{HTTP: shop.Client(), Wallet: wallet, Now: time.Now}
	for range 2 {
		if r, _, err := client.Buy(t.Context(), shop.URL); err != nil || r.Status != http.StatusOK || string(r.Body) != "fair" {
			t.Fatalf("%d %s %v", r.Status, r.Body, err)
		}
	}
	found, err := seller.Reconcile(t.Context())
	if err != nil || found.Owed != 0 || runs != 1 {
		t.Errorf("%+v, %v, %d runs", found, err, runs)
	}
}
