package testbed

import (
	"testing"
	"time"
)

// TestFairly checks that Fairly runs a test again if a busy machine may have made it fail. After
// a Grave fault, which a busy machine cannot cause, Fairly must not run the test again.
func TestFairly(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name              string
		fault             any
		took              time.Duration
		plays, complaints int
	}{
		{name: "late", fault: "late", took: time.Minute, plays: 2},
		{name: "in time", fault: "wrong", plays: 1, complaints: 1},
		{name: "grave", fault: Grave("paid twice"), took: time.Minute, plays: 1, complaints: 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			outer, plays := &trial{TB: t}, 0
			outer.run(func() {
				Fairly(outer, time.Second, func(tb testing.TB, p *Pace) {
					p.Took(c.took)
					if plays++; plays == 1 {
						tb.Error(c.fault)
					}
				})
			})
			if plays != c.plays || len(outer.faults) != c.complaints {
				t.Errorf("%d plays and %d complaints", plays, len(outer.faults))
			}
		})
	}
}
