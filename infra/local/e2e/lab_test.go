package e2e

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// gate holds what arrives at it until it is opened. Its two events are contexts, whose end
// every goroutine may bring about and wait for.
type gate struct {
	opened, arrived context.Context
	open, arrive    context.CancelFunc
}

func newGate() *gate {
	g := &gate{}
	g.opened, g.open = context.WithCancel(context.Background())
	g.arrived, g.arrive = context.WithCancel(context.Background())
	return g
}

func (g *gate) isOpen() bool { return g.opened.Err() != nil }

// pass waits until the gate is open, or the caller gives up. A nil done never gives up.
func (g *gate) pass(done <-chan struct{}) {
	g.arrive()
	select {
	case <-g.opened.Done():
	case <-done:
	}
}

func (g *gate) await(tb testing.TB, what string) {
	tb.Helper()
	select {
	case <-g.arrived.Done():
	case <-time.After(patience):
		tb.Fatalf("nothing arrived to %s", what)
	}
}

// gates are made at their first use, by payer or by name.
type gates struct{ all sync.Map }

func (g *gates) of(name string) *gate {
	one, _ := g.all.LoadOrStore(name, newGate())
	return one.(*gate)
}

// known is a gate that was made before; nil if there is none.
func (g *gates) known(name string) *gate {
	one, _ := g.all.Load(name)
	made, _ := one.(*gate)
	return made
}

func (g *gates) open() {
	g.all.Range(func(_, one any) bool { one.(*gate).open(); return true })
}

// patience is how long a test waits for what must happen.
const patience = 60 * time.Second

// lab is the outside world of a deployment: the facilitator and the resolver.
type lab struct {
	terms       x402.Terms
	facilitator *testbed.Facilitator
	url         string // of the facilitator
	settling    gates  // where settlements of a payer wait
	dns         *resolver

	mu      sync.Mutex
	secrets testbed.Secrets // payments that were sent
}

func newLab(tb testing.TB) *lab {
	l := &lab{terms: testbed.LocalTerms(tb), dns: newResolver(tb), facilitator: testbed.NewFacilitator(tb, isContractSignature)}
	l.url = testbed.Serve(tb, http.HandlerFunc(l.serveFacilitator))
	tb.Cleanup(l.settling.open)
	return l
}

const contractSignature = "signed by a contract"

// isContractSignature is what the play-money chain takes for the signature of a contract wallet.
func isContractSignature(_ x402.Address, signature []byte) bool {
	return bytes.HasPrefix(signature, []byte(contractSignature))
}

// serveFacilitator lets settlements wait at their payer's gate before the
// facilitator hears of them.
func (l *lab) serveFacilitator(w http.ResponseWriter, r *http.Request) {
	testbed.Relay{To: l.facilitator, Do: func(c *testbed.Relayed) {
		if g := l.settling.known(testbed.CallPayer(c.Sent)); g != nil && c.URL.Path == "/settle" {
			g.pass(c.Context().Done())
		}
		l.facilitator.ServeHTTP(w, c.Request)
	}}.ServeHTTP(w, r)
}

func (l *lab) wallet(script ...x402test.Behaviour) *x402test.Wallet {
	w := must(x402test.NewWallet(rand.Reader))
	l.facilitator.Plan(w.Address().String(), script...)
	return w
}

// secret remembers a signature: no log may show it.
func (l *lab) secret(header string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.secrets.Add(header)
}

// checkLog holds the log of a whole world to what no log may show.
func (l *lab) checkLog(tb testing.TB, log string) {
	tb.Helper()
	if tb.Failed() {
		tb.Logf("the end of the log:\n%s", log[max(len(log)-50_000, 0):])
	}
	if crash := testbed.Crash(log); crash != "" {
		tb.Error(testbed.Grave("the log says: " + crash))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if shown := l.secrets.Shown(log); shown != "" {
		tb.Error(testbed.Grave("the log shows a part of a payment: " + shown))
	}
}

// resolver is the recursive resolver that every world asks, over UDP and TCP
// on one port of 127.0.0.1. Most names are those of zone; a name of the form
// <anything>.<mode>.lab.example.com is answered as its mode says.
type resolver struct {
	addr  string // ip:port
	zone  testbed.Zone
	gates gates // where questions about a name wait; open when it is healed

	mu    sync.Mutex
	asked map[string]map[string]bool // name -> questions, a datagram sent again counted once
}

// The modes of lab names. A name that is healed answers like healthy.
const (
	modeHealthy = "healthy" // A 192.0.2.77, TTL 30
	modeRefused = "refused" // REFUSED
	modeHeld    = "held"    // healthy, once its gate is open
)

// labDomain is the parent of the names whose second label is a mode.
const labDomain = ".lab.example.com."

func newResolver(tb testing.TB) *resolver {
	r := &resolver{zone: testbed.ReadZone(tb, zoneText), asked: map[string]map[string]bool{}}
	r.addr = testbed.Resolver(tb, r)
	tb.Cleanup(r.gates.open)
	return r
}

func (r *resolver) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	name, qtype, ok := testbed.Question(q)
	if !ok {
		return
	}
	r.mu.Lock()
	if r.asked[name] == nil {
		r.asked[name] = map[string]bool{}
	}
	// When the client fears a loss, it sends the same question again, over TCP as
	// well: with the same id, and the same letter case of the name.
	r.asked[name][fmt.Sprint(q.Id, q.Question[0].Name)] = true
	r.mu.Unlock()
	m := testbed.Reply(q)
	if !strings.HasSuffix(name, labDomain) {
		r.zone.Answer(m, name, qtype)
	} else {
		r.lab(name, q, m)
	}
	testbed.Send(w, q, m)
}

// lab fills in the answer for a lab name.
func (r *resolver) lab(name string, q, m *dns.Msg) {
	labels := dns.SplitDomainName(name)
	mode := labels[len(labels)-4]
	switch g := r.gate(name); {
	case g.isOpen():
	case mode == modeRefused:
		m.Rcode = dns.RcodeRefused
		return
	case mode == modeHeld:
		g.pass(nil)
	}
	if q.Question[0].Qtype == dns.TypeA {
		m.Answer = []dns.RR{&dns.A{
			Hdr: dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 30},
			A:   net.IPv4(192, 0, 2, 77),
		}}
	}
}

func (r *resolver) lookups(name string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.asked[dns.Fqdn(name)])
}

// gate is where the questions about a held name wait.
func (r *resolver) gate(name string) *gate { return r.gates.of(dns.Fqdn(name)) }

// zoneText is what the resolver knows. Addresses are those of RFC 5737.
const zoneText = `
$ORIGIN example.com.
$TTL 3600
@            SOA   ns1.Example.com. hostmaster.example.com. 2026110501 7200 900 1209600 300
@       300  A     192.0.2.1
@       300  MX    10 mx1.example.com.
@       300  MX    20 MX2.example.com.
www     300  A     192.0.2.10
internal  60 A     10.0.0.1
xn--bcher-kva 300 MX 5 mail.example.com.
com. 172800 IN NS   a.gtld-servers.net.
`
