// Command late is a Lambda function that sells a handler. On its first run for a payment, the
// handler waits until its time is over, calls the URL in the environment variable TELL, and
// then never ends. On the next run for that payment, the handler answers. The variable AHEAD
// is how far the function's clock is ahead of the machine's clock. If the function is invoked
// with {"reconcile":true}, it runs Reconcile and reports what is owed.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"os"
	"time"

	"github.com/akrylysov/algnhsa"
	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-sdk-go-v2/config"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/dynamo"
	"github.com/hostfacts/hostfacts/pkg/x402/x402http"
)

func main() {
	aws := must(config.LoadDefaultConfig(context.Background()))
	ahead := must(time.ParseDuration(cmp.Or(os.Getenv("AHEAD"), "0s")))
	seller := must(x402http.New(x402http.Config{
		PayTo: os.Getenv("PAY_TO"), Facilitator: os.Getenv("FACILITATOR"), NoNode: true, Origin: os.Getenv("ORIGIN"),
		Ledger: must(dynamo.Open(context.Background(), aws, os.Getenv("LEDGER_TABLE"))), Budget: 100 * time.Millisecond,
		Now: func() time.Time { return time.Now().Add(ahead) },
	}))
	mux := http.NewServeMux()
	seller.Handle(mux, "GET /weather", "0.01", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if sale, _ := x402.SaleOf(r.Context()); !sale.Repeat {
			<-r.Context().Done()
			_ = must(http.Get(os.Getenv("TELL"))).Body.Close()
			select {} // until the process ends
		}
		fmt.Fprintf(w, "fair in %s", r.URL.Query().Get("city"))
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

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}
