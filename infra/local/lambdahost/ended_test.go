//go:build unix

package lambdahost_test

import (
	"errors"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/infra/local/lambdahost"
)

// endings collects what OnEnd says.
type endings struct {
	mu  sync.Mutex
	all []lambdahost.Ended
}

func (e *endings) add(x lambdahost.Ended) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, x)
}

// kinds are how the invocations ended, in order.
func (e *endings) kinds(t *testing.T) []string {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	var out []string
	for _, x := range e.all {
		var failed *lambdahost.FunctionError
		kind := "answered"
		switch {
		case errors.As(x.Err, &failed):
			kind = failed.Type
		case errors.Is(x.Err, lambdahost.ErrThrottled):
			kind = "throttled"
		case x.Err != nil:
			t.Errorf("an invocation ended with %v", x.Err)
		}
		began := kind != "throttled"
		if x.Function != "E" || x.Result.RequestID == "" || (x.Result.Duration > 0) != began {
			t.Errorf("%s: %+v", kind, x)
		}
		out = append(out, kind)
	}
	return out
}

// TestConcurrency: what is above the reserved concurrency is refused without a
// process, and there is room again when an invocation ends, whatever way.
func TestConcurrency(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	e := &endings{}
	h := newHost(t, func(c *lambdahost.Config) {
		c.Functions[0].Concurrency = 1
		c.OnEnd = e.add
	})
	busy := make(chan int)
	go func() { busy <- get(h, "/wait?url="+g.URL).Code }()
	<-g.arrived
	wantAnswer(t, get(h, "/echo"), 503, unavailable)
	if _, err := h.Invoke(t.Context(), "E", []byte(`{"do":"pid"}`)); !errors.Is(err, lambdahost.ErrThrottled) {
		t.Errorf("Invoke: %v", err)
	}
	close(g.open)
	if code := <-busy; code != 200 {
		t.Errorf("the one that was there is answered %d", code)
	}
	get(h, "/exit")
	if w := get(h, "/echo"); w.Code != 200 {
		t.Errorf("there is no room after the end: %d %s", w.Code, w.Body)
	}
	want := []string{"throttled", "throttled", "answered", lambdahost.ErrorExit, "answered"}
	if diff := cmp.Diff(want, e.kinds(t)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if s := h.Stats("E"); s.Throttled != 2 || s.Invocations != 3 {
		t.Errorf("stats = %+v", s)
	}
}
