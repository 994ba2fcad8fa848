package e2e

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/dynamotest"
	"github.com/hostfacts/hostfacts/infra/local/lambdahost"
	"github.com/hostfacts/hostfacts/infra/testbed"
)

// freezer is one warm dns function behind the gateway. What it keeps
// connections to is reached over lines.
type freezer struct {
	lab               *lab
	d                 *deployment
	host              *lambdahost.Host
	table, settlement *line
	frozen            chan lambdahost.Process
}

func newFreezer(tb testing.TB) *freezer {
	tb.Helper()
	return newFreezerOn(tb, "none")
}

// newFreezerOn is newFreezer with a view of a chain.
func newFreezerOn(tb testing.TB, rpc string) *freezer {
	tb.Helper()
	db := dynamotest.Start(tb)
	f := &freezer{lab: newLab(tb), frozen: make(chan lambdahost.Process, 100)}
	f.table, f.settlement = newLine(tb, db.URL), newLine(tb, f.lab.url)
	s := f.lab.setup()
	s.facilitator = "http://" + f.settlement.addr
	config := lambdaConfig(tb, s, db.Table(tb), "http://"+f.table.addr)
	log := new(testbed.Output)
	config.Logs = log
	for i := range config.Functions {
		config.Functions[i].Env["RPC_URL"] = rpc
	}
	config.OnIdle = func(p lambdahost.Process) { f.frozen <- p }
	var err error
	if f.host, err = lambdahost.New(config); err != nil {
		tb.Fatal(err)
	}
	server := httptest.NewServer(f.host)
	f.d = &deployment{base: server.URL, origin: "https://" + gatewayDomain}
	tb.Cleanup(func() {
		server.Close()
		f.host.Close()
		f.lab.checkLog(tb, log.String())
	})
	return f
}

// quiet forgets what a play that failed has left behind.
func (f *freezer) quiet() {
	for {
		select {
		case <-f.frozen:
		default:
			return
		}
	}
}

// signed is a payment that is signed and not sent. The function is frozen when
// it returns.
func (f *freezer) signed(t testing.TB, name string) *run {
	t.Helper()
	r := &run{TB: t, lab: f.lab, d: f.d, client: newClient(), id: fmt.Sprint("frozen", caseIDs.Add(1), strings.ReplaceAll(name, " ", ""))}
	t.Cleanup(r.client.CloseIdleConnections)
	r.wallet, r.payer = f.lab.wallet(t)
	r.sign(r.fill(lookup("{healthy}", "A")), nil, nil)
	f.await(t)
	return r
}

// buy sends a payment: it is answered at once, by the same process. It returns
// how long that took.
func (f *freezer) buy(t testing.TB, r *run) time.Duration {
	t.Helper()
	begun := time.Now()
	e := r.send(r.path)
	took := time.Since(begun)
	r.check(e, result(r.fill(healthy().body)))
	if err := f.lab.books(r.payer, "5000", 1, 1); err != nil {
		t.Error(err)
	}
	is(t, "lookups", f.lab.dns.lookups(r.name), 1)
	f.await(t)
	is(t, "processes", f.host.Stats("DnsFunction").Spawned, 1)
	return took
}

// await waits until the function is frozen again.
func (f *freezer) await(t testing.TB) {
	t.Helper()
	select {
	case <-f.frozen:
	case <-time.After(patience):
		t.Fatal("the function was not frozen")
	}
}

// TestFreeze freezes a warm function, as Lambda does between invocations, and
// spoils its connections meanwhile. The next paid request is answered at once:
// none gets a 503 because its function has slept.
func TestFreeze(t *testing.T) {
	t.Parallel()
	verifyOnly(t, "needs the built functions, and Node for the DynamoDB server")
	f := newFreezer(t)
	for _, c := range []struct {
		name  string
		sleep time.Duration
		spoil func(*strand)
		// unnoticed: a connection that is dead and does not look it costs one
		// attempt's time.
		unnoticed bool
	}{
		{"nothing happens", 0, func(*strand) {}, false},
		{"peers close", 0, func(w *strand) { w.end(false) }, false},
		{"peers reset", 0, func(w *strand) { w.end(true) }, false},
		{"peers vanish", 0, (*strand).vanish, true},
		{"peers vanish during a long sleep", idleLimit, (*strand).vanish, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			fairly(t, func(tb testing.TB, p *pace) {
				f.quiet()
				begun := time.Now()
				defer func() { p.took(time.Since(begun) - c.sleep) }()
				f.buy(tb, f.signed(tb, c.name+" warm"))
				r := f.signed(tb, c.name)
				idle := f.table.open()
				if len(idle) == 0 {
					tb.Error("no connection to the table is kept")
				}
				poll(tb, "the connection to the facilitator to end", func() bool { return len(f.settlement.open()) == 0 })
				before := f.table.dials()
				for _, w := range idle {
					c.spoil(w)
				}
				if c.sleep > 0 {
					r.pause(c.sleep)
				}
				took := f.buy(tb, r)
				bytes, used := swallowed(idle)
				switch {
				case c.unnoticed && used != 1:
					tb.Errorf("%d of %d vanished connections were tried, want one", used, len(idle))
				case !c.unnoticed && used != 0:
					tb.Errorf("%d bytes were sent into %d connections that had idled for too long", bytes, used)
				}
				tb.Logf("answered in %s; %d connections were idle, %d of them tried in vain, %d new ones",
					took.Round(time.Millisecond), len(idle), used, f.table.dials()-before)
			})
		})
	}
}
