package service_test

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/lookup/bundle"
	"github.com/hostfacts/hostfacts/pkg/lookup/ssl"
	"github.com/hostfacts/hostfacts/pkg/lookup/whois"
	"github.com/hostfacts/hostfacts/pkg/service"
	"github.com/hostfacts/hostfacts/pkg/x402/mcptest"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

const (
	attacker = "203.0.113.7:1"
	victim   = "198.51.100.9:1"
)

// freeRequest is a kind of request that costs the service money and brings none. maxOnOne is
// the largest cost that a client may cause in a minute on one environment, and maxOnMany is
// the largest cost on two hundred environments.
type freeRequest struct {
	name                string
	maxOnOne, maxOnMany cost
	// headers returns the payments that the client sends within the minute, one after another.
	// When it has sent the last payment, it begins with the first one again.
	headers func(f *fleet, offer x402test.Reply) []string
	// domain is what the client asks about, and operation is the operation that it calls. By
	// default they are example.com and the DNS Explorer.
	domain    string
	operation func(parts) service.Operation
}

// freeRequests returns the kinds of requests with the limits of their costs. The rate limit
// counts one unit for a request that is answered from a record, and more for a request that
// makes the service call another service. If these units put the client above its rate limit,
// the excess is carried into a later minute, which costs a write. Many environments cost more
// than one, because each asks the store once before it knows that the client is above the limit.
func freeRequests() []freeRequest {
	type reply = x402test.Reply
	nothing := cost{Writes: 10, Units: 10} // only the writes of the rate limit
	verified, byMany := cost{Writes: 90, Units: 90, Reads: 35, Verifies: 35}, cost{Writes: 300, Units: 300, Reads: 35, Verifies: 35}
	oneHeader := func(header string) func(*fleet, reply) []string {
		return func(*fleet, reply) []string { return []string{header} }
	}
	pool := func(peers func(*peers), sign func(*fleet, reply) string) func(*fleet, reply) []string {
		return func(f *fleet, offer reply) (headers []string) {
			peers(f.peers)
			for range 100 { // more than the rate limit allows in a minute
				headers = append(headers, sign(f, offer))
			}
			return headers
		}
	}
	honest := func(*peers) {}
	rich := func(f *fleet, offer reply) string { return f.sign(offer, true) }
	poor := func(f *fleet, offer reply) string { return f.sign(offer, false) }
	return []freeRequest{
		{name: "unsigned", maxOnOne: nothing, maxOnMany: nothing, headers: oneHeader("")},
		{name: "malformed", maxOnOne: nothing, maxOnMany: nothing, headers: oneHeader("e30=")},
		{name: "unrecoverable signature", maxOnOne: verified, maxOnMany: byMany, headers: pool(honest, (*fleet).contractPayment)},
		{
			name: "signature that nobody judges", maxOnOne: verified, maxOnMany: byMany,
			headers: pool(func(p *peers) { p.verifyDown = true }, (*fleet).contractPayment),
		},
		{
			name: "empty account", maxOnOne: cost{Writes: 260, Units: 330, Settles: 25}, maxOnMany: cost{Writes: 450, Units: 520, Settles: 25},
			headers: pool(honest, poor),
		},
		{
			name: "reverting wallet", maxOnOne: cost{Writes: 400, Units: 540, Settles: 25, Looks: 25}, maxOnMany: cost{Writes: 620, Units: 760, Settles: 25, Looks: 25},
			headers: pool(func(p *peers) { p.revertTime = 4 * time.Second }, poor),
		},
		{ // the client pays, but the host is silent, so the service owes the answer
			name: "silent target", maxOnOne: cost{Writes: 740, Units: 960, Settles: 22}, maxOnMany: cost{Writes: 940, Units: 1150, Settles: 22},
			headers: pool(honest, rich), domain: "a" + silentHosts,
		},
		{ // the client pays here as well; a payment that gets no slot costs the write of its claim
			name: "bundle with a silent target", maxOnOne: cost{Writes: 1450, Units: 1800, Settles: 12}, maxOnMany: cost{Writes: 1650, Units: 2000, Settles: 12},
			headers: pool(honest, rich), operation: silentBundle,
		},
		{
			name: "cancelled authorization", maxOnOne: cost{Writes: 900, Units: 900, Settles: 1, Looks: 1}, maxOnMany: cost{Writes: 1100, Units: 1100, Settles: 1, Looks: 1},
			headers: func(f *fleet, offer reply) []string {
				f.cancelFirst = true
				return []string{poor(f, offer)}
			},
		},
		{
			name: "copied authorization", maxOnOne: cost{Writes: 600, Units: 600, Reads: 300}, maxOnMany: cost{Writes: 800, Units: 800, Reads: 300},
			headers: func(f *fleet, offer reply) []string { return []string{f.copiedPayment(offer)} },
		},
		{
			name: "replay", maxOnOne: cost{Writes: 900, Units: 1200}, maxOnMany: cost{Writes: 1100, Units: 1400},
			headers: func(f *fleet, offer reply) []string {
				header := rich(f, offer)
				f.checkServed(victim, "example.com", header)
				return []string{header}
			},
		},
	}
}

// silentBundle returns a bundle whose certificate lookup gets no answer from the host.
func silentBundle(p parts) service.Operation {
	return service.HostIntel(bundle.HostIntel{DNS: p.DNS, SSL: silentLookup[ssl.Query, ssl.Result](lookup.SSLTimeout), Whois: emptyWhois{}})
}

// emptyWhois is a lookup of registry data that finds every domain.
type emptyWhois struct{}

func (emptyWhois) Lookup(context.Context, whois.Query) (whois.Result, error) {
	return whois.Result{}, nil
}

// TestPaidUnits checks that the costs of a paid request stay within the maxima below. The
// costs are the DynamoDB units in all tables and the index, and the number of calls of the
// table that follow one another. The test calculates this number from the duration of the
// request on a fake clock, on which only these calls and the peers take time. The answer has a
// signed receipt and less than a kilobyte. "make bench" prints the numbers.
//
// For a second payment of the same payer for the same question, the ledger writes the claim,
// the purchase, the record of the purchase's owner, and the end of the claim. The smoke test
// takes no slot, and is bought again each time. In each process, the first payment in an hour
// costs one more read and write, during the settlement, to record the payee.
func TestPaidUnits(t *testing.T) {
	t.Parallel()
	const callTime, maxCalls = 3 * time.Millisecond, 5
	for _, c := range []struct {
		name                  string
		operation             func(parts) service.Operation
		firstCost, secondCost cost // the expected costs of the two payments; Units is a maximum
		lookupTime            time.Duration
	}{
		{name: "dns", operation: dnsExplorer, firstCost: cost{Writes: 9, Units: 12, Reads: 1, Settles: 1}, secondCost: cost{Writes: 5, Units: 8, Reads: 1}, lookupTime: 200 * time.Millisecond},
		{name: "ping", operation: func(parts) service.Operation { return service.Ping() },
			firstCost: cost{Writes: 6, Units: 10, Reads: 1, Settles: 1}, secondCost: cost{Writes: 5, Units: 10, Settles: 1}},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(t, 1, c.operation)
			offer := f.send(0, victim, "example.com", "")
			wallet, draft := f.draftOf(offer, true)
			f.table.reset()
			f.table.callTime = callTime
			begun := time.Now()
			r := f.send(0, victim, "example.com", testbed.Must(wallet.Seal(draft)))
			calls := int((time.Since(begun) - f.settleTime - c.lookupTime) / callTime)
			paid, err := r.Receipt()
			if r.Status != http.StatusOK || err != nil || paid.Extensions.OfferReceipt.Info.Receipt.Signature == "" {
				t.Fatalf("%d %s with %+v, %v", r.Status, r.Body, paid, err)
			}
			checkEqual(t, "units left, of which the offer took one", r.Header.Get("RateLimit"), `"default";r=298;t=60`)
			got := f.table.cost
			t.Attr(c.name, fmt.Sprintf("%d %d %d", got.Units, got.Writes, calls))
			f.table.reset()
			f.checkServed(victim, "example.com", testbed.Must(wallet.Seal(testbed.Must(wallet.Draft(testbed.Must(offer.Required()), time.Now())))))
			repeatCost := f.table.cost
			if calls > maxCalls || got.Units > c.firstCost.Units || repeatCost.Units > c.secondCost.Units {
				t.Errorf("%s: %+v and %+v, %d calls follow one another, want at most %d", c.name, got, repeatCost, calls, maxCalls)
			}
			got.Units, repeatCost.Units = c.firstCost.Units, c.secondCost.Units
			checkEqual(t, c.name, [2]cost{got, repeatCost}, [2]cost{c.firstCost, c.secondCost})
		})
	}
}

// TestBudget checks that a client that pays nothing can cause only limited costs. The limit
// covers all requests of a minute, over either transport, however many environments there are.
func TestBudget(t *testing.T) {
	t.Parallel()
	for _, kind := range freeRequests() {
		for _, c := range []struct {
			environments int
			tools        bool
			maxCost      cost
		}{{1, false, kind.maxOnOne}, {200, false, kind.maxOnMany}, {1, true, kind.maxOnOne}} {
			if raceDetector() && (c.environments > 1 || c.tools) {
				continue
			}
			t.Run(fmt.Sprintf("%s, %d, tools %v", kind.name, c.environments, c.tools), func(t *testing.T) {
				t.Parallel()
				c.maxCost.Reads += c.environments // each environment reads the known payees once
				synctest.Test(t, func(t *testing.T) {
					checkCost(t, kind, c.environments, c.tools, c.maxCost)
				})
			})
		}
	}
}

// checkCost sends free requests for a minute, as tool calls if tools is true, and over HTTP
// otherwise. Their cost must not exceed limit.
func checkCost(t *testing.T, kind freeRequest, environments int, tools bool, limit cost) {
	t.Helper()
	const requests = 600 // ten a second
	operation, name := kind.operation, cmp.Or(kind.domain, "example.com")
	if operation == nil {
		operation = dnsExplorer
	}
	f := newFleet(t, environments, operation)
	headers := kind.headers(f, f.send(0, victim, name, ""))
	time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute)))
	f.table.reset()
	var all sync.WaitGroup
	startClients(&all, requests, (time.Minute-3*time.Second)/requests, func(n int) {
		if header := headers[n%len(headers)]; tools {
			_, _ = mcptest.Call(t.Context(), f.clientAt(n, attacker), "http://service/mcp", f.tool, domain(name), header, "")
		} else {
			f.send(n, attacker, name, header)
		}
	})
	all.Wait()
	if got := f.table.cost; got.exceeds(limit) {
		t.Errorf("%+v is more than %+v", got, limit)
	}
}

// TestBudgets checks that a request ends within the deadline of requests, and a lookup within
// the deadline of lookups. The fake clock of the bubble makes the times exact. The tests of
// the Gate check the time that each call gets.
func TestBudgets(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		settleTime, searchTime, lookupTime time.Duration
		status                             int
		code, charged                      string
		wantTime                           time.Duration
	}{
		// Of its 27 s, the request keeps 8 s for the lookup and 2 s for the writes. So the
		// settlement and the search of the chain end after 17 s.
		{settleTime: time.Hour, searchTime: time.Hour, status: 503, code: "settlement_uncertain", charged: "null", wantTime: 17 * time.Second},
		{lookupTime: time.Hour, status: 504, code: "dns_timeout", charged: "true", wantTime: 8 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(t, 1, dnsExplorer)
			f.settleTime, f.searchTime, f.lookupTime = c.settleTime, c.searchTime, c.lookupTime
			header := f.sign(f.send(0, victim, "example.com", ""), true)
			begun := time.Now()
			r := f.send(0, victim, "example.com", header)
			checkEqual(t, c.code+" after", time.Since(begun), c.wantTime)
			w := way{shop: &shop{T: t}}
			w.expect(w.reply(r), c.status, c.code, c.charged)
		})
	}
}

// startClients calls f n times, each time in a goroutine of group. interval is the time
// between two calls, and i is the number of the call, from 0.
func startClients(group *sync.WaitGroup, n int, interval time.Duration, f func(i int)) {
	for i := range n {
		group.Go(func() {
			time.Sleep(time.Duration(i)*interval + time.Millisecond)
			f(i)
		})
	}
}

// attack is a minute of requests that cost the service money and bring none.
type attack struct {
	name, domainFormat string        // domainFormat is the format of a request's domain; it has a place for the number of the request
	rich               bool          // whether the payer has money; the service then owes the lookup, and later refunds the payer
	revertTime         time.Duration // how long the transaction of a payer without money takes to revert; 0 means that the facilitator refuses the payment
	crowd
}

// crowd describes the clients of an attack, and the requests of each client.
type crowd struct {
	addrFormat          string // the format of a client's address; its arguments are the numbers of the client and of the request
	clients, requests   int
	interval, phaseStep time.Duration // the time between the requests of a client, and between the phases that are tested
}

// TestNobodyIsTurnedAway checks that everyone who pays is served during an attack. The
// attackers have empty wallets, or wallets whose transactions revert, or ask about their own
// silent hosts. They send their requests one after another or all at once, from three
// addresses or from everywhere in one network. The attack is tried at several phases of the
// rate limit's minute.
func TestNobodyIsTurnedAway(t *testing.T) {
	t.Parallel()
	for _, a := range []attack{
		{name: "empty wallets", domainFormat: "h%d.example.com"},
		{name: "reverting wallets", domainFormat: "h%d.example.com", revertTime: 10 * time.Second},
		{name: "silent hosts", domainFormat: "h%d" + silentHosts, rich: true},
	} {
		for _, a.crowd = range []crowd{
			{addrFormat: "203.0.113.%[1]d:1", clients: 3, requests: 120, interval: time.Second / 2, phaseStep: 15 * time.Second},
			{addrFormat: "203.0.113.%[1]d:1", clients: 3, requests: 100, phaseStep: time.Minute}, {addrFormat: "[2001:db8:1:%[2]x::1]:1", clients: 1, requests: 100, phaseStep: time.Minute},
		} {
			if raceDetector() && a.interval > 0 { // the race detector matters most for attackers that come at once
				continue
			}
			for phase := time.Duration(0); phase < time.Minute; phase += a.phaseStep {
				t.Run(fmt.Sprintf("%d %s, %s apart, from %s on", a.clients, a.name, a.interval, phase), func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) { a.run(t, phase) })
				})
			}
		}
	}
}

// run sends the requests of the attack, beginning at the given phase of the rate limit's
// minute. Meanwhile 120 payers arrive, and all of them must be served. No request of the
// attack may be answered with 200, and at least one must be refused as rate_limited or
// overloaded. The facilitator must never process more of the attackers' payments at once than
// the slots of the attackers allow.
func (a attack) run(t *testing.T, phase time.Duration) {
	const most = 50 / 4 // the slots that one client can hold: a quarter of the 50
	f := newFleet(t, 1, dnsExplorer)
	f.revertTime, f.table.ignoreRecords = a.revertTime, true
	offer := f.send(0, victim, "example.com", "")
	time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute + phase)))
	codes, waitUntil := map[string]int{}, map[int]time.Time{}
	var mu sync.Mutex
	var all sync.WaitGroup
	for k := range a.clients {
		startClients(&all, a.requests, a.interval, func(n int) {
			mu.Lock()
			early := time.Now().Before(waitUntil[k])
			mu.Unlock()
			if early { // the client has been told to wait
				return
			}
			r := f.send(0, fmt.Sprintf(a.addrFormat, k, n), fmt.Sprintf(a.domainFormat, n), f.sign(offer, a.rich))
			mu.Lock()
			defer mu.Unlock()
			codes[fmt.Sprint(r.Status, " ", codeOf(r))]++
			if r.Status == http.StatusTooManyRequests {
				waitUntil[k] = time.Now().Add(r.RetryAfter())
			}
		})
	}
	startClients(&all, 120, time.Second/2, func(i int) { // the payers come from other addresses
		f.checkServed(fmt.Sprintf("198.51.100.%d:1", i), fmt.Sprintf("p%d.example.com", i), f.sign(offer, true))
	})
	all.Wait()
	if f.maxSettling > a.clients*most || codes["200 "] > 0 || codes["429 rate_limited"]+codes["503 overloaded"] == 0 {
		t.Errorf("%d at the facilitator at once, and they got %v", f.maxSettling, codes)
	}
}
