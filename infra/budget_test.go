package main

import (
	"testing"

	"github.com/hostfacts/hostfacts/pkg/catalog"
)

// List prices of CloudWatch in us-east-1, US dollars a month.
const (
	priceMetric    = 0.30 // of one's own, each by each value of its dimensions
	priceAlarm     = 0.10 // each metric of an alarm
	priceDashboard = 3.00
)

// Calls of an honest month, and what each costs by the README's table, which
// pkg/service counts.
const (
	challenges, priceChallenge = 1_000_000, 2.52e-6
	paidCalls, pricePaid       = 100_000, 29.14e-6
)

// TestBudget: the notice at 80 % does not come in a month in which everything was
// used and nothing was wrong.
func TestBudget(t *testing.T) {
	t.Parallel()
	d := synthesized(t)
	// What requests are counted by is kept in all, by operation and of the tools.
	ofRuns := len(readyMetrics()) + 9 + 1 // reconcile's, and the gateway's
	series := (len(writtenMetrics())-ofRuns)*(1+len(catalog.All())+1) + ofRuns
	alarms, err := readAlarms(d)
	if err != nil {
		t.Fatal(err)
	}
	billed := 0
	for _, a := range alarms {
		list, _ := metrics(a)
		billed += len(list)
	}
	month := priceMetric*float64(series) + priceAlarm*float64(billed) + priceDashboard + challenges*priceChallenge + paidCalls*pricePaid
	t.Logf("%d series, %d metrics of alarms: $%.2f a month", series, billed, month)
	if month > 0.8*defaultBudget || month < 0.5*defaultBudget {
		t.Errorf("an honest month costs $%.2f, the budget is $%d", month, defaultBudget)
	}
}
