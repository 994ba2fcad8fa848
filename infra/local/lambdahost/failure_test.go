//go:build unix

package lambdahost_test

import (
	"encoding/json"
	"errors"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/infra/local/lambdahost"
)

// TestDirectEvents: what is sent without a gateway is answered as it is, and what
// goes wrong is a function error. Every invocation ends once, known to the hook before
// its caller goes on, with the time that it took.
func TestDirectEvents(t *testing.T) {
	t.Parallel()
	e := &endings{}
	h := newHost(t, func(c *lambdahost.Config) { c.OnEnd = e.add })
	var kinds []string
	for _, c := range []struct{ do, payload, kind, message string }{
		{`{\"as\":\"is\"}`, `{"as":"is"}`, "answered", ""},
		{"fail", "", "errorString", "as asked"},
		{"panic", "", "string", "as asked"},
		{"exit", "", lambdahost.ErrorExit, "Runtime exited with error: exit status 4"},
		{"big", "", lambdahost.ErrorTooLarge, "Response payload size exceeded maximum allowed payload size (6291556 bytes)."},
	} {
		payload, err := h.Invoke(t.Context(), "E", []byte(`{"do":"`+c.do+`"}`))
		var failed *lambdahost.FunctionError
		switch {
		case c.message == "":
			if err != nil || string(payload) != c.payload {
				t.Errorf("Invoke = %s, %v", payload, err)
			}
		case !errors.As(err, &failed) || failed.Type != c.kind || failed.Message != c.message:
			t.Errorf("%s: error = %v, want %s: %s", c.do, err, c.kind, c.message)
		case !json.Valid(payload) || !strings.Contains(string(payload), "errorMessage"):
			t.Errorf("%s: payload = %s", c.do, payload)
		}
		kinds = append(kinds, c.kind)
		if diff := cmp.Diff(kinds, e.kinds(t)); diff != "" {
			t.Fatalf("after %s (-want +got):\n%s", c.do, diff)
		}
	}
	if _, err := h.Invoke(t.Context(), "Missing", nil); err == nil {
		t.Error("a function that is not hosted was invoked")
	}
	if _, err := h.Invoke(t.Context(), "E", make([]byte, 7<<20)); err == nil {
		t.Error("an event of 7 MB was accepted")
	}
	if w := get(h, "/panic"); w.Code != 500 || !strings.Contains(w.Body.String(), "internal_error") {
		t.Errorf("a panic in the handler is answered for by the adapter: %d %s", w.Code, w.Body)
	}
}

func TestInitFailures(t *testing.T) {
	t.Parallel()
	for init, want := range map[string]string{
		"exit": "function error Runtime.ExitError: Runtime exited with error: exit status 3",
		"hang": "initialisation timed out after 0.30 seconds",
	} {
		t.Run(init, func(t *testing.T) {
			t.Parallel()
			h := newHost(t, func(c *lambdahost.Config) {
				c.Functions[0].Env = map[string]string{"INIT": init}
				if init == "hang" {
					c.InitTimeout = 300 * time.Millisecond
				}
			})
			_, err := h.Invoke(t.Context(), "E", []byte(`{}`))
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("error = %v, want %s", err, want)
			}
			wantAnswer(t, get(h, "/echo"), 500, internal)
			if s := h.Stats("E"); s.Live != 0 || s.Spawned != 2 {
				t.Errorf("stats = %+v", s)
			}
		})
	}
}

// TestKill: a process that is gone is answered for by the gateway, whenever it went,
// and the next event gets another process.
func TestKill(t *testing.T) {
	t.Parallel()
	echo := func(_ *testing.T, h *lambdahost.Host) *httptest.ResponseRecorder { return get(h, "/echo") }
	for name, c := range map[string]struct {
		// configure has a hook call kill, which kills once.
		configure func(t *testing.T, c *lambdahost.Config, kill func(lambdahost.Process))
		event     func(*testing.T, *lambdahost.Host) *httptest.ResponseRecorder
	}{
		"as soon as it exists": {func(_ *testing.T, c *lambdahost.Config, kill func(lambdahost.Process)) { c.OnSpawn = kill }, echo},
		"before it sees the event": {func(_ *testing.T, c *lambdahost.Config, kill func(lambdahost.Process)) {
			c.OnEvent = func(p lambdahost.Process, _ string, _ []byte) { kill(p) }
		}, echo},
		"after it has answered": {func(t *testing.T, c *lambdahost.Config, kill func(lambdahost.Process)) {
			c.OnResponse = func(p lambdahost.Process, _ string, payload []byte) {
				if kill(p); !strings.Contains(string(payload), `"statusCode":200`) {
					t.Errorf("the answer = %s", payload)
				}
			}
		}, echo},
		"while it works": {nil, func(t *testing.T, h *lambdahost.Host) *httptest.ResponseRecorder {
			g := newGate(t)
			done := make(chan *httptest.ResponseRecorder)
			go func() { done <- get(h, "/wait?url="+g.URL) }()
			<-g.arrived
			if n := h.Kill("E"); n != 1 {
				t.Errorf("Kill = %d, want 1", n)
			}
			return <-done
		}},
		"by itself": {nil, func(_ *testing.T, h *lambdahost.Host) *httptest.ResponseRecorder { return get(h, "/exit") }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var once sync.Once
			h := newHost(t, func(config *lambdahost.Config) {
				if c.configure != nil {
					c.configure(t, config, func(p lambdahost.Process) { once.Do(p.Kill) })
				}
			})
			wantAnswer(t, c.event(t, h), 500, internal)
			if w := get(h, "/echo"); w.Code != 200 {
				t.Errorf("afterwards: %d", w.Code)
			}
			if s := h.Stats("E"); s.Spawned != 2 || s.Live != 1 || s.Errors != 1 {
				t.Errorf("stats = %+v", s)
			}
			h.Kill("E") // while it is idle, which nobody notices
			if w := get(h, "/echo"); w.Code != 200 {
				t.Errorf("after the end of an idle process: %d", w.Code)
			}
			if s := h.Stats("E"); s.Spawned != 3 || s.Errors != 1 {
				t.Errorf("stats = %+v", s)
			}
		})
	}
}
