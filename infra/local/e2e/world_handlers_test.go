package e2e

import (
	"context"
	"log/slog"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/dynamotest"
	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/boot"
	"github.com/hostfacts/hostfacts/pkg/dynamo"
	"github.com/hostfacts/hostfacts/pkg/limit"
	"github.com/hostfacts/hostfacts/pkg/operations"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
)

// controls are the handles of a service in this process.
type controls struct {
	memory *ledgertest.Memory
	store  *ledgertest.Faulty
	down   atomic.Bool
	ahead  atomic.Int64 // of the service's clock, nanoseconds
	log    testbed.Output
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

// inMemory are the stores of a service that needs no server.
func (c *controls) inMemory() boot.Stores {
	return boot.Stores{Ledger: c.store, Limits: &limit.Memory{}}
}

// patientCall bounds a call of the store, and patientAttempt an attempt at it.
// They are longer than those in use, of which a call whose first reply is late
// has half a second left for all that follows: a machine that is busy with
// something else takes that for nothing.
const patientCall, patientAttempt = 4 * dynamo.DefaultTimeout, 3 * dynamo.DefaultAttemptTimeout

// onTable are the stores of a service on a table.
func onTable(db dynamotest.Server, table string) boot.Stores {
	config := db.ClientConfig()
	config.AttemptTimeout = patientAttempt
	client := dynamo.NewClient(config)
	return boot.Stores{
		Ledger: dynamo.NewLedger(dynamo.Config{API: client, Table: table, Timeout: patientCall}),
		Limits: dynamo.NewLimits(dynamo.Config{API: client, Table: table, Timeout: patientCall}),
	}
}

// now is the service's clock.
func (c *controls) now() time.Time {
	return time.Now().Add(time.Duration(c.ahead.Load()))
}

// wire makes the parts of an in-process service, as package boot makes them, over
// stores and a clock that can be played with.
func (c *controls) wire(tb testing.TB, s setup, origin string, stores boot.Stores) boot.Parts {
	tb.Helper()
	env := s.environment()
	env["BASE_URL"] = origin
	config, err := boot.ReadLocal(func(name string) string { return env[name] })
	if err != nil {
		tb.Fatal(err)
	}
	log := slog.New(slog.NewJSONHandler(&c.log, &slog.HandlerOptions{Level: config.LogLevel}))
	parts, err := config.Parts(stores, log, c.now)
	if err != nil {
		tb.Fatal(err)
	}
	return parts
}

// serve runs every function in this process, on one mux, until the test ends.
func (c *controls) serve(tb testing.TB, l *lab, s setup, stores boot.Stores) *deployment {
	tb.Helper()
	server := httptest.NewUnstartedServer(nil)
	h, err := operations.Handler(c.wire(tb, s, "http://"+server.Listener.Addr().String(), stores))
	if err != nil {
		tb.Fatal(err)
	}
	server.Config.Handler = h
	server.Start()
	d := &deployment{
		base: server.URL, origin: server.URL, log: c.log.String,
		skip: func(d time.Duration) { c.ahead.Add(int64(d)) },
	}
	tb.Cleanup(func() {
		server.Close()
		l.checkLog(tb, c.log.String())
	})
	return d
}

// openHandlers runs the handlers in this process over a store in memory.
func openHandlers(tb testing.TB, l *lab, s setup) *deployment {
	tb.Helper()
	c := newControls(tb)
	d := c.serve(tb, l, s, c.inMemory())
	d.cut, d.mend = func() { c.down.Store(true) }, func() { c.down.Store(false) }
	d.plant = func(ctx context.Context, key string) error {
		return c.memory.Plant(ctx, key, []byte(`{"key":"`+key+`","state":"paid twice"}`))
	}
	return d
}
