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

	"github.com/hostfacts/hostfacts/pkg/x402/ledger/dynamo"
)

// verifyOnly skips what a quick run leaves out: go test -short needs Go alone,
// and waits for nothing that takes long.
func verifyOnly(tb testing.TB, why string) {
	if testing.Short() {
		tb.Skip("runs in make verify: " + why)
	}
}

// pace is how long the slowest request of a test took.
type pace struct {
	mu      sync.Mutex
	slowest time.Duration
}

// took notes how long something took for which the service has a time-out, and
// returns how long the slowest did.
func (p *pace) took(d time.Duration) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.slowest = max(p.slowest, d)
	return p.slowest
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

func (p *pace) client() *http.Client {
	c := newClient()
	c.Transport = paced{c.Transport.(*http.Transport), p}
	return c
}

// fairly plays a test of a service that has time-outs of its own. One that fails is played again
// when something in it took as long as one of them: a machine that is busy with something else
// may then have decided how it went, and not the service. A test that fails in time has failed,
// and so has one that fails every time. No machine is too slow for the faults that are grave.
func fairly(t testing.TB, play func(tb testing.TB, p *pace)) {
	t.Helper()
	const fairTries = 8
	for try := 1; ; try++ {
		p, tr := &pace{}, &trial{TB: t}
		tr.run(func() { play(tr, p) })
		if len(tr.faults) == 0 {
			return
		}
		// The shortest of the service's time-outs is that of an attempt at a call of the store.
		if tr.grave || p.took(0) < dynamo.DefaultAttemptTimeout || try == fairTries {
			t.Fatal(strings.Join(tr.faults, "\n"))
		}
		t.Logf("played again: something took %s, and then\n%s", p.took(0), strings.Join(tr.faults, "\n"))
	}
}

// trial is a testing.TB that keeps what it is told of.
type trial struct {
	testing.TB
	mu       sync.Mutex
	faults   []string
	grave    bool
	cleanups []func()
}

// run returns when do has, or has given up, and what was put off until its end is done.
func (t *trial) run(do func()) {
	t.cleanups = []func(){do}
	for n := 1; n > 0; n = len(t.cleanups) {
		last := t.cleanups[n-1]
		t.cleanups = t.cleanups[:n-1]
		var ended sync.WaitGroup
		ended.Go(last) // which may give up
		ended.Wait()
	}
}

// Cleanup belongs to the play: what it finds fault with counts.
func (t *trial) Cleanup(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cleanups = append(t.cleanups, f)
}

// grave is a fault that time does not excuse: money that moved too often, or a
// log that says what it must not.
type grave string

func (g grave) Error() string { return string(g) }

// Error keeps a fault, with the lines of this package that led to it.
func (t *trial) Error(args ...any) {
	at := make([]uintptr, 32)
	frames := runtime.CallersFrames(at[:runtime.Callers(1, at)])
	where := ""
	for f, more := frames.Next(); more; f, more = frames.Next() {
		if name := filepath.Base(f.File); strings.HasSuffix(name, "_test.go") && name != "busy_test.go" {
			where += fmt.Sprintf("%s:%d: ", name, f.Line)
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.grave = t.grave || slices.ContainsFunc(args, func(a any) bool { _, is := a.(grave); return is })
	t.faults = append(t.faults, where+fmt.Sprint(args...))
}

func (t *trial) Errorf(format string, args ...any) { t.Error(fmt.Sprintf(format, args...)) }
func (t *trial) Fatal(args ...any)                 { t.Error(args...); runtime.Goexit() }
func (t *trial) Fatalf(format string, args ...any) { t.Errorf(format, args...); runtime.Goexit() }

func (t *trial) Failed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.faults) > 0
}
