package e2e

import (
	"context"
	"maps"
	"net"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/dynamotest"
	"github.com/hostfacts/hostfacts/infra/local/lambdahost"
	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/dynamo"
)

// capability is something that can be done to a world, or that a world does.
type capability uint

const (
	cutLedger    capability = 1 << iota // the store can be made unreachable
	plantRecord                         // a corrupt record can be put into the store
	noURL                               // it can run without a FACILITATOR_URL
	largeHeaders                        // requests with large headers reach the code
	gateway                             // a gateway in front: its limits, repeated headers joined
)

// has says whether a world has every capability of a set.
func (c capability) has(needs capability) bool { return c&needs == needs }

// world is one way to run the service.
type world struct {
	name string
	can  capability
	// start gets the world going and returns what opens deployments in it; it
	// skips the test on a machine that cannot run the world.
	start func(testing.TB, *lab) opener
}

// opener runs the service until the test ends.
type opener func(testing.TB, setup) *deployment

func worlds() []world {
	return []world{
		{"handlers", cutLedger | plantRecord | noURL | largeHeaders, func(_ testing.TB, l *lab) opener {
			return func(tb testing.TB, s setup) *deployment { return openHandlers(tb, l, s) }
		}},
		local(),
		{"lambda", cutLedger | plantRecord | noURL | gateway, func(tb testing.TB, l *lab) opener {
			verifyOnly(tb, "needs the built functions, and Node for the DynamoDB server")
			db := dynamotest.Start(tb)
			testbed.Functions(tb)
			return func(tb testing.TB, s setup) *deployment { return openLambda(tb, l, db, s) }
		}},
	}
}

func local() world {
	return world{"local", largeHeaders, func(tb testing.TB, l *lab) opener {
		localBinary(tb)
		return func(tb testing.TB, s setup) *deployment { return openLocal(tb, l, s) }
	}}
}

// setup is the configuration of a deployment that a case may change.
type setup struct {
	facilitator string // URL
	token       string // bearer
	resolvers   string
	rate        string // requests a minute and client; empty is no limit
	single      string // paid lookups of one tool at once; empty is the default
	crowd       bool   // a local runner without the race detector: see plainBinary
	// table is what the built functions have, and endpoint the URL that they reach
	// its server at.
	table, endpoint string
	// more are other variables, or other values of the same.
	more map[string]string
}

func (l *lab) setup() setup { return setup{facilitator: l.url, resolvers: l.dns.addr} }

// isolated are the variables that every world has: no view of a real chain, no
// registry, and no rate limit unless a case wants one, because all cases share
// one address.
func (s setup) isolated() map[string]string {
	env := testbed.Alone()
	if s.rate != "" {
		env["RATE_LIMIT_PER_MINUTE"] = s.rate
	}
	if s.single != "" {
		env["CONCURRENCY_SINGLE"] = s.single
	}
	return env
}

// environment are the variables of a world without a template.
func (s setup) environment() map[string]string {
	env := s.isolated()
	env["FACILITATOR_URL"], env["FACILITATOR_TOKEN"] = s.facilitator, s.token
	env["DNS_RESOLVERS"], env["LOG_LEVEL"] = s.resolvers, "debug"
	env["RECEIPT_KEY"], env["RECEIPT_PUBLIC_KEYS"] = receiptKey, receiptPublicKey
	maps.Copy(env, s.more)
	return env
}

// deployment is a running service. The functions are nil where the world lacks
// the capability.
type deployment struct {
	base   string // where it listens
	origin string // what it calls itself
	cut    func()
	mend   func()
	plant  func(ctx context.Context, key string) error
	// skip sets the service's clock forward.
	skip func(time.Duration)
	// slow says of an answer that it blames a store that is only slow.
	slow func(exchange) bool
	// log is what the service has said so far.
	log func() string

	host *lambdahost.Host // of the built functions
	// kill ends the process that has a request, and returns when it is gone;
	// revive is the service afterwards. dead is what the client of a killed
	// process gets: nil is no answer.
	kill   func()
	revive func() *deployment
	dead   *want
}

// tableStore is a ledger on a table of the server, with the patience of a test.
func tableStore(db dynamotest.Server, table string) *dynamo.Ledger {
	return dynamo.NewLedger(dynamo.Config{API: dynamo.NewClient(db.ClientConfig()), Table: table, Timeout: patience})
}

// closedPort is an address of 127.0.0.1 where nobody listens. A client of this
// process has the port until the test ends, so that nobody else gets it.
func closedPort(tb testing.TB) string {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { l.Close() })
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { c.Close() })
	return c.LocalAddr().String()
}
