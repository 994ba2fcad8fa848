package e2e

import (
	"cmp"
	"maps"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/catalog"
)

// What every service of this suite signs receipts with: a seed of zeros.
const (
	receiptKey       = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
	receiptPublicKey = "O2onvM62pC1io6jQKm8Nc2UyFXcd4kOmOsBIoYtZ2ik"
)

type opener func(testing.TB, *lab, setup) *deployment

// setup is the configuration of a deployment that a test may change.
type setup struct {
	facilitator string // URL
	resolvers   string
	crowd       bool // see localBinary
	// table is what the built functions have, and endpoint the URL that they reach its server at.
	table, endpoint string
	// more are other variables, or other values of the same; see testbed.Alone.
	more map[string]string
}

func (l *lab) setup() setup {
	return setup{facilitator: l.url, resolvers: l.dns.addr, more: testbed.Alone()}
}

func (s setup) environment() map[string]string {
	env := maps.Clone(s.more)
	env["FACILITATOR_URL"], env["DNS_RESOLVERS"] = s.facilitator, s.resolvers
	env["RECEIPT_KEY"], env["RECEIPT_PUBLIC_KEYS"] = receiptKey, receiptPublicKey
	env["LOG_LEVEL"] = cmp.Or(env["LOG_LEVEL"], "debug")
	return env
}

// deployment is a running service.
type deployment struct {
	base     string // where it listens
	origin   string // what it calls itself
	log      func() string
	stranger bool // it is the shop of infra/shop

	host *testbed.Host // of the built functions
	// kill ends the process that has a request, and returns when it is gone; revive is the
	// service afterwards. dead is what the client of a killed process gets: nil means no answer.
	kill   func()
	revive func() *deployment
	dead   *want
}

// amount is what the purchase of a test costs.
func (d *deployment) amount() string {
	if d.stranger {
		return "10000"
	}
	return catalog.DNS().Amount
}

// localBinary is the local runner, watched by the race detector. A quick run does
// without it, and so without a C compiler; and so does a crowd: the race detector makes
// a signature fifteen times as dear, and a thousand of them at once on two cores then
// wait for the processor until their time is up.
func localBinary(tb testing.TB, crowd bool) string {
	if testing.Short() || crowd {
		return testbed.Program(tb, testbed.LocalRunner)
	}
	return testbed.Watched(tb, testbed.LocalRunner)
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

// dnsFunction is the name of the function of DNS lookups in the template.
const dnsFunction = "DnsFunction"

// openFunctions runs the built functions as the template deploys them, on the setup's table,
// behind a gateway. They can be killed: the host starts another process for the next request.
// configure may change the host; nil does not, and then no invocation may fail.
func openFunctions(tb testing.TB, l *lab, s setup, configure func(*testbed.Deployment)) *deployment {
	const domain = "e2e.execute-api.us-east-1.amazonaws.com"
	log := new(testbed.Output)
	d := &deployment{origin: "https://" + domain, log: log.String}
	tb.Cleanup(func() { l.checkLog(tb, log.String()) }) // when the host is closed
	env := maps.Clone(s.more)
	env["AWS_ENDPOINT_URL_DYNAMODB"] = s.endpoint
	functions := testbed.Deployment{
		Functions: testbed.Functions(tb), Sound: configure == nil, Environment: env, Domain: domain, Logs: log,
		Parameters: map[string]string{
			"Ledger": s.table, "LogLevel": "debug", "FacilitatorUrl": s.facilitator,
			"DnsResolvers": s.resolvers, "ReceiptKey": receiptKey, "ReceiptPublicKeys": receiptPublicKey,
		},
	}
	if configure != nil {
		configure(&functions)
	}
	d.host = functions.Open(tb)
	d.base = d.host.URL
	d.kill = func() { d.host.Kill(dnsFunction) }
	d.revive, d.dead = func() *deployment { return d }, &want{gateway: true, status: http.StatusInternalServerError}
	return d
}
