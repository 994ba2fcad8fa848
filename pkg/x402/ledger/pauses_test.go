package ledger_test

import (
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// runsInADay plays a client that asks for an owed answer every ten seconds for a day. Every
// lookup fails at once. runsInADay returns the times at which the lookups begin.
func runsInADay() []time.Duration {
	const every = 10 * time.Second
	runs := []time.Duration{0}
	for {
		pause := ledger.NextLookup(ledger.Payment{Lookups: len(runs)})
		next := runs[len(runs)-1] + max(pause, every)
		if next > 24*time.Hour {
			return runs
		}
		runs = append(runs, next)
	}
}

// TestPausesAfterAnOutage checks the pauses between lookups for a client that keeps asking.
// After an outage of 10 to 20 minutes, the answer must come within 15 minutes on average. An
// outage of a day must cost 25 to 30 lookups: one an hour, plus a few at the beginning.
func TestPausesAfterAnOutage(t *testing.T) {
	runs := runsInADay()
	if len(runs) < 25 || len(runs) > 30 {
		t.Errorf("%d runs in a day", len(runs))
	}
	var sum time.Duration
	n := 0
	for end := 10 * time.Minute; end < 20*time.Minute; end += 30 * time.Second {
		for _, at := range runs {
			if at >= end {
				sum += at - end
				n++
				break
			}
		}
	}
	if mean := sum / time.Duration(n); n != 20 || mean > 15*time.Minute {
		t.Errorf("after an outage of 10 to 20 minutes the answer takes %s more on average, of %d", mean, n)
	}
}
