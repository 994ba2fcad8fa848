package e2e

import (
	"fmt"
	"net/http/httptest"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/dynamotest"
	"github.com/hostfacts/hostfacts/infra/local/lambdahost"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// BenchmarkMemory is the resident memory of the deployed dns function after
// 1,000 paid requests, each for another name (design §12).
func BenchmarkMemory(b *testing.B) {
	const requests = 1000
	if runtime.GOOS != "linux" {
		b.Skip("needs /proc to read the memory of a process")
	}
	for b.Loop() {
		l := newLab(b)
		db := dynamotest.Start(b)
		config := lambdaConfig(b, l.setup(), db.Table(b), db.URL)
		pid := 0
		config.OnSpawn = func(p lambdahost.Process) { pid = p.PID }
		host, err := lambdahost.New(config)
		if err != nil {
			b.Fatal(err)
		}
		server := httptest.NewServer(host)
		d := &deployment{base: server.URL, origin: "https://" + gatewayDomain}
		begin, end := payALot(b, l, d, requests, func() int { return resident(b, pid, "VmRSS") })
		peak := resident(b, pid, "VmHWM")
		spawned := host.Stats("DnsFunction").Spawned
		server.Close()
		host.Close()
		if spawned != 1 {
			b.Fatalf("%d processes, want one", spawned)
		}
		b.ReportMetric(0, "ns/op") // it would count the suite's own work
		b.ReportMetric(float64(begin)/1024, "MB/first")
		b.ReportMetric(float64(end)/1024, "MB/1000th")
		b.ReportMetric(float64(peak)/1024, "MB/peak")
	}
}

// payALot pays for n lookups, one after the other, and measures after the first
// and after the last.
func payALot(b *testing.B, l *lab, d *deployment, n int, measure func() int) (first, last int) {
	b.Helper()
	client := newClient()
	defer client.CloseIdleConnections()
	wallet, payer := l.wallet(b)
	e := d.get(b, client, lookup("example.com", "A"), "")
	required, err := x402test.Reply{Status: e.status, Header: e.header, Body: e.body}.Required()
	if err != nil {
		b.Fatal(err)
	}
	for i := range n {
		path := lookup(fmt.Sprintf("m%d.healthy%s", i, strings.TrimSuffix(labDomain, ".")), "A")
		header, err := wallet.Pay(required, time.Now())
		if err != nil {
			b.Fatal(err)
		}
		if e := d.get(b, client, path, header); e.status != 200 || e.header.Get(x402.HeaderResponse) == "" {
			b.Fatalf("payment %d: %s", i, e)
		}
		if i == 0 {
			first = measure()
		}
	}
	if err := l.books(payer, "5000", n, n); err != nil {
		b.Fatal(err)
	}
	return first, measure()
}

// resident reads a line of a process's status, in kB.
func resident(tb testing.TB, pid int, name string) int {
	tb.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		tb.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == name+":" && fields[2] == "kB" {
			if n, err := strconv.Atoi(fields[1]); err == nil {
				return n
			}
		}
	}
	tb.Fatalf("the status of process %d has no %s", pid, name)
	return 0
}
