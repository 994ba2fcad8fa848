// Command function is an AWS Lambda function behind an API Gateway HTTP API. It sells the
// weather. It reads these environment variables: LEDGER_TABLE is the name of the DynamoDB
// table with the ledger. FACILITATOR is the URL of the facilitator that settles payments.
// PAY_TO is the account that is paid. NODE is the URL of a node of Base that replaces the
// public one. The public origin comes from the gateway. If a schedule invokes the function
// with {"reconcile":true}, the function finds out what became of payments that are in doubt.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"os"

	"github.com/akrylysov/algnhsa"
	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-sdk-go-v2/config"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/chain"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/dynamo"
	"github.com/hostfacts/hostfacts/pkg/x402/x402http"
)

func main() {
	aws, err := config.LoadDefaultConfig(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	table, err := dynamo.Open(context.Background(), aws, os.Getenv("LEDGER_TABLE"))
	if err != nil {
		log.Fatal(err)
	}
	shop := x402http.Config{
		PayTo: os.Getenv("PAY_TO"), Facilitator: os.Getenv("FACILITATOR"), Ledger: table, Limits: table,
		OriginOf: origin, Name: "Weather",
	}
	if node := os.Getenv("NODE"); node != "" {
		usdc := x402.USDC()
		if shop.Evidence, err = chain.New(chain.Config{URLs: []string{node}, Network: usdc.Network, Asset: usdc.Asset}); err != nil {
			log.Fatal(err)
		}
	}
	seller, err := x402http.New(shop)
	if err != nil {
		log.Fatal(err)
	}
	mux := http.NewServeMux()
	seller.Handle(mux, "GET /weather", "0.01", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"city":%q,"weather":"fair"}`, r.URL.Query().Get("city"))
	}))
	requests := algnhsa.New(mux, nil)
	lambda.Start(func(ctx context.Context, event json.RawMessage) (any, error) {
		var job struct{ Reconcile bool }
		if json.Unmarshal(event, &job) == nil && job.Reconcile {
			return seller.Reconcile(ctx)
		}
		reply, err := requests.Invoke(ctx, event)
		return json.RawMessage(reply), err
	})
}

// origin returns the public origin, from the domain name that the gateway reports.
func origin(r *http.Request) string {
	event, _ := algnhsa.APIGatewayV2RequestFromContext(r.Context())
	return "https://" + event.RequestContext.DomainName
}
