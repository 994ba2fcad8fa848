package e2e

import (
	"cmp"
	"context"
	"maps"
	"net"
	"path/filepath"
	"testing"

	"github.com/hostfacts/hostfacts/infra/local/lambdahost"
	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/catalog"
)

type world struct {
	name string
	// fixed: its store can neither be made unreachable nor be spoilt, and who settles is
	// play money unless somebody is configured.
	fixed bool
	// start gets the world going and returns what opens deployments in it; it
	// skips the test on a machine that cannot run the world.
	start func(testing.TB) opener
}

type opener func(testing.TB, *lab, setup) *deployment

func worlds() []world {
	return []world{
		{"local", true, func(tb testing.TB) opener {
			localBinary(tb, false)
			return openLocal
		}},
		{"lambda", false, func(tb testing.TB) opener {
			verifyOnly(tb, "needs the built functions, and Node for the DynamoDB server")
			db := testbed.StartDynamo(tb)
			testbed.Functions(tb)
			return func(tb testing.TB, l *lab, s setup) *deployment { return openLambda(tb, l, db, s) }
		}},
	}
}

// setup is the configuration of a deployment that a case may change.
type setup struct {
	facilitator string // URL
	token       string // bearer
	resolvers   string
	crowd       bool // see localBinary
	// table is what the built functions have, and endpoint the URL that they reach its server at.
	table, endpoint string
	// more are other variables, or other values of the same. Every world has those of
	// testbed.Alone: no view of a real chain, no registry, and no rate limit unless a
	// case wants one, because all cases share one address.
	more map[string]string
}

func (l *lab) setup() setup {
	return setup{facilitator: l.url, resolvers: l.dns.addr, more: testbed.Alone()}
}

func (s setup) environment() map[string]string {
	env := maps.Clone(s.more)
	env["FACILITATOR_URL"], env["FACILITATOR_TOKEN"] = s.facilitator, s.token
	env["DNS_RESOLVERS"], env["RECEIPT_KEY"], env["RECEIPT_PUBLIC_KEYS"] = s.resolvers, receiptKey, receiptPublicKey
	env["LOG_LEVEL"] = cmp.Or(env["LOG_LEVEL"], "debug")
	return env
}

// deployment is a running service. The functions are nil where a world cannot do it.
type deployment struct {
	base   string // where it listens
	origin string // what it calls itself
	cut    func()
	mend   func()
	plant  func(ctx context.Context, key string) error
	log    func() string

	stranger bool // it is the shop of infra/shop

	host *lambdahost.Host // of the built functions
	// kill ends the process that has a request, and returns when it is gone; revive is the
	// service afterwards. dead is what the client of a killed process gets: nil is no answer.
	kill   func()
	revive func() *deployment
	dead   *want
}

// closedPort is an address of 127.0.0.1 where nobody listens. A client of this
// process has the port until the test ends, so that nobody else gets it.
func closedPort(tb testing.TB) string {
	tb.Helper()
	l := must(net.Listen("tcp", "127.0.0.1:0"))
	tb.Cleanup(func() { l.Close() })
	c := must(net.Dial("tcp", l.Addr().String()))
	tb.Cleanup(func() { c.Close() })
	return c.LocalAddr().String()
}

// openLocal runs the built local runner over a new ledger file. It can be killed.
func openLocal(tb testing.TB, l *lab, s setup) *deployment {
	return openLocalOver(tb, l, s, filepath.Join(tb.TempDir(), "ledger.db"))
}

func openLocalOver(tb testing.TB, l *lab, s setup, ledgerFile string) *deployment {
	p := launchLocal(tb, l, s, map[string]string{"LEDGER_FILE": ledgerFile})
	if err := p.Ready(); err != nil {
		tb.Fatal(err)
	}
	revive := func() *deployment { return openLocalOver(tb, l, s, ledgerFile) }
	return &deployment{base: p.URL, origin: p.URL, log: p.Log.String, kill: p.Kill, revive: revive}
}

// openShop runs the shop of infra/shop over the ledger in a folder. It can be killed.
func openShop(tb testing.TB, s setup, dir string) *deployment {
	d := &deployment{stranger: true, revive: func() *deployment { return openShop(tb, s, dir) }}
	testbed.Until(tb, "the shop", func() error { // somebody may be faster at the address
		addr := testbed.FreeAddr(tb)
		p, err := testbed.Launch(testbed.Shop(tb, dir, addr, s.facilitator), nil)
		if err != nil {
			return err
		}
		tb.Cleanup(p.Kill)
		d.base, d.origin, d.log, d.kill = "http://"+addr, "http://"+addr, p.Log.String, p.Kill
		return p.Listens(addr)
	})
	return d
}

// amount is what the purchase of a test costs.
func (d *deployment) amount() string {
	if d.stranger {
		return "10000"
	}
	return catalog.DNS().Amount
}

// launchLocal starts the local runner. At the end of the test it is stopped, and must
// have ended well.
func launchLocal(tb testing.TB, l *lab, s setup, more ...map[string]string) *testbed.Process {
	settings := append([]map[string]string{s.environment()}, more...)
	p, err := testbed.Launch(testbed.Local(localBinary(tb, s.crowd), tb.TempDir(), settings...), nil)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		p.End(tb)
		l.checkLog(tb, p.Log.String())
	})
	return p
}
