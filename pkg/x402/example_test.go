package x402_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"time"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/facilitator"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

func exampleTerms() x402.Terms {
	return x402.Terms{
		Network: "eip155:8453", Asset: "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913",
		PayTo: "0x70997970C51812dc3A010C7d01b50e0d17dc79C8", Name: "USD Coin", Version: "2",
	}
}

func exampleOffer() (*x402.Offer, error) {
	return x402.NewOffer(x402.PaymentRequired{
		X402Version: x402.Version, Error: "Payment required.",
		Resource: x402.Resource{URL: "https://api.example.com/fact", Description: "One fact", MimeType: "application/json"},
		Accepts:  []x402.Requirements{exampleTerms().Requirements("5000")}, // $0.005
	})
}

// A Gate over a ledger in memory and a facilitator on loopback that settles play
// money. The payer sends one signature twice: money moves once, the job runs once,
// and both requests get the answer.
func ExampleGate_Serve() {
	play, err := x402test.NewFacilitator(x402test.FacilitatorConfig{Terms: exampleTerms(), Now: time.Now})
	if err != nil {
		fmt.Println(err)
		return
	}
	server := httptest.NewServer(play)
	defer server.Close()
	client, err := facilitator.New(facilitator.Config{URL: server.URL})
	if err != nil {
		fmt.Println(err)
		return
	}
	gate := x402.NewGate(x402.GateConfig{
		Ledger:      ledger.New(new(ledgertest.Memory), time.Now, rand.Text),
		Facilitator: client, Now: time.Now, Log: slog.New(slog.DiscardHandler),
	})
	offer, err := exampleOffer()
	if err != nil {
		fmt.Println(err)
		return
	}

	// The payer gets the offer with a retry token, signs it and echoes it.
	token, err := x402.NewToken(rand.Reader)
	if err != nil {
		fmt.Println(err)
		return
	}
	wallet, err := x402test.NewWallet(rand.Reader)
	if err != nil {
		fmt.Println(err)
		return
	}
	signature, err := wallet.Pay(offer.Required("").WithToken(token), time.Now())
	if err != nil {
		fmt.Println(err)
		return
	}

	for range 2 {
		out := gate.Serve(context.Background(), x402.Request{
			Signature: signature, Offer: offer,
			Arrived: time.Now(), Deadline: time.Now().Add(27 * time.Second),
			Prepare: func() (x402.Job, error) {
				return x402.Job{
					Fingerprint: "GET /fact?", Budget: time.Second, Timeout: fault.DNSTimeout,
					Run: func(context.Context) (x402.Reply, error) {
						fmt.Println("the job runs")
						return x402.Reply{Body: []byte(`{"fact":42}`)}, nil
					},
				}, nil
			},
			Error: func(f *fault.Error, _ x402.Standing) []byte { return []byte(f.Public()) },
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

// The header that a 402 carries, as a client reads it.
func ExampleOffer_Challenge() {
	offer, err := exampleOffer()
	if err != nil {
		fmt.Println(err)
		return
	}
	header, err := offer.Challenge("authorization already used", "AAAAAAAAAAAAAAAAAAAAAA")
	if err != nil {
		fmt.Println(err)
		return
	}
	reply := x402test.Reply{Header: map[string][]string{"Payment-Required": {header}}}
	required, err := reply.Required()
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(required.Error)
	fmt.Println(required.Accepts[0].Amount, "atomic units to", required.Accepts[0].PayTo)
	fmt.Println(string(required.Extensions[x402.ExtensionToken][:40]))
	// Output:
	// authorization already used
	// 5000 atomic units to 0x70997970C51812dc3A010C7d01b50e0d17dc79C8
	// {"info":{"token":"AAAAAAAAAAAAAAAAAAAAAA
}

// The error of a header that is not a payment may be shown to the client.
func ExampleDecodePayment() {
	for _, header := range []string{"%", "e30=", "eyJ4NDAyVmVyc2lvbiI6MX0="} {
		_, err := x402.DecodePayment(header)
		fmt.Println(err)
	}
	// Output:
	// PAYMENT-SIGNATURE is not base64
	// PAYMENT-SIGNATURE: x402Version must be a number
	// PAYMENT-SIGNATURE: x402Version is "1", this server speaks 2
}
