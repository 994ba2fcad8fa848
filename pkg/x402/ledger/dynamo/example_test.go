package dynamo_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambdaurl"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
	"github.com/hostfacts/hostfacts/pkg/x402/x402http"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// This shop is a Lambda function with a function URL. Its main function opens a table as the
// ledger. The table also counts the limits, for all execution environments together:
//
//	table, err := dynamo.Open(ctx, aws, os.Getenv("LEDGER_TABLE"))
//	config.Ledger, config.Limits = table, table
//
// The last line of main is lambdaurl.Start(mux). Every five minutes, a schedule starts another
// entry point of the function, which calls Seller.Reconcile. A function that is frozen between
// two requests cannot run ReconcileEvery.
func Example_lambda() {
	config := x402http.Config{
		PayTo:  "0x70997970C51812dc3A010C7d01b50e0d17dc79C8",
		Ledger: new(ledgertest.Memory),
		OriginOf: func(r *http.Request) string { // the platform says what the origin is, and not the client
			event, _ := lambdaurl.RequestFromContext(r.Context())
			return "https://" + event.RequestContext.DomainName
		},
		Log: slog.New(slog.DiscardHandler),
	}
	config.Settler, config.Evidence = x402test.PlayMoney(config.PayTo) // play money; without this line, Config.Facilitator settles real payments
	seller, err := x402http.New(config)
	if err != nil {
		fmt.Println(err)
		return
	}
	mux := http.NewServeMux()
	mux.Handle("GET /weather", seller.Sell("0.01", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprint(w, "fair")
	})))

	event := &events.LambdaFunctionURLRequest{RawPath: "/weather"}
	event.RequestContext.DomainName = "abc.lambda-url.us-east-1.on.aws"
	event.RequestContext.HTTP.Method = http.MethodGet
	answer, err := lambdaurl.Wrap(mux)(context.Background(), event)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(answer.StatusCode)
	// Output:
	// 402
}
