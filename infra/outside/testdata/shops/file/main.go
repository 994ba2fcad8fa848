package main

import (
	"log"
	"net/http"
	"os"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger/file"
	"github.com/hostfacts/hostfacts/pkg/x402/x402http"
)

func main() {
	ledger, err := file.Open("ledger.db")
	if err != nil {
		log.Fatal(err)
	}
	seller, err := x402http.New(x402http.Config{
		PayTo: os.Getenv("PAY_TO"), Facilitator: os.Getenv("FACILITATOR"), Origin: "http://127.0.0.1:8080", Ledger: ledger,
	})
	if err != nil {
		log.Fatal(err)
	}
	http.Handle("GET /weather", seller.Sell("0.01", http.NotFoundHandler()))
	log.Fatal(http.ListenAndServe("127.0.0.1:8080", nil))
}
