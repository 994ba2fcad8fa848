package e2e

import (
	"context"
	"maps"
	"net/http"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/hostfacts/hostfacts/infra/local/lambdahost"
	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/dynamo"
)

const (
	// gatewayDomain is the name that the gateway calls the service by.
	gatewayDomain = "e2e.execute-api.us-east-1.amazonaws.com"
	// dnsFunction is the name of the function of DNS lookups in the template.
	dnsFunction = "DnsFunction"
)

// openFunctions runs the built functions as the template deploys them, on the setup's table,
// behind a gateway. They can be killed: the host starts another process for the next request.
// configure may change the host; nil does not, and then no invocation may fail.
func openFunctions(tb testing.TB, l *lab, s setup, configure func(*lambdahost.Config)) *deployment {
	log := new(testbed.Output)
	d := &deployment{origin: "https://" + gatewayDomain, log: log.String}
	tb.Cleanup(func() { l.checkLog(tb, log.String()) }) // when the host is closed
	env := maps.Clone(s.more)
	env["AWS_ENDPOINT_URL_DYNAMODB"] = s.endpoint
	d.host, d.base = testbed.Deployment{
		Functions: testbed.Functions(tb), Sound: configure == nil, Environment: env,
		Parameters: map[string]string{
			"Ledger": s.table, "LogLevel": "debug", "FacilitatorUrl": s.facilitator, "FacilitatorToken": s.token,
			"DnsResolvers": s.resolvers, "ReceiptKey": receiptKey, "ReceiptPublicKeys": receiptPublicKey,
		},
		Configure: func(c *lambdahost.Config) {
			c.Domain, c.Logs = gatewayDomain, log
			if configure != nil {
				configure(c)
			}
		},
	}.Open(tb)
	d.kill = func() { d.host.Kill(dnsFunction) }
	d.revive, d.dead = func() *deployment { return d }, &want{kind: fromGateway, status: http.StatusInternalServerError}
	return d
}

// openLambda is openFunctions over a new table that they reach through a
// proxy. No invocation may fail.
func openLambda(tb testing.TB, l *lab, db testbed.Dynamo, s setup) *deployment {
	through := newProxy(tb, db.URL)
	s.table, s.endpoint = db.Table(tb), "http://"+through.addr
	d := openFunctions(tb, l, s, nil)
	d.cut, d.mend = through.cut, through.mend
	client := dynamo.NewClient(db.Config())
	d.plant = func(ctx context.Context, key string) error {
		_, err := client.PutItem(ctx, &dynamodb.PutItemInput{TableName: &s.table, Item: map[string]types.AttributeValue{
			dynamo.AttrKey:     &types.AttributeValueMemberS{Value: key},
			dynamo.AttrVersion: &types.AttributeValueMemberN{Value: "1"},
			dynamo.AttrState:   &types.AttributeValueMemberS{Value: "paid twice"},
		}})
		return err
	}
	return d
}
