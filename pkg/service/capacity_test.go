package service_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/service"
	"github.com/hostfacts/hostfacts/pkg/x402/limit"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// capacity is a flag that "make bench" sets. With it, TestCapacity checks more rates, and takes
// longer.
var capacity = flag.Bool("capacity", false, "sell up to 10,000 a second on a model of DynamoDB's limits")

// unitsASecond is the number of write units that DynamoDB accepts in a second for one item, or
// for one partition of an index (its developer guide, "partitions and data distribution").
// burst is the number of write units that DynamoDB accepts at once. DynamoDB may grant a
// larger burst after idle minutes, but the test does not count on that. Even with adaptive
// capacity, a single item never gets more units than a partition has.
const (
	unitsASecond = 1000
	burst        = unitsASecond / 10
)

// writeCapacity describes an item of the table or a partition of the index. It has the write
// units that are left, the time at which they were counted, the units that were used, and the
// number of refused writes.
type writeCapacity struct {
	unitsLeft                float64
	countedAt                time.Time
	unitsUsed, refusedWrites int
}

var errThrottled = errors.New("ProvisionedThroughputExceededException: throughput exceeds the limit of a partition")

// takeUnits takes write units from the item or partition called name. If not enough units are
// left, takeUnits waits and tries again, up to three times in all, as the client library does.
func (t *table) takeUnits(name string, units int) error {
	for try := range 3 {
		if t.tryTake(name, units) {
			return nil
		}
		if try < 2 {
			time.Sleep(50 * time.Millisecond << try)
		}
	}
	return errThrottled
}

func (t *table) tryTake(name string, units int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.capacities == nil {
		return true
	}
	h, now := t.capacities[name], time.Now()
	if h == nil {
		h = &writeCapacity{unitsLeft: burst, countedAt: now}
		t.capacities[name] = h
	}
	h.unitsLeft = min(burst, h.unitsLeft+now.Sub(h.countedAt).Seconds()*unitsASecond)
	h.countedAt = now
	if h.unitsLeft < float64(units) {
		h.refusedWrites++
		return false
	}
	h.unitsLeft -= float64(units)
	h.unitsUsed += units
	return true
}

// writesTo counts the writes to all items or partitions whose names begin with the given text.
// all is the number of write units that they used together, most is the largest number that
// one of them used, and refused is the number of refused writes.
func (t *table) writesTo(kind string) (all, most, refused int) {
	for name, h := range t.capacities {
		if strings.HasPrefix(name, kind) {
			all, most, refused = all+h.unitsUsed, max(most, h.unitsUsed), refused+h.refusedWrites
		}
	}
	return all, most, refused
}

// TestCapacity takes 1,000 payments a second: first only for lookups, and then for lookups and
// smoke tests in turn. With -capacity it takes from 10 to 10,000 payments a second. The Gate,
// the ledger, the index and the rate limits are real. DynamoDB and its limits are a model, and
// the fake clock advances only while every goroutine waits. At 1,000 payments a second, every
// payment must be answered.
func TestCapacity(t *testing.T) {
	t.Parallel()
	for _, rate := range []int{10, 100, 1000, 10_000} {
		if once := map[bool]int{false: 1000, true: 100}[raceDetector()]; rate != once && !*capacity {
			continue
		}
		t.Run(fmt.Sprintf("%d_a_second", rate), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { checkSales(t, rate) })
		})
		if rate >= 1000 { // once more, while half of the payments are for the smoke test (ping), which takes no concurrency slot
			t.Run(fmt.Sprintf("%d_a_second_and_ping", rate), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { checkSales(t, rate, service.Ping()) })
			})
		}
	}
}

// checkSales sends payments for one second; rate is the number of payments. They are for
// lookups and for the other operations, in turn. checkSales reports, as an attribute of the
// test, how many payments were answered and how many write units the table accepted. Up to
// 1,000 payments a second, every payment must be answered, and no write of the slots or the
// index may be refused.
func checkSales(t *testing.T, rate int, others ...service.Operation) {
	// slotsPerPayment is the number of slots of the operation, divided by the number of
	// payments that arrive in a second. Two is more than enough, because a payment holds its
	// slot for half a second: that is the time of a settlement and a lookup.
	const slotsPerPayment = 2
	f := newFleet(t, 1, dnsExplorer, func(p *parts) {
		if p.Limits.Single = max(50, slotsPerPayment*rate); p.Limits.Single > limit.MaxCap {
			p.Limits.Single = 0 // the limit is turned off, as the runbook advises for so many lookups at once
		}
	})
	for _, op := range others {
		f.add(op)
	}
	var offers []x402test.Reply
	for k := range f.environments {
		offers = append(offers, f.send(k, victim, "example.com", ""))
	}
	var headers []string
	for i := range rate {
		headers = append(headers, f.sign(offers[i%len(offers)], true))
	}
	f.table.capacities, f.table.callTime = map[string]*writeCapacity{}, 3*time.Millisecond
	var crowd sync.WaitGroup
	var mu sync.Mutex
	statuses := map[int]int{}
	for i, header := range headers {
		crowd.Go(func() {
			time.Sleep(time.Duration(i) * time.Second / time.Duration(rate))
			r := f.send(i, fmt.Sprintf("10.%d.%d.%d:1", i>>16, i>>8&255, i&255), "example.com", header)
			mu.Lock()
			statuses[r.Status]++
			mu.Unlock()
		})
	}
	crowd.Wait()
	_, index, indexRefused := f.table.writesTo("index ")
	leases, slots, slotsRefused := f.table.writesTo("slots ")
	records, _, _ := f.table.writesTo("record ")
	sold, units := statuses[http.StatusOK], leases+records
	t.Attr("sold", strings.Trim(fmt.Sprint([]int{rate, sold * 100 / rate, units, slots, slotsRefused, index, indexRefused}), "[]"))
	if rate <= 1000 && (sold != rate || indexRefused+slotsRefused > 0) {
		t.Errorf("of %d payments were answered %v; refused writes: slots %d, index %d", rate, statuses, slotsRefused, indexRefused)
	}
}

// priceCall is what AWS charges for each call in addition to the resources that the call uses,
// in US dollars. This price and those in priceOf are the list prices of AWS in us-east-1,
// without the free tiers and the volume discounts.
const priceCall = 0.20/1e6 + 1.00/1e6 // Lambda's invocation, and the HTTP API

func priceOf() map[string]float64 {
	return map[string]float64{
		"GB-s":        0.0000133334,     // Lambda, arm64
		"write-units": 0.625 / 1e6,      // DynamoDB, on demand
		"read-units":  0.125 / 1e6,      // DynamoDB, on demand
		"log-bytes":   0.50 / (1 << 30), // CloudWatch Logs, ingested
		"out-bytes":   0.09 / (1 << 30), // to the internet
	}
}

// A call adds these bytes to the logs, besides the log line of the function. platformLines is
// the size of Lambda's start and report lines in JSON. gatewayLine is the size of API
// Gateway's line.
const (
	platformLines = 650
	gatewayLine   = 400
)

// kindOfCall is a kind of call whose cost is counted. Its time on Lambda is an assumption,
// because it depends mostly on the facilitator and the target.
type kindOfCall struct {
	name     string        // the name of the kind in its row of the README's table
	duration time.Duration // the time on Lambda
	fee      float64       // the fee of the facilitator, in US dollars
	call     func(f *fleet) x402test.Reply
}

// fee is what the CDP facilitator charges for a settlement, in US dollars.
const fee = 0.001

func kindsOfCalls() []kindOfCall {
	payFor := func(f *fleet, rich bool) x402test.Reply {
		return f.send(0, victim, "example.com", f.sign(f.send(0, attacker, "example.com", ""), rich))
	}
	return []kindOfCall{
		{"challenge", 5 * time.Millisecond, 0, func(f *fleet) x402test.Reply { return f.send(0, victim, "example.com", "") }},
		{"paid call", 3 * time.Second, fee, func(f *fleet) x402test.Reply { return payFor(f, true) }},
		{"refused payment", time.Second, 0, func(f *fleet) x402test.Reply { return payFor(f, false) }},
	}
}

// count returns, by name, the resources that a call uses and, as "$/million", the cost of a
// million such calls in US dollars.
func (k kindOfCall) count(t *testing.T) map[string]float64 {
	t.Helper()
	var log bytes.Buffer
	f := newFleet(t, 1, dnsExplorer, func(p *parts) {
		p.Stack, p.Function, p.Log = "hostfacts-production", "hostfacts", slog.New(slog.NewJSONHandler(&log, nil))
	})
	k.call(f) // the first call also does work that is needed only once; the second call is counted
	f.table.reset()
	log.Reset()
	r := k.call(f)
	lines := strings.SplitAfter(strings.TrimSuffix(log.String(), "\n"), "\n")
	var head strings.Builder
	testbed.Check(r.Header.Write(&head))
	c := map[string]float64{
		"GB-s":        memory(t) / 1024 * k.duration.Seconds(),
		"write-units": float64(f.table.Units), "read-units": float64(f.table.Reads),
		"log-bytes": float64(len(lines[len(lines)-1]) + platformLines + gatewayLine),
		"out-bytes": float64(head.Len() + len(r.Body)), "$/million": 1e6 * priceCall,
	}
	for unit, price := range priceOf() {
		c["$/million"] += 1e6 * price * c[unit]
	}
	return c
}

// memory returns the memory of a deployed function, in MB.
func memory(t *testing.T) float64 {
	t.Helper()
	m := regexp.MustCompile(`(?m)^    MemorySize: (\d+)$`).FindSubmatch(testbed.Must(os.ReadFile("../../template.yaml")))
	if m == nil {
		t.Fatal("template.yaml no longer says where this test looks for it how much memory a function has")
	}
	return testbed.Must(strconv.ParseFloat(string(m[1]), 64))
}

// fixedCosts is what metrics, alarms and the dashboard cost in a year, in US dollars, however
// many calls there are. recordBytes is the size of the record of a sale. priceStored is the
// price of a byte that is stored for 35 days in the table and in its point-in-time recovery.
// priceLogged is the price of a byte that is stored for 90 days in the log.
const (
	fixedCosts  = 12 * 54
	recordBytes = 3 << 10
	priceStored = (0.25 + 0.20) / (1 << 30) * 35 / 30.4 // US dollars a byte
	priceLogged = 0.03 / (1 << 30) * 90 / 30.4
)

// isNear reports whether a number in a document differs from want by at most a tenth of want.
// The counted sizes differ a little from run to run, because of ids and compression.
func isNear(figure string, want float64) bool {
	n, err := strconv.ParseFloat(strings.ReplaceAll(figure, ",", ""), 64)
	return err == nil && math.Abs(n-want) <= 0.1*want
}

// TestReadmeCosts counts what calls cost on AWS. The README must have the cost of each kind of
// call. For 1, 10 and 1,000 sales a second, the runbook must have the costs of a year on AWS,
// the fees of the facilitator and the income. "make bench" prints the counted costs.
func TestReadmeCosts(t *testing.T) {
	t.Parallel()
	readme, runbook := testbed.Must(os.ReadFile("../../README.md")), testbed.Must(os.ReadFile("../../infra/RUNBOOK.md"))
	sold := recordBytes * priceStored // the cost of one sale: first the storage of its record; the loop adds the paid call and its challenge
	for _, k := range kindsOfCalls() {
		var c map[string]float64
		synctest.Test(t, func(t *testing.T) { c = k.count(t) })
		name := "| " + k.name + ", " + k.duration.String() + " |"
		if k.name != "refused payment" {
			sold += c["$/million"]/1e6 + c["log-bytes"]*priceLogged
		}
		t.Attr(strings.ReplaceAll(k.name, " ", "-"), fmt.Sprint(c["GB-s"], c["write-units"], c["read-units"], c["log-bytes"], c["out-bytes"], c["$/million"]))
		counted := []float64{c["GB-s"], c["write-units"], c["read-units"], c["log-bytes"] / 1024, c["$/million"], 1e6 * k.fee}
		row := fmt.Sprintf("%s %.4g | %g, %g | %.1f KB | $%.2f | $%g |", name, counted[0], counted[1], counted[2], counted[3], counted[4], counted[5])
		line := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + `.*$`).Find(readme)
		said := regexp.MustCompile(`[\d.e-]+`).FindAllString(strings.TrimPrefix(string(line), name), -1)
		for i, want := range counted {
			if len(said) != len(counted) || !isNear(said[i], want) {
				t.Errorf("the README says %q, counted is\n%s", line, row)
				break
			}
		}
	}
	for rate, name := range map[float64]string{1: "1", 10: "10", 1000: "1,000"} {
		calls := rate * 365 * 24 * 3600
		want := []float64{fixedCosts + calls*sold, (calls - 12*1000) * fee, calls * 0.005}
		row := regexp.MustCompile(`(?m)^\| ` + name + ` \| \$([\d,]+) \| \$([\d,]+) \| \$([\d,]+) \|$`).FindSubmatch(runbook)
		for i := range want {
			if len(row) != 4 || !isNear(string(row[i+1]), want[i]) {
				t.Errorf("the runbook says %q of a year at %s a second, counted is $%.0f, $%.0f, $%.0f", row, name, want[0], want[1], want[2])
				break
			}
		}
	}
}
