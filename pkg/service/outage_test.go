package service_test

import (
	"context"
	"crypto/rand"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/lookup/bundle"
	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
	"github.com/hostfacts/hostfacts/pkg/lookup/ssl"
	"github.com/hostfacts/hostfacts/pkg/lookup/whois"
	"github.com/hostfacts/hostfacts/pkg/service"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/mcptest"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// failingLookup is a lookup that fails until the time endsAt and then succeeds. The reason for
// the failure lies with the service, not with the target.
type failingLookup[Q, R any] struct {
	code    fault.Code
	endsAt  time.Time
	lookups *int
}

func (o failingLookup[Q, R]) Lookup(context.Context, Q) (r R, err error) {
	*o.lookups++
	if time.Now().Before(o.endsAt) {
		return r, lookup.Fault(o.code, nil)
	}
	return r, nil
}

// repeatBuyer is a client of one operation. It signs a new payment for every request, and
// sends no Idempotency-Key.
type repeatBuyer struct {
	*fleet
	client *x402test.Client
	path   string
}

func newRepeatBuyer(t *testing.T, op service.Operation) *repeatBuyer {
	f := newFleet(t, 1, func(parts) service.Operation { return op })
	f.table.ignoreRecords = true
	client := f.clientAt(0, victim)
	client.Wallet, client.Now = testbed.Must(x402test.NewWallet(rand.Reader)), time.Now
	f.funded.Store(strings.ToLower(client.Wallet.Address().String()), nil)
	return &repeatBuyer{fleet: f, client: client, path: op.Entry().Path}
}

// loopAnswer holds what a client learns from an answer.
type loopAnswer struct {
	result bool // the answer is a result, even if pieces of it are owed
	code   fault.Code
	owed   bool // a piece of the answer is owed
	wait   time.Duration
}

// buy signs a payment and asks for the lookup, as a tool call if tool is true, and over HTTP
// otherwise.
func (l *repeatBuyer) buy(tool bool) loopAnswer {
	l.Helper()
	const at, name = "http://service", "example.com"
	if tool {
		header := testbed.Must(mcptest.SignCall(l.Context(), l.client, at+"/mcp", l.tool, domain(name)))
		r := testbed.Must(mcptest.Call(l.Context(), l.client, at+"/mcp", l.tool, domain(name), header, ""))
		code := codeOf(x402test.Reply{Body: []byte(r.Text())})
		return loopAnswer{!r.IsError, fault.Code(code), strings.Contains(string(r.Raw), `"hostfacts/owed"`), time.Duration(r.Meta.RetryAfter) * time.Second}
	}
	r, _, err := l.client.Buy(l.Context(), at+l.path+"?domain="+name)
	if err != nil {
		l.Fatal(err)
	}
	return loopAnswer{r.Status == http.StatusOK, fault.Code(codeOf(r)), r.Header.Get(x402.HeaderOwed) != "", r.RetryAfter()}
}

// transportsByName returns functions by name. Each function reports whether a client's request
// in a given turn is a tool call: never, always, or in every second turn.
func transportsByName() map[string]func(turn int) (tool bool) {
	return map[string]func(int) bool{
		"HTTP":     func(int) bool { return false },
		"MCP":      func(int) bool { return true },
		"by turns": func(turn int) bool { return turn%2 == 1 },
	}
}

// TestOutage checks a client that signs again every 15 seconds while the resolvers of the
// service are down for an hour. The client must be charged only once. It must get the result
// at most 15 seconds after the wait in the last error has passed.
func TestOutage(t *testing.T) {
	t.Parallel()
	const every = 15 * time.Second
	for name, tool := range transportsByName() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				runs := 0
				until := time.Now().Add(time.Hour)
				l := newRepeatBuyer(t, service.DNS(failingLookup[dns.Query, dns.Result]{lookup.UpstreamUnavailable, until, &runs}))
				var next time.Time // the earliest time of the next lookup, according to the last answer
				turn := 0
				got := l.buy(tool(turn))
				for ; !got.result && turn < 1000; turn++ {
					if got.code != lookup.UpstreamUnavailable || got.wait == 0 {
						t.Fatalf("turn %d: %+v", turn, got)
					}
					next = time.Now().Add(got.wait)
					time.Sleep(every)
					got = l.buy(tool(turn))
				}
				checkEqual(t, "charges", l.table.Settles, 1)
				checkEqual(t, "lookups", runs, 7)
				if !got.result || time.Now().Before(until) || time.Since(next) > every {
					t.Errorf("%+v, %s after the outage and %s after the wait", got, time.Since(until), time.Since(next))
				}
			})
		})
	}
}

// TestPartOwedForLong checks a client that signs a new payment every half minute, while the
// service owes one piece of a bundle for an hour. Until the bundle is complete, each new
// payment must get the same bundle and must not be charged. Two minutes after the bundle is
// complete, a new payment must be charged, as after any other answer.
func TestPartOwedForLong(t *testing.T) {
	t.Parallel()
	for name, tool := range transportsByName() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				begun, runs := time.Now(), 0
				l := newRepeatBuyer(t, service.HostIntel(bundle.HostIntel{
					DNS: failingLookup[dns.Query, dns.Result]{lookups: new(int)}, SSL: failingLookup[ssl.Query, ssl.Result]{lookups: new(int)},
					Whois: failingLookup[whois.Query, whois.Result]{lookup.BootstrapUnavailable, begun.Add(time.Hour), &runs},
				}))
				turn := 0
				got := l.buy(tool(turn))
				for ; got.owed && turn < 1000; turn++ {
					time.Sleep(30 * time.Second)
					got = l.buy(tool(turn))
				}
				if !got.result || got.owed || time.Since(begun) < time.Hour {
					t.Errorf("after %s: %+v", time.Since(begun), got)
				}
				checkEqual(t, "charges", l.table.Settles, 1)
				checkEqual(t, "lookups of the part", runs, 7)
				time.Sleep(2 * time.Minute)
				l.buy(tool(turn))
				checkEqual(t, "charges when the whole answer has stood its time", l.table.Settles, 2)
			})
		})
	}
}

// TestPartOwedForADay checks a bundle with a piece that cannot be looked up for two days. On
// the first day, a new payment must get the same bundle and must not be charged. After that, a
// new payment must be charged.
func TestPartOwedForADay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		l := newRepeatBuyer(t, service.HostIntel(bundle.HostIntel{
			DNS: failingLookup[dns.Query, dns.Result]{lookups: new(int)}, SSL: failingLookup[ssl.Query, ssl.Result]{lookups: new(int)},
			Whois: failingLookup[whois.Query, whois.Result]{lookup.BootstrapUnavailable, time.Now().Add(48 * time.Hour), &runs},
		}))
		for range 24 {
			l.buy(false)
			time.Sleep(time.Hour - time.Second)
		}
		checkEqual(t, "charges in a day", l.table.Settles, 1)
		time.Sleep(time.Minute)
		l.buy(false)
		checkEqual(t, "charges after it", l.table.Settles, 2)
	})
}
