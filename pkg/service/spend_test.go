package service_test

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hostfacts/hostfacts/pkg/service"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

const (
	attacker = "203.0.113.7:1"
	victim   = "198.51.100.9:1"
)

// freeRequests are the kinds of request that pay nothing. Each prepares what one
// client then sends for a minute: a header for each request.
func freeRequests(t *testing.T) map[string]func(f *fleet, offer x402test.Reply) func() string {
	same := func(header string) func() string { return func() string { return header } }
	return map[string]func(*fleet, x402test.Reply) func() string{
		"unsigned":  func(*fleet, x402test.Reply) func() string { return same("") },
		"malformed": func(*fleet, x402test.Reply) func() string { return same("garbage!") },
		"unrecoverable signature": func(f *fleet, offer x402test.Reply) func() string {
			return pool(func() string { return f.contract(offer) })
		},
		"empty account": func(f *fleet, offer x402test.Reply) func() string {
			return pool(func() string { return f.sign(offer, false) })
		},
		"cancelled authorization": func(f *fleet, offer x402test.Reply) func() string {
			f.cancelled = true
			return same(f.sign(offer, false))
		},
		"copied authorization": func(f *fleet, offer x402test.Reply) func() string { return same(f.copied(t, offer)) },
		"replay": func(f *fleet, offer x402test.Reply) func() string {
			header := f.sign(offer, true)
			f.served(t, victim, "example.com", header)
			return same(header)
		},
	}
}

// pool makes more payments than the limit lets anybody send in a minute, and then
// begins again with the first.
func pool(sign func() string) func() string {
	var headers []string
	n := 0
	return func() string {
		if len(headers) < 100 {
			headers = append(headers, sign())
		}
		n++
		return headers[(n-1)%len(headers)]
	}
}

// budget is the most that a minute of one client's requests may cost, over one
// environment and over two hundred. What is answered from the record counts one
// unit, so that it is bounded by the limit; what asks somebody else is bounded by
// what it weighs. Each environment asks the store once before it knows that the
// client is over its limit.
func budget() map[string][2]spent {
	return map[string][2]spent{
		"unsigned":                {{Writes: 10, Units: 10}, {Writes: 10, Units: 10}},
		"malformed":               {{Writes: 10, Units: 10}, {Writes: 10, Units: 10}},
		"unrecoverable signature": {{Writes: 70, Units: 70, Reads: 35, Verifies: 35}, {Writes: 280, Units: 280, Reads: 35, Verifies: 35}},
		"empty account":           {{Writes: 250, Units: 320, Settles: 35}, {Writes: 440, Units: 510, Settles: 35}},
		"cancelled authorization": {{Writes: 900, Units: 900, Settles: 1, Looks: 1}, {Writes: 1100, Units: 1100, Settles: 1, Looks: 1}},
		"copied authorization":    {{Writes: 600, Units: 600, Reads: 300}, {Writes: 800, Units: 800, Reads: 300}},
		"replay":                  {{Writes: 900, Units: 1200}, {Writes: 1100, Units: 1400}},
	}
}

// TestPaidUnits: what one paid request takes of DynamoDB, all tables and the index
// included, with a signed receipt and an answer of less than a kilobyte, and how
// many calls of the table follow one another, by a clock that nothing else moves.
// Both are bounded by the design's numbers; make bench prints them.
func TestPaidUnits(t *testing.T) {
	t.Parallel()
	const trip, mostTrips = 3 * time.Millisecond, 5
	for _, c := range []struct {
		name      string
		operation func(parts) service.Operation
		most      spent
		looks     time.Duration
	}{
		{"dns", explorer, spent{Writes: 8, Units: 12, Settles: 1}, 200 * time.Millisecond},
		{"ping", func(parts) service.Operation { return service.Ping() }, spent{Writes: 6, Units: 10, Settles: 1}, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(1, c.operation)
			header := f.sign(f.to(0, victim, "example.com", ""), true)
			f.bill.reset()
			f.bill.trip = trip
			begun := time.Now()
			r := f.to(0, victim, "example.com", header)
			trips := int((time.Since(begun) - f.settles - c.looks) / trip)
			paid, err := r.Receipt()
			if r.Status != http.StatusOK || err != nil || paid.Extensions.OfferReceipt.Info.Receipt.Signature == "" {
				t.Fatalf("%d %s with %+v, %v", r.Status, r.Body, paid, err)
			}
			got := f.bill.spent
			t.Logf("%-6s %+v, %d calls in sequence", c.name, got, trips)
			t.Attr(c.name, fmt.Sprintf("%d %d %d", got.Units, got.Writes, trips))
			if trips > mostTrips {
				t.Errorf("%s: %d calls of the table follow one another, want at most %d", c.name, trips, mostTrips)
			}
			if got.above(c.most) || got.Settles != c.most.Settles {
				t.Errorf("%s: %+v, want at most %+v", c.name, got, c.most)
			}
		})
	}
}

// TestBudget: what a client that pays nothing can make us spend in a minute is
// bounded, whatever it sends, over either transport, and however many environments
// it reaches.
func TestBudget(t *testing.T) {
	t.Parallel()
	const requests = 600 // ten a second
	table := budget()
	for name, prepare := range freeRequests(t) {
		for k, c := range []struct {
			environments int
			tools        bool
		}{{1, false}, {200, false}, {1, true}} {
			most := table[name][k%2]
			if raceDetector && c.environments > 1 {
				continue
			}
			t.Run(fmt.Sprintf("%s, %d, tools %v", name, c.environments, c.tools), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					f := newFleet(c.environments, explorer)
					next := prepare(f, f.to(0, victim, "example.com", ""))
					time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute)))
					f.bill.reset()
					var all sync.WaitGroup
					var limited atomic.Int32
					for n := range requests {
						header := next()
						all.Go(func() {
							time.Sleep(time.Duration(n) * (time.Minute - 3*time.Second) / requests)
							if c.tools && f.call(n, attacker, "example.com", header) ||
								!c.tools && f.to(n, attacker, "example.com", header).Status == http.StatusTooManyRequests {
								limited.Add(1)
							}
						})
					}
					all.Wait()
					got := f.bill.spent
					t.Logf("%3d environments: %4d of %d limited; %+v", c.environments, limited.Load(), requests, got)
					if got.above(most) {
						t.Errorf("%+v is more than %+v", got, most)
					}
				})
			})
		}
	}
}
