package service_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// List prices of AWS in us-east-1, in US dollars, without the free tiers and the
// rebates for much.
const (
	priceInvocation = 0.20 / 1e6       // Lambda
	priceGBSecond   = 0.0000133334     // Lambda, arm64
	priceGateway    = 1.00 / 1e6       // HTTP API
	priceWriteUnit  = 0.625 / 1e6      // DynamoDB, on demand
	priceReadUnit   = 0.125 / 1e6      // the same
	priceLogByte    = 0.50 / (1 << 30) // CloudWatch Logs, ingested
	priceOutByte    = 0.09 / (1 << 30) // to the internet
)

// What is logged besides the function's line, in bytes: Lambda's start and report
// as JSON, and the gateway's line.
const (
	platformLines = 650
	gatewayLine   = 400
)

// kindOfCall is a call that is paid for in another way: how long it takes on Lambda
// is mostly how long the facilitator and the target take, which is assumed.
type kindOfCall struct {
	name string // as in the README
	took time.Duration
	do   func(f *fleet) x402test.Reply
}

func kindsOfCalls() []kindOfCall {
	paid := func(f *fleet, rich bool) x402test.Reply {
		return f.to(0, victim, "example.com", f.sign(f.to(0, attacker, "example.com", ""), rich))
	}
	return []kindOfCall{
		{"challenge", 5 * time.Millisecond, func(f *fleet) x402test.Reply { return f.to(0, victim, "example.com", "") }},
		{"paid call", 3 * time.Second, func(f *fleet) x402test.Reply { return paid(f, true) }},
		{"refused payment", time.Second, func(f *fleet) x402test.Reply { return paid(f, false) }},
	}
}

// cost is what a call takes, and comes to.
type cost struct {
	gbSeconds          float64
	writes, reads      int // units
	logBytes, outBytes int
}

// dollars are for a million of such calls.
func (c cost) dollars() float64 {
	return 1e6 * (priceInvocation + priceGateway + c.gbSeconds*priceGBSecond + float64(c.writes)*priceWriteUnit +
		float64(c.reads)*priceReadUnit + float64(c.logBytes)*priceLogByte + float64(c.outBytes)*priceOutByte)
}

// count counts what a call takes.
func (k kindOfCall) count(t testing.TB) (c cost) {
	t.Helper()
	var log bytes.Buffer
	where := platform()
	where.Stack, where.Log = "hostfacts-production", slog.New(slog.NewJSONHandler(&log, nil))
	f := newFleetOn(where, 1, explorer, 50)
	k.do(f) // whatever is done once
	f.table.reset()
	log.Reset()
	r := k.do(f)
	lines := strings.SplitAfter(strings.TrimSuffix(log.String(), "\n"), "\n")
	var head strings.Builder
	if err := r.Header.Write(&head); err != nil {
		t.Fatal(err)
	}
	return cost{
		gbSeconds: memory(t) / 1024 * k.took.Seconds(), writes: f.table.Units, reads: f.table.Reads,
		logBytes: len(lines[len(lines)-1]) + platformLines + gatewayLine, outBytes: head.Len() + len(r.Body),
	}
}

// memory is what a function has, in MB.
func memory(t testing.TB) float64 {
	t.Helper()
	m := regexp.MustCompile(`(?m)^    MemorySize: (\d+)$`).FindSubmatch(must(os.ReadFile("../../template.yaml")))
	if m == nil {
		t.Fatal("template.yaml no longer says where this test looks for it how much memory a function has")
	}
	return must(strconv.ParseFloat(string(m[1]), 64))
}

// TestReadmeCosts: the README says what a call costs on AWS, as it is counted here.
func TestReadmeCosts(t *testing.T) {
	t.Parallel()
	readme := must(os.ReadFile("../../README.md"))
	for _, k := range kindsOfCalls() {
		var c cost
		synctest.Test(t, func(t *testing.T) { c = k.count(t) })
		name := "| " + k.name + ", " + k.took.String() + " |"
		kilobytes := float64(c.logBytes) / 1024
		row := fmt.Sprintf("%s %.4g | %d, %d | %.1f KB | $%.2f |", name, c.gbSeconds, c.writes, c.reads, kilobytes, c.dollars())
		line := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + `.*$`).Find(readme)
		said := regexp.MustCompile(`[\d.e-]+`).FindAllString(strings.TrimPrefix(string(line), name), -1)
		for i, want := range []float64{c.gbSeconds, float64(c.writes), float64(c.reads), kilobytes, c.dollars()} {
			// Ids and compression make sizes differ a little.
			if len(said) != 5 || math.Abs(must(strconv.ParseFloat(said[i], 64))-want) > 0.1*want {
				t.Errorf("the README says %q, counted is\n%s", line, row)
				break
			}
		}
	}
}

// BenchmarkCost prints what a call costs on AWS by list prices, for make bench. The
// time of the benchmark itself says nothing.
func BenchmarkCost(b *testing.B) {
	for _, k := range kindsOfCalls() {
		b.Run(strings.ReplaceAll(k.name, " ", "-"), func(b *testing.B) {
			var c cost
			for b.Loop() {
				c = k.count(b)
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(c.gbSeconds, "GB-s")
			b.ReportMetric(float64(c.writes), "write-units")
			b.ReportMetric(float64(c.reads), "read-units")
			b.ReportMetric(float64(c.logBytes), "log-bytes")
			b.ReportMetric(float64(c.outBytes), "out-bytes")
			b.ReportMetric(c.dollars(), "$/million")
		})
	}
}
