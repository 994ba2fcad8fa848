package e2e

import (
	"fmt"
	"net/http"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/dynamo"
)

// verifyOnly skips what a quick run leaves out: go test -short needs Go alone,
// and waits for nothing that takes long.
func verifyOnly(tb testing.TB, why string) {
	tb.Helper()
	if testing.Short() {
		tb.Skip("runs in make verify: " + why)
	}
}

// pace is how long the slowest request of a test took.
type pace struct {
	mu      sync.Mutex
	slowest time.Duration
}

// took notes how long something took for which the service has a time-out.
func (p *pace) took(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.slowest = max(p.slowest, d)
}

// overdue says whether something took as long as the shortest of the service's
// time-outs, which is that of an attempt at a call of the store.
func (p *pace) overdue() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.slowest >= dynamo.DefaultAttemptTimeout
}

// client is newClient with its requests noted.
func (p *pace) client() *http.Client {
	c := newClient()
	c.Transport = paced{c.Transport.(*http.Transport), p}
	return c
}

// paced is a transport that notes how long answers take to begin.
type paced struct {
	*http.Transport
	pace *pace
}

func (t paced) RoundTrip(r *http.Request) (*http.Response, error) {
	begun := time.Now()
	defer func() { t.pace.took(time.Since(begun)) }()
	return t.Transport.RoundTrip(r)
}

// fairTries is how often a test is played on a machine that is too slow for it.
const fairTries = 8

// fairly plays a test of a service that has time-outs of its own. One that
// fails is played again when something in it took as long as one of them: a
// machine that is busy with something else may then have decided how it went,
// and not the service. A test that fails in time has failed, and so has one
// that fails every time. No machine is too slow for the faults that are grave.
func fairly(t testing.TB, play func(tb testing.TB, p *pace)) {
	t.Helper()
	for try := 1; ; try++ {
		p, tr := &pace{}, &trial{TB: t}
		tr.run(func() { play(tr, p) })
		if tr.skipped != "" {
			t.Skip(tr.skipped)
		}
		if len(tr.faults) == 0 {
			return
		}
		if tr.grave || !p.overdue() || try == fairTries {
			t.Fatal(strings.Join(tr.faults, "\n"))
		}
		t.Logf("played again: something took %s, and then\n%s", p.slowest.Round(time.Millisecond), strings.Join(tr.faults, "\n"))
	}
}

// trial is a testing.TB that keeps what it is told of.
type trial struct {
	testing.TB
	mu       sync.Mutex
	faults   []string
	grave    bool
	skipped  string
	cleanups []func()
}

// run returns when do has, or has given up, and what was put off until its end
// is done.
func (t *trial) run(do func()) {
	for f := do; f != nil; f = t.last() {
		ended := make(chan struct{})
		go func() { // which may give up
			defer close(ended)
			f()
		}()
		<-ended
	}
}

// last takes what was put off last, nil when nothing is left.
func (t *trial) last() (f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n := len(t.cleanups); n > 0 {
		f, t.cleanups = t.cleanups[n-1], t.cleanups[:n-1]
	}
	return f
}

// Cleanup belongs to the play: what it finds fault with counts.
func (t *trial) Cleanup(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cleanups = append(t.cleanups, f)
}

func (t *trial) note(text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.faults = append(t.faults, callers()+text)
}

// callers are the lines of this package that led to a fault.
func callers() string {
	at := make([]uintptr, 32)
	frames := runtime.CallersFrames(at[:runtime.Callers(1, at)])
	var lines []string
	for {
		f, more := frames.Next()
		if name := filepath.Base(f.File); strings.HasSuffix(name, "_test.go") && name != "busy_test.go" {
			lines = append(lines, fmt.Sprintf("%s:%d", name, f.Line))
		}
		if !more {
			return strings.Join(lines, " < ") + ": "
		}
	}
}

// grave is a fault that time does not excuse: money that moved too often, or a
// log that says what it must not.
type grave string

func (g grave) Error() string { return string(g) }

func (t *trial) Error(args ...any) {
	t.mu.Lock()
	t.grave = t.grave || slices.ContainsFunc(args, func(a any) bool { _, is := a.(grave); return is })
	t.mu.Unlock()
	t.note(fmt.Sprint(args...))
}

func (t *trial) Errorf(format string, args ...any) { t.note(fmt.Sprintf(format, args...)) }
func (t *trial) Fail()                             { t.note("failed") }
func (t *trial) Fatal(args ...any)                 { t.Error(args...); runtime.Goexit() }
func (t *trial) Fatalf(format string, args ...any) { t.Errorf(format, args...); runtime.Goexit() }
func (t *trial) FailNow()                          { t.Fail(); runtime.Goexit() }

func (t *trial) Failed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.faults) > 0
}

func (t *trial) Skip(args ...any) {
	t.skipped = fmt.Sprint(args...)
	runtime.Goexit()
}

func (t *trial) Skipf(format string, args ...any) { t.Skip(fmt.Sprintf(format, args...)) }

// TestFairly: what fails in time fails, what fails late is played again, and
// what fails late each time fails.
func TestFairly(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		took        time.Duration
		fails, want int // plays that fail, and plays in all
		with        any
		failed      bool
	}{
		"passes":          {0, 0, 1, "", false},
		"fails in time":   {0, 1, 1, "as asked", true},
		"fails late once": {time.Hour, 1, 2, "as asked", false},
		"fails late":      {time.Hour, fairTries, fairTries, "as asked", true},
		"passes late":     {time.Hour, 0, 1, "", false},
		"gravely":         {time.Hour, 1, 1, grave("as asked"), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			outer, plays := &trial{TB: t}, 0
			outer.run(func() {
				fairly(outer, func(tb testing.TB, p *pace) {
					p.took(c.took)
					plays++
					tb.Cleanup(func() {
						if plays <= c.fails {
							tb.Error(c.with)
						}
					})
				})
			})
			if plays != c.want || outer.Failed() != c.failed {
				t.Errorf("played %d times, failed %t; want %d, %t", plays, outer.Failed(), c.want, c.failed)
			}
		})
	}
}
