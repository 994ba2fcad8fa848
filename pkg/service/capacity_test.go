package service_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hostfacts/hostfacts/pkg/limit"
	"github.com/hostfacts/hostfacts/pkg/service"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// capacity asks TestCapacity for rates that take long, too (make bench).
var capacity = flag.Bool("capacity", false, "sell up to 10,000 a second on a model of DynamoDB's limits")

// What DynamoDB takes of one item, and of one partition of an index, in a second
// (its developer guide, "partitions and data distribution"), and how much of that at
// once. The burst that it may grant after idle minutes is not counted on.
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

// tableLoad is a model of the table under load: it refuses what is written to an
// item or an index partition beyond its units, as often as a client library asks.
// Adaptive capacity gives a single item as much as a partition has, and no more.
type tableLoad struct {
	mu    sync.Mutex
	hot   map[string]*hot
	begun time.Time
	units int // of the table
}

func newTableLoad() *tableLoad { return &tableLoad{hot: map[string]*hot{}, begun: time.Now()} }

var errThrottled = errors.New("ProvisionedThroughputExceededException: throughput exceeds the limit of a partition")

// take writes so many units to an item or a partition.
func (l *tableLoad) take(name string, units int) error {
	for try, pause := 0, 50*time.Millisecond; ; try, pause = try+1, 2*pause {
		if l.tried(name, units) {
			return nil
		}
		if try == 2 { // the attempts of the client library
			return errThrottled
		}
		time.Sleep(pause)
	}
}

func (l *tableLoad) tried(name string, units int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	h, now := l.hot[name], time.Now()
	if h == nil {
		h = &hot{left: burst, at: now}
		l.hot[name] = h
	}
	h.left = min(burst, h.left+now.Sub(h.at).Seconds()*unitsASecond)
	h.at = now
	if h.left < float64(units) {
		h.refused++
		return false
	}
	h.left -= float64(units)
	h.units += units
	if !strings.Contains(name, "index ") {
		l.units += units
	}
	return true
}

// record writes a record over another one: its item, and what leaves the index and
// comes to it. A record's item is one payment's or one purchase's.
func (l *tableLoad) record(s *itemSizes, r ledger.Record, was itemSize) error {
	if l == nil {
		return nil
	}
	w := s.sizeOf(r)
	if w.index != was.index {
		for _, keys := range []string{w.index, was.index} {
			if partition, _, ok := strings.Cut(keys, " "); ok {
				if err := l.take("index "+partition, 1); err != nil {
					return err
				}
			}
		}
	}
	return l.take("record "+r.Key, max(w.table, was.table))
}

// leases writes the leases of an operation: one item, of 20 bytes a lease
// (pkg/dynamo's TestSlotUnits).
func (l *tableLoad) leases(ctx context.Context, m *limit.Memory, item string) error {
	if l == nil || item == "" {
		return nil
	}
	held, _, err := m.Acquire(ctx, item, limit.Lease{}, 0)
	if err != nil {
		return err
	}
	return l.take("slots "+item, (20*(len(held)+1)+1023)/1024)
}

// hottest is the most that was written to one item or partition of a kind, and how often that kind was refused.
func (l *tableLoad) hottest(kind string) (units, refused int) {
	for name, h := range l.hot {
		if strings.HasPrefix(name, kind) {
			units, refused = max(units, h.units), refused+h.refused
		}
	}
	return units, refused
}

// TestCapacity sells one operation, and one beside the smoke test, at rates up to
// 1,000 a second, and with -capacity 10,000, through the real Gate, ledger, index
// and limits, over a model of DynamoDB's limits and by a clock that nothing else
// moves. Nobody is refused at 1,000.
func TestCapacity(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rate  int
		all   bool
		quick bool
	}{{10, false, true}, {100, false, true}, {1000, false, false}, {1000, true, false}, {10_000, false, false}, {10_000, true, false}} {
		name := fmt.Sprintf("%d_a_second", c.rate)
		if c.all {
			name += "_and_ping"
		}
		t.Run(name, func(t *testing.T) {
			if !c.quick && (raceDetector || c.rate > 1000 && !*capacity) {
				return
			}
			synctest.Test(t, func(t *testing.T) { sells(t, c.rate, c.all) })
		})
	}
}

// sells sends a second's payments, and reports what the table took.
func sells(t *testing.T, rate int, all bool) {
	// A lookup and a settlement take half a second together.
	const busy = 2
	f := newFleetOn(platform(), 1, explorer, max(50, busy*rate))
	if all { // an environment of the smoke test, which takes no slot, over the same table
		f.environments = append(f.environments, f.parts.seller().Handler(service.Ping()))
	}
	var offers []x402test.Reply
	for k := range f.environments {
		offers = append(offers, f.to(k, victim, "example.com", ""))
	}
	var headers []string
	for i := range rate {
		headers = append(headers, f.sign(offers[i%len(offers)], true))
	}
	f.bill.load = newTableLoad()
	f.bill.trip = 3 * time.Millisecond
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
	load := f.bill.load
	index, indexRefused := load.hottest("index ")
	slots, slotsRefused := load.hottest("slots ")
	t.Attr("sold", fmt.Sprintf("%d %d %d %d %d %d %d", rate, statuses[http.StatusOK]*100/rate, load.units, slots, slotsRefused, index, indexRefused))
	t.Logf("%d a second: statuses %v; %d write units a second; hottest slots item %d, refused %d; hottest index partition %d, refused %d",
		rate, statuses, load.units, slots, slotsRefused, index, indexRefused)
	if rate <= 1000 && (statuses[http.StatusOK] != rate || indexRefused+slotsRefused > 0) {
		t.Errorf("%d of %d payments were answered; refused writes: slots %d, index %d", statuses[http.StatusOK], rate, slotsRefused, indexRefused)
	}
}
