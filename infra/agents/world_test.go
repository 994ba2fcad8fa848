package agents

import (
	"io"
	"os"
	"testing"

	"github.com/hostfacts/hostfacts/infra/dynamotest"
	"github.com/hostfacts/hostfacts/infra/local/lambdahost"
	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/catalog"
)

func TestMain(m *testing.M) { os.Exit(testbed.Main(m)) }

// world is a running service and the books of its play-money facilitator.
type world struct {
	tools string // the URL of its tools
	books *testbed.Facilitator
}

// worlds are the ways to run the service.
func worlds() map[string]func(*testing.T) world {
	return map[string]func(*testing.T) world{"local": localWorld, "lambda": lambdaWorld}
}

// resolver answers every question about an address with one of documentation.
func resolver(t *testing.T) string {
	t.Helper()
	return testbed.Resolver(t, testbed.ReadZone(t, "*. 30 A 192.0.2.77"))
}

// localWorld runs the built local runner.
func localWorld(t *testing.T) world {
	t.Helper()
	books := testbed.StartFacilitator(t, nil)
	service := testbed.Start(t, testbed.Local(testbed.Program(t, testbed.LocalRunner), t.TempDir(),
		map[string]string{"FACILITATOR_URL": books.URL, "DNS_RESOLVERS": resolver(t)}))
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the service said:\n%s", &service.Log)
		}
	})
	return world{tools: service.URL + catalog.PathMCP, books: books}
}

// lambdaWorld runs the built functions of the template behind a gateway.
func lambdaWorld(t *testing.T) world {
	t.Helper()
	books, db := testbed.StartFacilitator(t, nil), dynamotest.Start(t)
	extra := testbed.Alone()
	extra["AWS_ENDPOINT_URL_DYNAMODB"] = db.URL
	_, url := testbed.Deployment{
		Functions:   testbed.Functions(t),
		Parameters:  map[string]string{"Ledger": db.Table(t), "FacilitatorUrl": books.URL, "DnsResolvers": resolver(t)},
		Environment: extra,
		Configure: func(c *lambdahost.Config) {
			c.Logs, c.Domain = io.Discard, "agents.execute-api.us-east-1.amazonaws.com"
		},
	}.Open(t)
	return world{tools: url + catalog.PathMCP, books: books}
}
