package service_test

import (
	"fmt"
	"net/http"
	"sync"
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

// again is a request that is always the same.
func again(header string) func() string { return func() string { return header } }

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

// free is a kind of request that pays nothing, with the most that a minute of one client's
// may cost, over one environment and over two hundred.
type free struct {
	name      string
	one, many spent
	// prepare makes what the client then sends for a minute: a header for each request.
	prepare func(t *testing.T, f *fleet, offer x402test.Reply) (next func() string)
}

// freeRequests: what is answered from the record counts one unit, so that it is bounded by
// the limit; what asks somebody else is bounded by what it weighs. Each environment asks the
// store once before it knows that the client is over its limit.
func freeRequests() []free {
	type (
		test  = *testing.T
		reply = x402test.Reply
	)
	return []free{
		{"unsigned", spent{Writes: 10, Units: 10}, spent{Writes: 10, Units: 10}, func(test, *fleet, reply) func() string { return again("") }},
		{"malformed", spent{Writes: 10, Units: 10}, spent{Writes: 10, Units: 10},
			func(test, *fleet, reply) func() string { return again("garbage!") }},
		{"unrecoverable signature", spent{Writes: 70, Units: 70, Reads: 35, Verifies: 35}, spent{Writes: 280, Units: 280, Reads: 35, Verifies: 35},
			func(_ test, f *fleet, offer reply) func() string {
				return pool(func() string { return f.contract(offer) })
			}},
		{"empty account", spent{Writes: 250, Units: 320, Settles: 35}, spent{Writes: 440, Units: 510, Settles: 35},
			func(_ test, f *fleet, offer reply) func() string {
				return pool(func() string { return f.sign(offer, false) })
			}},
		{"cancelled authorization", spent{Writes: 900, Units: 900, Settles: 1, Looks: 1}, spent{Writes: 1100, Units: 1100, Settles: 1, Looks: 1},
			func(_ test, f *fleet, offer reply) func() string {
				f.cancelled = true
				return again(f.sign(offer, false))
			}},
		{"copied authorization", spent{Writes: 600, Units: 600, Reads: 300}, spent{Writes: 800, Units: 800, Reads: 300},
			func(t test, f *fleet, offer reply) func() string { return again(f.copied(t, offer)) }},
		{"replay", spent{Writes: 900, Units: 1200}, spent{Writes: 1100, Units: 1400}, func(t test, f *fleet, offer reply) func() string {
			header := f.sign(offer, true)
			f.served(t, victim, "example.com", header)
			return again(header)
		}},
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
			f.table.reset()
			f.table.trip = trip
			begun := time.Now()
			r := f.to(0, victim, "example.com", header)
			trips := int((time.Since(begun) - f.settles - c.looks) / trip)
			paid, err := r.Receipt()
			if r.Status != http.StatusOK || err != nil || paid.Extensions.OfferReceipt.Info.Receipt.Signature == "" {
				t.Fatalf("%d %s with %+v, %v", r.Status, r.Body, paid, err)
			}
			got := f.table.spent
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
	for _, kind := range freeRequests() {
		for _, c := range []struct {
			environments int
			tools        bool
			most         spent
		}{{1, false, kind.one}, {200, false, kind.many}, {1, true, kind.one}} {
			if raceDetector() && c.environments > 1 {
				continue
			}
			t.Run(fmt.Sprintf("%s, %d, tools %v", kind.name, c.environments, c.tools), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					f := newFleet(c.environments, explorer)
					next := kind.prepare(t, f, f.to(0, victim, "example.com", ""))
					time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute)))
					f.table.reset()
					var headers []string
					for range requests {
						headers = append(headers, next())
					}
					var all sync.WaitGroup
					comes(&all, requests, (time.Minute-3*time.Second)/requests, func(n int) {
						if header := headers[n]; c.tools {
							f.call(n, attacker, "example.com", header)
						} else {
							f.to(n, attacker, "example.com", header)
						}
					})
					all.Wait()
					if got := f.table.spent; got.above(c.most) {
						t.Errorf("%+v is more than %+v", got, c.most)
					}
				})
			})
		}
	}
}
