package service_test

import (
	"errors"
	"flag"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hostfacts/hostfacts/pkg/service"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// capacity asks TestCapacity for rates that take long, too (make bench).
var capacity = flag.Bool("capacity", false, "sell up to 10,000 a second on a model of DynamoDB's limits")

// What DynamoDB takes of one item, and of one partition of an index, in a second
// (its developer guide, "partitions and data distribution"), and how much of that at
// once. The burst that it may grant after idle minutes is not counted on. Adaptive
// capacity gives a single item as much as a partition has, and no more.
const (
	unitsASecond = 1000
	burst        = unitsASecond / 10
)

// hot is an item or a partition of the index: a bucket of write units.
type hot struct {
	left           float64
	at             time.Time
	units, refused int
}

var errThrottled = errors.New("ProvisionedThroughputExceededException: throughput exceeds the limit of a partition")

// take takes so many units of an item or a partition, if it has them, and tries as often as
// the client library does.
func (t *table) take(name string, units int) error {
	for try := range 3 {
		if t.tried(name, units) {
			return nil
		}
		if try < 2 {
			time.Sleep(50 * time.Millisecond << try)
		}
	}
	return errThrottled
}

func (t *table) tried(name string, units int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.hot == nil {
		return true
	}
	h, now := t.hot[name], time.Now()
	if h == nil {
		h = &hot{left: burst, at: now}
		t.hot[name] = h
	}
	h.left = min(burst, h.left+now.Sub(h.at).Seconds()*unitsASecond)
	h.at = now
	if h.left < float64(units) {
		h.refused++
		return false
	}
	h.left -= float64(units)
	h.units += units
	return true
}

// written is what was written to the items or partitions of a kind: to all, and to one at
// most; and how often it was refused.
func (t *table) written(kind string) (all, most, refused int) {
	for name, h := range t.hot {
		if strings.HasPrefix(name, kind) {
			all, most, refused = all+h.units, max(most, h.units), refused+h.refused
		}
	}
	return all, most, refused
}

// TestCapacity sells one operation, and one beside the smoke test, at rates up to
// 1,000 a second, and with -capacity 10,000, through the real Gate, ledger, index
// and limits, over a model of DynamoDB's limits and by a clock that nothing else
// moves. Nobody is refused at 1,000.
func TestCapacity(t *testing.T) {
	t.Parallel()
	for _, rate := range []int{10, 100, 1000, 10_000} {
		if rate > 1000 && !*capacity || rate > 100 && raceDetector() {
			continue
		}
		t.Run(fmt.Sprintf("%d_a_second", rate), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { sells(t, rate) })
		})
		if rate >= 1000 { // beside an environment of the smoke test, which takes no slot, over the same table
			t.Run(fmt.Sprintf("%d_a_second_and_ping", rate), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { sells(t, rate, service.Ping()) })
			})
		}
	}
}

// sells sends a second's payments for lookups, and for others by turns, and reports what the
// table took.
func sells(t *testing.T, rate int, others ...service.Operation) {
	// A lookup and a settlement take half a second together.
	const busy = 2
	f := newFleetOn(platform(), 1, explorer, max(50, busy*rate))
	for _, op := range others {
		f.environments = append(f.environments, f.parts.seller().Handler(op))
	}
	var offers []x402test.Reply
	for k := range f.environments {
		offers = append(offers, f.to(k, victim, "example.com", ""))
	}
	var headers []string
	for i := range rate {
		headers = append(headers, f.sign(offers[i%len(offers)], true))
	}
	f.table.hot, f.table.trip = map[string]*hot{}, 3*time.Millisecond
	var crowd sync.WaitGroup
	var mu sync.Mutex
	statuses := map[int]int{}
	for i, header := range headers {
		crowd.Go(func() {
			time.Sleep(time.Duration(i) * time.Second / time.Duration(rate))
			r := f.to(i, fmt.Sprintf("10.%d.%d.%d:1", i>>16, i>>8&255, i&255), "example.com", header)
			mu.Lock()
			statuses[r.Status]++
			mu.Unlock()
		})
	}
	crowd.Wait()
	_, index, indexRefused := f.table.written("index ")
	leases, slots, slotsRefused := f.table.written("slots ")
	records, _, _ := f.table.written("record ")
	sold, units := statuses[http.StatusOK], leases+records
	t.Attr("sold", strings.Trim(fmt.Sprint([]int{rate, sold * 100 / rate, units, slots, slotsRefused, index, indexRefused}), "[]"))
	t.Logf("%d a second: statuses %v; %d write units a second; hottest slots item %d, refused %d; hottest index partition %d, refused %d",
		rate, statuses, units, slots, slotsRefused, index, indexRefused)
	if rate <= 1000 && (sold != rate || indexRefused+slotsRefused > 0) {
		t.Errorf("%d of %d payments were answered; refused writes: slots %d, index %d", sold, rate, slotsRefused, indexRefused)
	}
}
