package gameday

import (
	"fmt"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/gameday/cloudwatch"
	"github.com/hostfacts/hostfacts/pkg/service"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// TestMachines: only what a function says came too late from a whole table, and
// a time that the table's own clock has measured as well, is the machine's.
func TestMachines(t *testing.T) {
	t.Parallel()
	begun := time.Unix(1_800_000_000, 0)
	p := newPhases()
	for _, payer := range []string{"slow", "quick"} {
		took := map[string]time.Duration{"slow": 2 * slowest, "quick": time.Second}[payer]
		p.arrives(call{payer: payer, state: ledger.Settling, leased: true}, begun)
		p.written(call{payer: payer, state: ledger.Settling, leased: true}, begun)
		p.arrives(call{payer: payer, state: ledger.Settled, leased: true}, begun.Add(time.Second))
		p.written(call{payer: payer, state: ledger.Settled, leased: true}, begun.Add(time.Second))
		p.arrives(call{payer: payer, state: ledger.Settled}, begun.Add(time.Second+took))
		p.written(call{payer: payer, state: ledger.Settled}, begun.Add(time.Second+took))
		// Nobody holds it for an hour.
		p.arrives(call{payer: payer, state: ledger.Settled, leased: true}, begun.Add(time.Hour))
	}
	for _, c := range []struct {
		name   string
		value  float64 // milliseconds
		payer  string
		late   bool
		stable bool
		want   bool
	}{
		{name: service.MetricLedger, late: true, stable: true, want: true},
		{name: service.MetricLedger, late: true},
		{name: service.MetricLedger, stable: true},
		{name: service.MetricOwed, late: true, stable: true},
		{name: service.ReadyMetric(service.ProbeResolvers), late: true, want: true},
		{name: service.ReadyMetric(service.ProbeResolvers), late: true, value: 1},
		{name: service.ReadyMetric(service.ProbeResolvers)},
		{name: service.MetricLookup, payer: "slow", value: 9000, want: true},
		{name: service.MetricLookup, payer: "slow", value: 11000},  // longer than anybody else has measured
		{name: service.MetricLookup, payer: "quick", value: 900},   // the machine was quick
		{name: service.MetricLookup, payer: "nobody", value: 9000}, // not measured
		{name: service.MetricSettle, payer: "slow", value: 9000},   // the lookup was slow
	} {
		v := dated{Sample: cloudwatch.Sample{Metric: cloudwatch.NewMetric("", c.name, nil), Value: c.value}, payer: c.payer, late: c.late}
		if got := machines(v, c.stable, p); got != c.want {
			t.Errorf("%+v: the machine's is %t, want %t", c, got, c.want)
		}
	}
}

// TestLate: what counts is what the log says of one payer's calls.
func TestLate(t *testing.T) {
	t.Parallel()
	s := &series{}
	for _, line := range []string{
		`{"payer":"0xa","error":"write settled: dynamo: put item: context deadline exceeded"}`,
		`{"payer":"0xb","error":"post: dial: i/o timeout"}`,
		`{"payer":"0xc","error":"dynamo: put item: ThrottlingException"}`,
	} {
		_, _ = fmt.Fprintln(s, line)
	}
	for payer, want := range map[string][2]bool{"0xa": {true, true}, "0xb": {true, false}, "0xc": {}, "0xd": {}} {
		if got := [2]bool{s.late(payer), s.lateAtTable(payer)}; got != want {
			t.Errorf("of %s it says %v, want %v", payer, got, want)
		}
	}
}

// TestTurnstile: who has passed makes room for one, once.
func TestTurnstile(t *testing.T) {
	t.Parallel()
	s := newTurnstile(1)
	first := s.enter("a")
	s.passed("a")
	second := s.enter("b")
	first()
	if len(s.room) != 1 {
		t.Error("one who has passed makes room twice")
	}
	second()
	s.passed("b")
	if len(s.room) != 0 {
		t.Error("one who has left is still there")
	}
}
