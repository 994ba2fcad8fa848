//go:build unix

package lambdahost

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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

func TestLineWriter(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	w := &lineWriter{to: &out}
	for _, step := range []struct{ write, have string }{
		{"a", ""}, {"b\nc", "ab\n"}, {"", "ab\n"}, {"d\ne\nf", "ab\ncd\ne\n"}, {"\n", "ab\ncd\ne\nf\n"}, {"tail", "ab\ncd\ne\nf\n"},
	} {
		p := []byte(step.write)
		if n, err := w.Write(p); n != len(p) || err != nil {
			t.Errorf("%q: %d, %v", step.write, n, err)
		}
		clear(p) // the writer must not keep the caller's buffer
		if out.String() != step.have {
			t.Errorf("after %q: %q, want %q", step.write, out.String(), step.have)
		}
	}
	w.flush()
	w.flush()
	if want := "ab\ncd\ne\nf\ntail\n"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}

func TestRespond(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, payload string
		status        int
		contentType   string
		body          string
	}{
		{"a full answer", `{"statusCode":201,"headers":{"content-type":"text/x","n":1,"b":true},"body":"hi"}`, 201, "text/x", "hi"},
		{"base64", `{"statusCode":200,"headers":{"content-type":"a/b"},"body":"AP8=","isBase64Encoded":true}`, 200, "a/b", "\x00\xff"},
		{"no content type", `{"statusCode":200,"body":"hi"}`, 200, "text/plain; charset=utf-8", "hi"},
		{"no status: the document is the body", `{"ok":true}`, 200, "application/json", `{"ok":true}`},
		{"a string is a body", `"hi"`, 200, "application/json", `"hi"`},
		{"an array is a body", `[1]`, 200, "application/json", `[1]`},
		{"not JSON", `oops`, 500, "application/json", `{"message":"Internal Server Error"}`},
		{"empty", ``, 500, "application/json", `{"message":"Internal Server Error"}`},
		{"status out of range", `{"statusCode":42}`, 500, "application/json", `{"message":"Internal Server Error"}`},
		{"bad base64", `{"statusCode":200,"body":"!","isBase64Encoded":true}`, 500, "application/json", `{"message":"Internal Server Error"}`},
		{"a header that is a list", `{"statusCode":200,"headers":{"a":["b"]}}`, 500, "application/json", `{"message":"Internal Server Error"}`},
		{"a body that is no string", `{"statusCode":200,"body":7}`, 500, "application/json", `{"message":"Internal Server Error"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := httptest.NewRecorder()
			respond(w, []byte(c.payload))
			if w.Code != c.status || w.Header().Get("Content-Type") != c.contentType || strings.TrimSpace(w.Body.String()) != c.body {
				t.Errorf("answer = %d %q %q", w.Code, w.Header().Get("Content-Type"), w.Body)
			}
		})
	}
}
