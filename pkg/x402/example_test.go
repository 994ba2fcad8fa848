package x402_test

import (
	"crypto/rand"
	"fmt"
	"net/http"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// A seller offers something, a client signs a payment for it, and the seller reads the signed
// payment. Nothing is paid yet: it takes a Gate to settle the payment.
func ExampleDecodePayment() {
	terms := x402.USDC()
	terms.PayTo = "0x70997970C51812dc3A010C7d01b50e0d17dc79C8"
	required := x402.PaymentRequired{
		X402Version: x402.Version,
		Resource:    x402.Resource{URL: "https://shop.example/weather", MimeType: "text/plain"},
		Accepts:     []x402.Requirements{terms.Requirements("10000")},
	}
	wallet, err := x402test.NewWallet(rand.Reader)
	if err != nil {
		fmt.Println(err)
		return
	}
	header, err := wallet.Pay(required, time.Now()) // the value of PAYMENT-SIGNATURE
	if err != nil {
		fmt.Println(err)
		return
	}
	payment, err := x402.DecodePayment(header)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("from the wallet:", payment.From == wallet.Address())
	fmt.Println("atomic units:", payment.Value)
	// Output:
	// from the wallet: true
	// atomic units: 10000
}

// A handler learns from the context of its request who has paid. If the handler is called
// without a payment, as in a test of the handler alone, there is no sale.
func ExampleSaleOf() {
	handler := func(w http.ResponseWriter, r *http.Request) {
		sale, paid := x402.SaleOf(r.Context())
		if !paid {
			http.Error(w, "this handler is for sale", http.StatusInternalServerError)
			return
		}
		_, _ = fmt.Fprintf(w, "for %s, purchase %s", sale.Payer, sale.Purchase)
	}
	http.HandleFunc("GET /report", handler)
}

// Network describes a network: its name, the token in which payments are made, the site where
// a transaction can be looked up, and whether its money is only for tests.
func ExampleNetwork() {
	network := x402.Network(x402.BaseSepolia)
	fmt.Println(network.Name, network.USDC.Asset)
	fmt.Println(network.Explorer, "test money:", network.Test)
	// Output:
	// Base Sepolia 0x036CbD53842c5426634e7929541eC2318f3dCF7e
	// https://sepolia.basescan.org test money: true
}
