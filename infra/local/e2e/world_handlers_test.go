package e2e

import (
	"context"
	"log/slog"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/boot"
	"github.com/hostfacts/hostfacts/pkg/operations"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/dynamo"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
	"github.com/hostfacts/hostfacts/pkg/x402/limit"
)

type controls struct {
	memory *ledgertest.Memory
	store  *ledgertest.Faulty
	down   atomic.Bool
	ahead  atomic.Int64 // of the service's clock, nanoseconds
	log    testbed.Output
}

func newControls(tb testing.TB) *controls {
	c := &controls{memory: &ledgertest.Memory{}}
	c.store = ledgertest.NewFaulty(tb, c.memory, func(ledgertest.Op, int, ledger.Record) ledgertest.Fault {
		if c.down.Load() {
			return ledgertest.FailBefore
		}
		return ledgertest.None
	})
	return c
}

func (c *controls) inMemory() boot.Stores {
	return boot.Stores{Ledger: c.store, Limits: &limit.Memory{}}
}

// patientCall bounds a call of the store, and patientAttempt an attempt at it. They are longer
// than those in use, of which a call whose first reply is late has half a second left for all
// that follows: a machine that is busy with something else takes that for nothing.
const patientCall, patientAttempt = 4 * dynamo.DefaultTimeout, 3 * dynamo.DefaultAttemptTimeout

func onTable(db testbed.Dynamo, table string) boot.Stores {
	config := db.ClientConfig()
	config.AttemptTimeout = patientAttempt
	client := dynamo.NewClient(config)
	return boot.Stores{
		Ledger: dynamo.NewLedger(dynamo.Config{API: client, Table: table, Timeout: patientCall}),
		Limits: dynamo.NewLimits(dynamo.Config{API: client, Table: table, Timeout: patientCall}),
	}
}

// wire makes the parts of an in-process service, as package boot makes them, over
// stores and a clock that can be played with.
func (c *controls) wire(s setup, origin string, stores boot.Stores) boot.Parts {
	env := s.environment()
	env["BASE_URL"] = origin
	config := must(boot.ReadLocal(func(name string) string { return env[name] }))
	log := slog.New(slog.NewJSONHandler(&c.log, &slog.HandlerOptions{Level: config.LogLevel}))
	return must(config.Parts(stores, log, func() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }))
}

// serve runs every function in this process, on one mux, until the test ends.
func (c *controls) serve(tb testing.TB, l *lab, s setup, stores boot.Stores) *deployment {
	server := httptest.NewUnstartedServer(nil)
	server.Config.Handler = must(operations.Handler(c.wire(s, "http://"+server.Listener.Addr().String(), stores)))
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

func openHandlers(tb testing.TB, l *lab, s setup) *deployment {
	c := newControls(tb)
	d := c.serve(tb, l, s, c.inMemory())
	d.cut, d.mend = func() { c.down.Store(true) }, func() { c.down.Store(false) }
	d.plant = func(ctx context.Context, key string) error {
		return c.memory.Plant(ctx, key, []byte(`{"key":"`+key+`","state":"paid twice"}`))
	}
	return d
}
