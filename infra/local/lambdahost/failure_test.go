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

	"github.com/hostfacts/hostfacts/infra/local/lambdahost"
)

func TestCrash(t *testing.T) {
	t.Parallel()
	h := newHost(t, nil)
	wantAnswer(t, get(h, "/exit"), 500, internal)
	if w := get(h, "/panic"); w.Code != 500 || !strings.Contains(w.Body.String(), "internal_error") {
		t.Errorf("a panic in the handler is answered for by the adapter: %d %s", w.Code, w.Body)
	}
	if s := h.Stats("E"); s.Spawned != 2 || s.Live != 1 || s.Errors != 1 {
		t.Errorf("stats = %+v", s)
	}
}

func TestDirectEventsAndFunctionErrors(t *testing.T) {
	t.Parallel()
	h := newHost(t, nil)
	payload, err := h.Invoke(t.Context(), "E", []byte(`{"do":"{\"as\":\"is\"}"}`))
	if err != nil || string(payload) != `{"as":"is"}` {
		t.Errorf("Invoke = %s, %v", payload, err)
	}
	for _, c := range []struct{ do, kind, message string }{
		{"fail", "errorString", "as asked"},
		{"panic", "string", "as asked"},
		{"exit", lambdahost.ErrorExit, "Runtime exited with error: exit status 4"},
		{"big", lambdahost.ErrorTooLarge, "Response payload size exceeded maximum allowed payload size (6291556 bytes)."},
	} {
		payload, err := h.Invoke(t.Context(), "E", []byte(`{"do":"`+c.do+`"}`))
		var failed *lambdahost.FunctionError
		if !errors.As(err, &failed) || failed.Type != c.kind || failed.Message != c.message {
			t.Errorf("%s: error = %v, want %s: %s", c.do, err, c.kind, c.message)
		}
		if !json.Valid(payload) || !strings.Contains(string(payload), "errorMessage") {
			t.Errorf("%s: payload = %s", c.do, payload)
		}
	}
	if _, err := h.Invoke(t.Context(), "Missing", nil); err == nil {
		t.Error("a function that is not hosted was invoked")
	}
	if _, err := h.Invoke(t.Context(), "E", make([]byte, 7<<20)); err == nil {
		t.Error("an event of 7 MB was accepted")
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

func TestKillAtAChosenMoment(t *testing.T) {
	t.Parallel()
	t.Run("before it sees the event", func(t *testing.T) {
		t.Parallel()
		var once sync.Once
		h := newHost(t, func(c *lambdahost.Config) {
			c.OnEvent = func(p lambdahost.Process, _ string, _ []byte) { once.Do(p.Kill) }
		})
		wantAnswer(t, get(h, "/echo"), 500, internal)
		if w := get(h, "/echo"); w.Code != 200 {
			t.Errorf("afterwards: %d", w.Code)
		}
	})
	t.Run("after it has answered", func(t *testing.T) {
		t.Parallel()
		var once sync.Once
		var payload string
		h := newHost(t, func(c *lambdahost.Config) {
			c.OnResponse = func(p lambdahost.Process, _ string, b []byte) {
				once.Do(func() { payload = string(b); p.Kill() })
			}
		})
		wantAnswer(t, get(h, "/echo"), 500, internal)
		if !strings.Contains(payload, `"statusCode":200`) {
			t.Errorf("the answer that was thrown away = %s", payload)
		}
		if w := get(h, "/echo"); w.Code != 200 {
			t.Errorf("afterwards: %d", w.Code)
		}
	})
	t.Run("while it works", func(t *testing.T) {
		t.Parallel()
		h, g := newHost(t, nil), newGate(t)
		done := make(chan *httptest.ResponseRecorder)
		go func() { done <- get(h, "/wait?url="+g.URL) }()
		<-g.arrived
		if n := h.Kill("E"); n != 1 {
			t.Errorf("Kill = %d, want 1", n)
		}
		wantAnswer(t, <-done, 500, internal)
	})
	t.Run("while it is idle", func(t *testing.T) {
		t.Parallel()
		h := newHost(t, nil)
		get(h, "/echo")
		h.Kill("E")
		if w := get(h, "/echo"); w.Code != 200 {
			t.Errorf("afterwards: %d", w.Code)
		}
		if s := h.Stats("E"); s.Spawned != 2 || s.Errors != 0 {
			t.Errorf("stats = %+v", s)
		}
	})
	t.Run("as soon as it exists", func(t *testing.T) {
		t.Parallel()
		h := newHost(t, func(c *lambdahost.Config) { c.OnSpawn = func(p lambdahost.Process) { p.Kill() } })
		wantAnswer(t, get(h, "/echo"), 500, internal)
	})
}
