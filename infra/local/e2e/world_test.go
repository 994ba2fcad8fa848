package e2e

import (
	"context"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/boot"
	"github.com/hostfacts/hostfacts/pkg/limit"
	"github.com/hostfacts/hostfacts/pkg/operations"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
)

// capability is something that can be done to a world, or that a world does.
type capability uint

const (
	cutLedger    capability = 1 << iota // the store can be made unreachable
	plantRecord                         // a corrupt record can be put into the store
	skipTime                            // the service's clock can be set forward
	noURL                               // it can run without a FACILITATOR_URL
	largeHeaders                        // requests with large headers reach the code
	gateway                             // a gateway in front: its limits, repeated headers joined
	anything     capability = 0
)

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
		{"handlers", cutLedger | plantRecord | skipTime | noURL | largeHeaders, startHandlers},
		local(),
		{"lambda", cutLedger | plantRecord | noURL | gateway, startLambda},
	}
}

func local() world { return world{"local", largeHeaders, startRunner} }

// has says whether a world has every capability of a set.
func (c capability) has(needs capability) bool { return c&needs == needs }

// setup is the configuration of a deployment that a case may change.
type setup struct {
	facilitator string // URL
	token       string // bearer
	resolvers   string
	rate        string // requests a minute and client; empty is no limit
	single      string // paid lookups of one tool at once; empty is the default
	crowd       bool   // a local runner without the race detector: see plainBinary
	// more are other variables, or other values of the same.
	more map[string]string
}

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

func (l *lab) setup() setup { return setup{facilitator: l.url, resolvers: l.dns.addr} }

// deployment is a running service. The functions are nil where the world lacks
// the capability.
type deployment struct {
	base   string // where it listens
	origin string // what it calls itself
	cut    func()
	mend   func()
	plant  func(ctx context.Context, key string) error
	skip   func(time.Duration)
	// stop keeps the service's clock where it is.
	stop func()
	// slow says of an answer that it blames a store that is only slow.
	slow func(exchange) bool
	seen requestIDs
	// log is what the service has said so far.
	log func() string
}

func startHandlers(_ testing.TB, l *lab) opener {
	return func(tb testing.TB, s setup) *deployment { return openHandlers(tb, l, s) }
}

// openHandlers runs the handlers in this process over a store in memory.
func openHandlers(tb testing.TB, l *lab, s setup) *deployment {
	tb.Helper()
	server := httptest.NewUnstartedServer(nil)
	controls := newControls(tb)
	server.Config.Handler = whole(tb, wire(tb, s, "http://"+server.Listener.Addr().String(), controls, controls.store))
	server.Start()
	var d *deployment
	tb.Cleanup(func() {
		server.Close()
		l.checkLog(tb, controls.log.String())
		d.seen.check(tb, controls.log.String())
	})
	d = &deployment{
		base: server.URL, origin: server.URL, log: controls.log.String,
		cut: func() { controls.down.Store(true) }, mend: func() { controls.down.Store(false) },
		plant: func(ctx context.Context, key string) error {
			return controls.memory.Plant(ctx, key, []byte(`{"key":"`+key+`","state":"paid twice"}`))
		},
		skip: func(d time.Duration) { controls.ahead.Add(int64(d)) },
		stop: func() { now := time.Now(); controls.stopped.Store(&now) },
	}
	return d
}

// controls are the handles of an in-process service.
type controls struct {
	memory *ledgertest.Memory
	store  *ledgertest.Faulty
	down   atomic.Bool
	ahead  atomic.Int64 // of the service's clock, nanoseconds
	log    testbed.Output
	// stopped is where the service's clock stands; nil when it goes.
	stopped atomic.Pointer[time.Time]
}

// newControls makes the store of an in-process service, and what breaks it.
func newControls(tb testing.TB) *controls {
	tb.Helper()
	c := &controls{memory: &ledgertest.Memory{}}
	c.store = ledgertest.NewFaulty(tb, c.memory, func(ledgertest.Op, int, ledger.Record) ledgertest.Fault {
		if c.down.Load() {
			return ledgertest.FailBefore
		}
		return ledgertest.None
	})
	return c
}

// now is the service's clock.
func (c *controls) now() time.Time {
	now := time.Now()
	if at := c.stopped.Load(); at != nil {
		now = *at
	}
	return now.Add(time.Duration(c.ahead.Load()))
}

// wire makes the parts of an in-process service, as package boot makes them, over
// a store and a clock that can be played with.
func wire(tb testing.TB, s setup, origin string, c *controls, store ledger.Store) boot.Parts {
	tb.Helper()
	env := s.environment()
	env["BASE_URL"] = origin
	config, err := boot.ReadLocal(func(name string) string { return env[name] })
	if err != nil {
		tb.Fatal(err)
	}
	log := slog.New(slog.NewJSONHandler(&c.log, &slog.HandlerOptions{Level: config.LogLevel}))
	parts, err := config.Parts(boot.Stores{Ledger: store, Limits: &limit.Memory{}}, log, c.now)
	if err != nil {
		tb.Fatal(err)
	}
	return parts
}

// whole is every function on one mux.
func whole(tb testing.TB, p boot.Parts) http.Handler {
	tb.Helper()
	h, err := operations.Handler(p)
	if err != nil {
		tb.Fatal(err)
	}
	return h
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
