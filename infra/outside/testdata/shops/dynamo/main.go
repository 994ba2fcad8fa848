package main

import (
	"context"
	"log"
	"net/http"
	"os"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger/dynamo"
	"github.com/hostfacts/hostfacts/pkg/x402/x402http"
)

func main() {
	ledger, err := dynamo.Open(context.Background(), aws.Config{Region: "us-east-1"}, "ledger")
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
