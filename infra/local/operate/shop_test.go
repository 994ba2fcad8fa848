package main

import (
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/file"
	"github.com/hostfacts/hostfacts/pkg/x402/x402http"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// TestLedgerOfAnotherShop checks that the commands work on the ledger of another shop, even if its
// prices are lower than all prices of this service.
func TestLedgerOfAnotherShop(t *testing.T) {
	t.Parallel()
	noon, payee := time.Date(2100, 11, 20, 12, 0, 0, 0, time.UTC), testbed.Account(1)
	clock := func() time.Time { return noon }
	money, err := x402test.NewFacilitator(x402test.FacilitatorConfig{Terms: testbed.LocalTerms(t), Now: clock})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "shop.db")
	store, err := file.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	config := x402http.Config{PayTo: payee, Facilitator: testbed.Serve(t, money), Ledger: store, Evidence: money.Evidence(), Origin: "http://127.0.0.1:8080"}
	config.Log, config.Now = slog.New(slog.DiscardHandler), clock
	seller, err := x402http.New(config)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	seller.Handle(mux, "GET /weather", "0.0004", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("city") == "Atlantis" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	shop, client := testbed.Serve(t, mux), testbed.NewClient(t, http.DefaultClient)
	client.Now = clock
	for city, status := range map[string]int{"Oslo": http.StatusOK, "Atlantis": http.StatusServiceUnavailable} {
		if reply, _, err := client.Buy(t.Context(), shop+"/weather?city="+city); err != nil || reply.Status != status {
			t.Fatalf("%s: %d %s, %v", city, reply.Status, reply.Body, err)
		}
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	sold := money.Transfers()
	stray := ledger.Key("eip155:8453", asset, strings.ToLower(payer), "0x"+strings.Repeat("5", 64)) // the key of a payment that came without a request
	moved, ahead := sold, time.Minute                                                               // the chain's clock is a minute ahead of the shop's, so all blocks are safe
	node := testbed.Serve(t, testbed.PlayNode{
		ChainID: 8453, Now: func() time.Time { return noon.Add(ahead) }, Safe: 30 * time.Second,
		Moved: func() []x402test.Transfer { return moved },
	})
	env := map[string]string{"LEDGER_FILE": path, "PAY_TO": payee, "RPC_URL": node, "LOWEST_PRICE": "400"}
	who, books := client.Wallet.Address().Checksum(), "books 2100-11-20"
	for _, c := range []struct {
		line      string
		code      int
		wantParts []string
	}{
		{"owed", 0, []string{"GET http://127.0.0.1:8080/weather?city=Atlantis", "1 owed in " + path + ", 0 of them for more than an hour, refunds due: 0, in doubt: 0"}},
		{"payer " + who, 0, []string{who + " has paid 2 times ($0.0008), got 1 answer (1 with 200), and is owed 1: GET http://127.0.0.1:8080/weather?city=Atlantis;"}},
		{"reconcile", 0, []string{"received   2 transfers since the last run\nowed       1"}}, // the first run counts earlier transfers, but only those of payments on record
		{books, exitDiffers, []string{"/weather", "transfer without record", "received                           3", "; 1 difference\n"}},
		{"reconcile", 0, []string{"1 without a request: a refund is due"}},
		{"refund " + stray, 0, []string{"a refund has begun: the payer can no longer get the answer\namount   0.0004 USDC (400 atomic units)"}},
		{books, 0, []string{"1 answer sold for $0.0004, $0.0012 received in 3 payments; no differences\n"}},
	} {
		out, notes := operateAt(t, clock, c.code, env, strings.Fields(c.line)...)
		checkContains(t, out+notes, c.wantParts...)
		if c.line == "reconcile" && len(moved) == len(sold) {
			ahead = 3 * time.Minute
			moved = append(moved, x402test.Transfer{Key: stray, Transaction: txOf(1), Payee: payee, Value: "400", At: noon.Add(2 * time.Minute)})
		}
	}
}
