package e2e

import (
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/infra/testbed/cloud"
	"github.com/hostfacts/hostfacts/infra/testbed/programs"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

// patience is how long a test waits for something that must happen.
const patience = 60 * time.Second

// The key that signs the receipts of every service in this suite, and its public key. The seed
// of the key is all zeros.
const (
	receiptKey       = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
	receiptPublicKey = "O2onvM62pC1io6jQKm8Nc2UyFXcd4kOmOsBIoYtZ2ik"
)

// lab has what a deployment needs from outside: the facilitator and the resolver.
type lab struct {
	terms       x402.Terms
	facilitator *testbed.Facilitator
	dns         *resolver
	secrets     testbed.Secrets // the payments that were sent; no log may show them
}

func newLab(tb testing.TB) *lab {
	return &lab{terms: testbed.LocalTerms(tb), dns: newResolver(tb), facilitator: testbed.StartFacilitator(tb)}
}

// checkLog fails the test if the log of a deployment shows a crash or a part of a payment.
func (l *lab) checkLog(tb testing.TB, log string) {
	if tb.Failed() {
		tb.Logf("the end of the log:\n%s", log[max(len(log)-50_000, 0):])
	}
	if crash := programs.Crash(log); crash != "" {
		tb.Error(testbed.Grave("the log says: " + crash))
	}
	if shown := l.secrets.Shown(log); shown != "" {
		tb.Error(testbed.Grave("the log shows a part of a payment: " + shown))
	}
}

// resolver is the recursive resolver of every deployment. It counts the questions that it
// gets.
type resolver struct {
	addr string // the address of the resolver, ip:port
	zone testbed.Zone

	mu        sync.Mutex
	questions map[string]map[string]bool // the set of questions for each name; a question that is sent again counts once
}

// zoneText has the resolver's records. The addresses are from RFC 5737.
const zoneText = `
*.           30   A     192.0.2.77
com.         3600 NS    a.gtld-servers.net.
example.com. 300  A     192.0.2.1
example.com. 300  MX    10 mx1.example.com.
example.com. 300  MX    20 MX2.example.com.
`

func newResolver(tb testing.TB) *resolver {
	r := &resolver{zone: testbed.ReadZone(tb, zoneText), questions: map[string]map[string]bool{}}
	r.addr = testbed.Resolver(tb, r)
	return r
}

func (r *resolver) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	name, _, ok := testbed.Question(q)
	if !ok {
		return
	}
	r.mu.Lock()
	if r.questions[name] == nil {
		r.questions[name] = map[string]bool{}
	}
	// A client whose datagram may have been lost sends the same question again, possibly over
	// TCP, with the same id and the same letter case of the name.
	r.questions[name][fmt.Sprint(q.Id, q.Question[0].Name)] = true
	r.mu.Unlock()
	r.zone.ServeDNS(w, q)
}

func (r *resolver) lookups(name string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.questions[dns.Fqdn(name)])
}

// setup is the part of a deployment's configuration that a test may change.
type setup struct {
	env          map[string]string
	expectsCrowd bool // the service will get a crowd of requests; see openLocal
	// table is the name of the DynamoDB table of the built functions, and endpoint is the URL of
	// the server that has the table.
	table, endpoint string
}

func (l *lab) setup() setup {
	env := testbed.Alone()
	maps.Copy(env, map[string]string{
		"FACILITATOR_URL": l.facilitator.URL, "DNS_RESOLVERS": l.dns.addr, "RECEIPT_KEY": receiptKey, "RECEIPT_PUBLIC_KEYS": receiptPublicKey, "LOG_LEVEL": "debug",
	})
	return setup{env: env}
}

// deployment is a running service.
type deployment struct {
	base   string      // the URL at which the service listens
	origin string      // the origin that the documents of the service name
	host   *cloud.Host // runs the built functions; nil for the local runner
}

// openLocal runs the built local runner with a new ledger file. The runner must end without an
// error at the end of the test. The runner is built with the race detector, with two
// exceptions: quick runs, which must not need a C compiler, and crowds of requests, for which
// the detector is too slow.
func openLocal(tb testing.TB, l *lab, s setup, more ...map[string]string) *deployment {
	program := testbed.Watched
	if testing.Short() || s.expectsCrowd {
		program = testbed.Program
	}
	settings := append([]map[string]string{s.env}, more...)
	p := testbed.Must(programs.Start(testbed.Local(program(tb, testbed.LocalRunner), tb.TempDir(), settings...)))
	tb.Cleanup(func() {
		p.End(tb)
		l.checkLog(tb, p.Log.String())
	})
	if err := p.Ready(); err != nil {
		tb.Fatal(err)
	}
	return &deployment{base: p.URL, origin: p.URL}
}

// openFunctions runs the built functions as template.yaml deploys them, with the setup's table.
// No invocation may fail. onEvent, if not nil, gets every event.
func openFunctions(tb testing.TB, l *lab, s setup, onEvent func(*cloud.Execution, []byte)) *deployment {
	log, parameters := new(programs.Output), testbed.Parameters(s.env)
	tb.Cleanup(func() { l.checkLog(tb, log.String()) }) // this runs after the host below is closed
	parameters["Ledger"] = s.table
	host := cloud.Deployment{
		Functions: testbed.Functions(tb), Sound: true, Logs: log, Parameters: parameters, OnEvent: onEvent,
		Environment: map[string]string{"AWS_ENDPOINT_URL_DYNAMODB": s.endpoint},
	}.Open(tb)
	return &deployment{base: host.URL, origin: "https://" + cloud.Domain, host: host}
}
