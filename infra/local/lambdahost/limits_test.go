//go:build unix

package lambdahost

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// hosted is a host with one function, F.
func hosted(t *testing.T) *Host {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "bootstrap"), nil, 0o700); err != nil {
		t.Fatal(err)
	}
	h, err := New(Config{Functions: []Function{{Name: "F", Dir: dir}}, Routes: []Route{{Key: "$default", Function: "F"}}})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// beyond is a process id that no system has: signals to it reach nobody.
const beyond = 1 << 30

// The gateway gives up after 30 seconds, unless a test says otherwise. The
// function is a process that takes its event and never answers; the clock is a
// bubble's, so nobody waits.
func TestGatewayGivesUpAfterThirtySeconds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := hosted(t)
		defer h.Close()
		f := h.functions["F"]
		p := &process{fn: f, state: idle, events: make(chan *invocation, 1), exited: make(chan struct{}), cmd: &exec.Cmd{Process: &os.Process{Pid: beyond}}}
		f.idle = append(f.idle, p)
		begun := time.Now()
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		if took := time.Since(begun); w.Code != http.StatusServiceUnavailable || took != 30*time.Second {
			t.Errorf("status %d after %s, want 503 after 30 s", w.Code, took)
		}
		if len(p.events) != 1 {
			t.Error("the function did not get the event")
		}
	})
}

// The limits of the platform are AWS's unless a test sets others.
func TestDefaults(t *testing.T) {
	t.Parallel()
	h := hosted(t)
	defer h.Close()
	for _, c := range []struct {
		what      string
		got, want time.Duration
	}{
		{"initialisation", h.cfg.InitTimeout, 10 * time.Second},
		{"a function's time-out", h.functions["F"].def.Timeout, 3 * time.Second},
	} {
		if c.got != c.want {
			t.Errorf("%s is %s, want %s", c.what, c.got, c.want)
		}
	}
}
