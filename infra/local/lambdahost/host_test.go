//go:build unix

package lambdahost_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/infra/local/lambdahost"
)

// echoDir holds the built testdata/echo.
var echoDir = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "lambdahost")
	if err != nil {
		return "", err
	}
	cmd := exec.Command("go", "build", "-tags", "lambda.norpc", "-o", filepath.Join(dir, "bootstrap"), "./testdata/echo")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return dir, fmt.Errorf("build echo: %w\n%s", err, out)
	}
	return dir, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if dir, err := echoDir(); err == nil {
		os.RemoveAll(dir)
	}
	os.Exit(code)
}

// ample is a time limit that is not what a test is about: far beyond what its
// functions take, also on a machine that is busy with something else.
const ample = 2 * time.Minute

// newHost hosts the echo function as E, on every path, with ample limits.
func newHost(t *testing.T, change func(*lambdahost.Config)) *lambdahost.Host {
	t.Helper()
	dir, err := echoDir()
	if err != nil {
		t.Fatal(err)
	}
	cfg := lambdahost.Config{
		Functions: []lambdahost.Function{{Name: "E", Dir: dir, Timeout: ample}},
		Routes:    []lambdahost.Route{{Key: "$default", Function: "E"}},

		InitTimeout: ample, IntegrationTimeout: ample,
	}
	if change != nil {
		change(&cfg)
	}
	h, err := lambdahost.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	return h
}

// get is one request through the gateway.
func get(h *lambdahost.Host, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w
}

func wantAnswer(t *testing.T, w *httptest.ResponseRecorder, status int, body string) {
	t.Helper()
	if w.Code != status || strings.TrimSpace(w.Body.String()) != body {
		t.Errorf("answer = %d %s, want %d %s", w.Code, w.Body, status, body)
	}
}

const (
	internal    = `{"message":"Internal Server Error"}`
	unavailable = `{"message":"Service Unavailable"}`
)

// gate lets functions wait for the test: /wait?url= with its URL.
type gate struct {
	*httptest.Server
	arrived chan struct{}
	open    chan struct{}
}

func newGate(t *testing.T) *gate {
	g := &gate{arrived: make(chan struct{}, 100), open: make(chan struct{})}
	g.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		g.arrived <- struct{}{}
		select {
		case <-g.open:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(g.Server.CloseClientConnections)
	return g
}

func TestProcessesAreReusedAndNeverShared(t *testing.T) {
	t.Parallel()
	h, g := newHost(t, nil), newGate(t)
	const n = 5
	var mu sync.Mutex
	var all sync.WaitGroup
	pids := map[string]bool{}
	for range n {
		all.Go(func() {
			w := get(h, "/wait?url="+g.URL)
			mu.Lock()
			defer mu.Unlock()
			pids[w.Body.String()] = true
		})
	}
	for range n {
		<-g.arrived // all of them at the same time
	}
	close(g.open)
	all.Wait()
	if len(pids) != n {
		t.Errorf("%d concurrent events ran in %d processes", n, len(pids))
	}
	for range 3 * n {
		w := get(h, "/wait?url="+g.URL)
		if w.Code != 200 || !pids[w.Body.String()] {
			t.Fatalf("a single event ran in process %s, status %d", w.Body, w.Code)
		}
	}
	s := h.Stats("E")
	if s.Spawned != n || s.Live != n || s.Invocations != 4*n || s.Errors != 0 || len(s.Cold) != n {
		t.Errorf("stats = %+v", s)
	}
	for _, c := range s.Cold {
		if c.Init <= 0 || c.First < c.Init {
			t.Errorf("cold start = %+v", c)
		}
	}
}

func TestEnvironmentIsLambdasAndNothingElse(t *testing.T) {
	t.Setenv("LEAKED", "from the host")
	h := newHost(t, func(c *lambdahost.Config) {
		c.Functions[0].Env = map[string]string{"OWN": "1", "AWS_REGION": "eu-central-1"}
	})
	var env []string
	if err := json.Unmarshal(get(h, "/env").Body.Bytes(), &env); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, kv := range env {
		name, value, _ := strings.Cut(kv, "=")
		names = append(names, name)
		want := map[string]string{"AWS_LAMBDA_FUNCTION_NAME": "E", "OWN": "1", "AWS_REGION": "eu-central-1", "_HANDLER": "bootstrap"}
		if w, ok := want[name]; ok && value != w {
			t.Errorf("%s = %q, want %q", name, value, w)
		}
	}
	slices.Sort(names)
	want := []string{
		"AWS_ACCESS_KEY_ID", "AWS_DEFAULT_REGION", "AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "AWS_LAMBDA_FUNCTION_NAME",
		"AWS_LAMBDA_FUNCTION_VERSION", "AWS_LAMBDA_INITIALIZATION_TYPE", "AWS_LAMBDA_LOG_FORMAT",
		"AWS_LAMBDA_LOG_GROUP_NAME", "AWS_LAMBDA_LOG_STREAM_NAME", "AWS_LAMBDA_RUNTIME_API", "AWS_REGION",
		"AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "LAMBDA_RUNTIME_DIR", "LAMBDA_TASK_ROOT", "LANG", "OWN",
		"PATH", "TZ", "_HANDLER", "_X_AMZN_TRACE_ID", // the last one by the runtime client
	}
	if d := cmp.Diff(want, names); d != "" {
		t.Error(d)
	}
}

func TestInvocationContext(t *testing.T) {
	t.Parallel()
	var id string
	var before time.Time // the process gets its event after this
	h := newHost(t, func(c *lambdahost.Config) {
		c.OnEvent = func(_ lambdahost.Process, requestID string, _ []byte) { id, before = requestID, time.Now() }
	})
	var got struct {
		ID, ARN  string
		Deadline int64
	}
	if err := json.Unmarshal(get(h, "/context").Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if got.ID == "" || got.ID != id || got.ARN != "arn:aws:lambda:us-east-1:123456789012:function:E" {
		t.Errorf("context = %+v, want id %s", got, id)
	}
	first, last := before.Add(ample).Truncate(time.Millisecond), time.Now().Add(ample)
	if at := time.UnixMilli(got.Deadline); at.Before(first) || at.After(last) {
		t.Errorf("the deadline is %v, want one between %v and %v", at, first, last)
	}
}

// TestTimeoutKills: an invocation that is cut off has taken its time-out, and its
// process is gone.
func TestTimeoutKills(t *testing.T) {
	t.Parallel()
	const timeout = 300 * time.Millisecond
	var pid int
	e := &endings{}
	h := newHost(t, func(c *lambdahost.Config) {
		c.Functions[0].Timeout = timeout
		c.OnSpawn = func(p lambdahost.Process) { pid = p.PID }
		c.OnEnd = e.add
	})
	wantAnswer(t, get(h, "/hang"), 500, internal)
	if alive(pid) {
		t.Errorf("process %d outlived its time-out", pid)
	}
	if s := h.Stats("E"); s.TimedOut != 1 || s.Errors != 1 || s.Live != 0 {
		t.Errorf("stats = %+v", s)
	}
	if diff := cmp.Diff([]string{lambdahost.ErrorTimedOut}, e.kinds(t)); diff != "" || e.all[0].Result.Duration < timeout {
		t.Errorf("a function that hangs ends after %v (-want +got):\n%s", e.all[0].Result.Duration, diff)
	}
	// On a busy machine the next event may take as long as the time-out, too.
	if !eventually(func() bool { return get(h, "/echo").Code == 200 }) {
		t.Error("no event is answered any more")
	}
}

func TestGatewayGivesUpAndTheFunctionGoesOn(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	idle := make(chan struct{}, 10)
	h := newHost(t, func(c *lambdahost.Config) {
		c.IntegrationTimeout = time.Second
		c.OnIdle = func(lambdahost.Process) { idle <- struct{}{} }
	})
	// Warm, so that the cut is in the handler. Not by way of the gateway, which
	// might give up on a cold start.
	if _, err := h.Invoke(t.Context(), "E", []byte(`{"do":"pid"}`)); err != nil {
		t.Fatal(err)
	}
	<-idle
	wantAnswer(t, get(h, "/wait?url="+g.URL), 503, unavailable)
	<-g.arrived
	close(g.open)
	<-idle // it has finished by itself
	if s := h.Stats("E"); s.Spawned != 1 || s.Live != 1 || s.Invocations != 2 || s.Errors != 0 {
		t.Errorf("stats = %+v", s)
	}
}

func TestCallerMayLeave(t *testing.T) {
	t.Parallel()
	h, g := newHost(t, nil), newGate(t)
	ctx, cancel := context.WithCancel(t.Context())
	event := []byte(`{"version":"2.0","rawPath":"/wait","rawQueryString":"url=` + g.URL + `","requestContext":{"requestId":"1","http":{"method":"GET"}}}`)
	done := make(chan error)
	go func() {
		_, err := h.Invoke(ctx, "E", event)
		done <- err
	}()
	<-g.arrived
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("error = %v", err)
	}
	close(g.open)
	r, err := h.Call(t.Context(), "E", event)
	if err != nil || r.Duration <= 0 || r.RequestID == "" {
		t.Errorf("Call = %+v, %v", r, err)
	}
}

func TestNewNamesEveryFault(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "bootstrap"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := lambdahost.New(lambdahost.Config{
		Functions: []lambdahost.Function{{Name: "A", Dir: t.TempDir()}, {Name: "B", Dir: dir}, {Dir: dir}},
		Routes:    []lambdahost.Route{{Key: "ANY /x", Function: "C"}, {Key: "ANY /x", Function: "C"}},
	})
	for _, want := range []string{"A is not built", "cannot be executed", "empty or there twice", `leads to "C"`, "there twice"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error lacks %q: %v", want, err)
		}
	}
}
