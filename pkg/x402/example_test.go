package x402_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"time"

	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/facilitator"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// A Gate over a ledger in memory and a facilitator on loopback that settles play
// money. The payer sends one signature twice: money moves once, the job runs once,
// and both requests get the answer.
func ExampleGate_Serve() {
	terms := x402.Terms{
		Network: "eip155:8453", Asset: "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913",
		PayTo: "0x70997970C51812dc3A010C7d01b50e0d17dc79C8", Name: "USD Coin", Version: "2",
	}
	play := must(x402test.NewFacilitator(x402test.FacilitatorConfig{Terms: terms, Now: time.Now}))
	server := httptest.NewServer(play)
	defer server.Close()
	client := must(facilitator.New(facilitator.Config{URL: server.URL}))
	gate := &x402.Gate{
		Ledger:      ledger.New(new(ledgertest.Memory), time.Now, rand.Text),
		Facilitator: client, Now: time.Now, Log: slog.New(slog.DiscardHandler),
	}
	offer := must(x402.NewOffer(x402.PaymentRequired{
		X402Version: x402.Version, Error: "Payment required.",
		Resource: x402.Resource{URL: "https://api.example.com/fact", Description: "One fact", MimeType: "application/json"},
		Accepts:  []x402.Requirements{terms.Requirements("5000")}, // $0.005
	}))

	// The payer gets the offer with a retry token, signs it and echoes it.
	token := must(x402.NewToken(rand.Reader))
	wallet := must(x402test.NewWallet(rand.Reader))
	signature := must(wallet.Pay(offer.Required("").WithToken(token), time.Now()))

	for range 2 {
		out := gate.Serve(context.Background(), x402.Request{
			Signature: signature, Offer: offer,
			Arrived: time.Now(), Deadline: time.Now().Add(27 * time.Second),
			Prepare: func() (x402.Job, error) {
				return x402.Job{
					Fingerprint: "GET /fact?", Budget: time.Second, Timeout: lookup.Info(lookup.DNSTimeout),
					Run: func(context.Context) (x402.Reply, error) {
						fmt.Println("the job runs")
						return x402.Reply{Body: []byte(`{"fact":42}`)}, nil
					},
				}, nil
			},
			Error: func(f *fault.Error, _ x402.PaymentStatus) []byte { return []byte(f.Public()) },
		})
		fmt.Println(out.Status, string(out.Body), "replayed:", out.Replayed)
	}
	fmt.Println("transfers:", len(play.Transfers()))
	// Output:
	// the job runs
	// 200 {"fact":42} replayed: false
	// 200 {"fact":42} replayed: true
	// transfers: 1
}
