package testbed

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// Pace records how long the slowest call of a test took. Only calls that have a timeout count.
type Pace struct {
	mu      sync.Mutex
	slowest time.Duration
}

// Took records how long a call took.
func (p *Pace) Took(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.slowest = max(p.slowest, d)
}

// Fairly runs a test of a service that has timeouts. If the test fails, and one of its calls
// took at least as long as the shortest timeout, a busy machine may have caused the failure.
// Fairly then runs the test again, up to six times in all. If no call took so long, or if the
// test reported a Grave fault, the test fails at once.
func Fairly(t testing.TB, shortest time.Duration, play func(tb testing.TB, p *Pace)) {
	t.Helper()
	const tries = 6
	for try := 1; ; try++ {
		p, tr := &Pace{}, &trial{TB: t}
		tr.run(func() { play(tr, p) })
		if len(tr.faults) == 0 {
			return
		}
		if tr.grave || p.slowest < shortest || try == tries {
			t.Fatal(strings.Join(tr.faults, "\n"))
		}
		t.Logf("played again: something took %s, and then\n%s", p.slowest, strings.Join(tr.faults, "\n"))
	}
}

// Grave is a fault that a busy machine cannot cause: a wrong number of transfers of money, a
// crash, or a secret in a log.
type Grave string

func (g Grave) Error() string { return string(g) }

// trial is one run of a test. It is a testing.TB that records the faults.
type trial struct {
	testing.TB
	mu       sync.Mutex
	faults   []string
	grave    bool
	cleanups []func()
}

// run runs a function, and then the cleanups of the trial, the last one first. Each runs in a
// separate goroutine, because it may call runtime.Goexit. The method run returns when all have
// ended.
func (t *trial) run(do func()) {
	t.cleanups = []func(){do}
	for n := 1; n > 0; n = len(t.cleanups) {
		last := t.cleanups[n-1]
		t.cleanups = t.cleanups[:n-1]
		var ended sync.WaitGroup
		ended.Go(last)
		ended.Wait()
	}
}

// Cleanup registers a function that runs at the end of the trial. The faults of the function
// count as faults of the trial.
func (t *trial) Cleanup(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cleanups = append(t.cleanups, f)
}

// Error records a fault.
func (t *trial) Error(args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, a := range args {
		if _, is := a.(Grave); is {
			t.grave = true
		}
	}
	t.faults = append(t.faults, fmt.Sprint(args...))
}

func (t *trial) Errorf(format string, args ...any) { t.Error(fmt.Sprintf(format, args...)) }
func (t *trial) Fatal(args ...any)                 { t.Error(args...); runtime.Goexit() }
func (t *trial) Fatalf(format string, args ...any) { t.Errorf(format, args...); runtime.Goexit() }

func (t *trial) Failed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.faults) > 0
}
