package testbed

import (
	"runtime"
	"sync"
	"testing"
	"time"
)

// recorder is a testing.TB that counts complaints.
type recorder struct {
	testing.TB
	complaints int
	cleanups   []func()
}

func (r *recorder) Cleanup(f func())      { r.cleanups = append(r.cleanups, f) }
func (r *recorder) Errorf(string, ...any) { r.complaints++ }
func (r *recorder) Fatal(...any)          { r.complaints++; runtime.Goexit() }

// What a busy machine made fail is played again, but never what is grave.
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
			r, plays := &recorder{TB: t}, 0
			var all sync.WaitGroup
			all.Go(func() {
				Fairly(r, time.Second, func(tb testing.TB, p *Pace) {
					p.Took(c.took)
					if plays++; plays == 1 {
						tb.Error(c.fault)
					}
				})
			})
			if all.Wait(); plays != c.plays || r.complaints != c.complaints {
				t.Errorf("%d plays and %d complaints", plays, r.complaints)
			}
		})
	}
}
