package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"crypto/rand"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/dynamo/dynamotest"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// runner is run in this process, until it is stopped.
type runner struct {
	out   output
	stop  context.CancelFunc
	ended chan error
}

// output is what the runner prints, line by line.
type output struct {
	mu    sync.Mutex
	text  bytes.Buffer
	ready chan struct{} // closed once the welcome is whole
	once  sync.Once
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text.Write(b)
	if strings.Contains(o.text.String(), "Ctrl-C stops it.") {
		o.once.Do(func() { close(o.ready) })
	}
	return len(b), nil
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// quiet keeps tests away from every network but this machine's.
func quiet(env map[string]string) func(string) string {
	all := map[string]string{"LOCAL_ADDR": "127.0.0.1:0", "DNS_RESOLVERS": "127.0.0.1:9", "RPC_URL": "none"}
	for name, value := range env {
		all[name] = value
	}
	return func(name string) string { return all[name] }
}

func start(t *testing.T, env map[string]string) *runner {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r := &runner{stop: cancel, ended: make(chan error, 1), out: output{ready: make(chan struct{})}}
	go func() { r.ended <- run(ctx, quiet(env), &r.out) }()
	t.Cleanup(func() {
		cancel()
		r.ended <- <-r.ended // for a test that waits for it itself, too
	})
	select {
	case <-r.out.ready:
	case err := <-r.ended:
		t.Fatalf("it ended: %v\n%s", err, r.out.String())
	case <-time.After(time.Minute):
		t.Fatal("not ready after a minute")
	}
	return r
}

// end stops it, and returns what run returned.
func (r *runner) end() error {
	r.stop()
	err := <-r.ended
	r.ended <- nil
	return err
}

// line is what the welcome says about something.
func (r *runner) line(t *testing.T, what string) string {
	t.Helper()
	m := regexp.MustCompile(`(?m)` + what + ` +(\S.*)$`).FindStringSubmatch(r.out.String())
	if m == nil {
		t.Fatalf("the welcome does not name the %s:\n%s", what, r.out.String())
	}
	return m[1]
}

func buyPing(t *testing.T, r *runner) {
	t.Helper()
	w, err := x402test.NewWallet(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x402test.Client{HTTP: &http.Client{Timeout: time.Minute}, Wallet: w, Now: time.Now}
	reply, _, err := c.Buy(t.Context(), r.line(t, "is ready on")+catalog.Ping().Path)
	if err != nil || reply.Status != http.StatusOK {
		t.Fatalf("paid ping: %d %s, %v\n%s", reply.Status, reply.Body, err, r.out.String())
	}
}

func transfers(t *testing.T, facilitator string) int {
	t.Helper()
	res, err := http.Get(facilitator + "/transfers")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	var list []x402test.Transfer
	if err == nil {
		err = json.Unmarshal(b, &list)
	}
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// With nothing configured it pays with play money, and the books survive.
func TestRunWithPlayMoney(t *testing.T) {
	t.Parallel()
	env := map[string]string{"LEDGER_FILE": filepath.Join(t.TempDir(), "new", "ledger.db")}
	first := start(t, env)
	buyPing(t, first)
	if n := transfers(t, first.line(t, "facilitator")); n != 1 {
		t.Errorf("%d transfers, want 1", n)
	}
	if got := first.line(t, "ledger"); got != env["LEDGER_FILE"] {
		t.Errorf("ledger %s", got)
	}

	// One process at a time has the ledger.
	err := run(t.Context(), quiet(env), io.Discard)
	if err == nil || !strings.Contains(err.Error(), "LEDGER_FILE") {
		t.Errorf("a second runner on the same ledger: %v", err)
	}
	if err := first.end(); err != nil {
		t.Errorf("stopped: %v", err)
	}
	second := start(t, env)
	if n := transfers(t, second.line(t, "facilitator")); n != 1 {
		t.Errorf("%d transfers after a restart, want 1", n)
	}
	buyPing(t, second)
}

// A configured facilitator wins, and a named table is DynamoDB's, created when
// it is missing.
func TestRunAsConfigured(t *testing.T) {
	t.Parallel()
	db := dynamotest.Start(t)
	play := start(t, map[string]string{"LEDGER_FILE": filepath.Join(t.TempDir(), "ledger.db")})
	r := start(t, map[string]string{
		"FACILITATOR_URL": play.line(t, "facilitator"), "LEDGER_TABLE": "made-here", "AWS_ENDPOINT_URL_DYNAMODB": db.URL,
		"AWS_REGION": dynamotest.Region, "AWS_ACCESS_KEY_ID": dynamotest.AccessKeyID, "AWS_SECRET_ACCESS_KEY": dynamotest.SecretAccessKey,
		"BASE_URL": "http://localhost:1",
	})
	if got := r.line(t, "facilitator"); got != play.line(t, "facilitator") {
		t.Errorf("facilitator %s", got)
	}
	if got := r.line(t, "ledger"); got != "DynamoDB table made-here" {
		t.Errorf("ledger %s", got)
	}
	if got := r.line(t, "is ready on"); got != "http://localhost:1" {
		t.Errorf("it calls itself %s", got)
	}
}

func TestRunSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { taken.Close() })
	for _, c := range []struct {
		name  string
		env   map[string]string
		wants []string
	}{
		{"every fault at once", map[string]string{"PAY_TO": "me", "DNS_RESOLVERS": "resolver", "LOG_LEVEL": "loud"}, []string{"PAY_TO", "DNS_RESOLVERS", "LOG_LEVEL"}},
		{"the port is taken", map[string]string{"LOCAL_ADDR": taken.Addr().String()}, []string{"running already", "LOCAL_ADDR"}},
		{"a ledger that cannot be", map[string]string{"LEDGER_FILE": filepath.Join("/dev/null", "ledger.db")}, []string{"LEDGER_FILE"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if c.env["LEDGER_FILE"] == "" {
				c.env["LEDGER_FILE"] = filepath.Join(t.TempDir(), "ledger.db")
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			err := run(ctx, quiet(c.env), io.Discard)
			for _, part := range c.wants {
				if err == nil || !strings.Contains(err.Error(), part) {
					t.Errorf("error %v, want one with %s", err, part)
				}
			}
		})
	}
}

func TestNextPort(t *testing.T) {
	t.Parallel()
	at := func(port int) net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port} }
	for _, c := range []struct {
		service    net.Addr
		configured string
		want       string
	}{
		{at(8402), "127.0.0.1:8402", "127.0.0.1:8403"},
		{at(40000), "127.0.0.1:0", "127.0.0.1:0"},
		{at(9000), ":9000", "127.0.0.1:9001"},
	} {
		if got := nextPort(c.service, c.configured); got != c.want {
			t.Errorf("nextPort(%s, %s) = %s, want %s", c.service, c.configured, got, c.want)
		}
	}
}

func TestLineLog(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	log := newLog(&b, slog.LevelInfo)
	log.Debug("hidden")
	log.With("a", 1).WithGroup("g").Info("said", "text", "two words", "empty", "", "plain", "x", "line", "a\nb")
	log.Warn("careful")
	lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	if len(lines) != 2 {
		t.Fatalf("%d lines: %s", len(lines), b.String())
	}
	for i, want := range []string{
		`^\d\d:\d\d:\d\d\.\d{3} said a=1 text="two words" empty="" plain=x line="a\\nb"$`, `^\d\d:\d\d:\d\d\.\d{3} WARN careful$`,
	} {
		if !regexp.MustCompile(want).MatchString(lines[i]) {
			t.Errorf("line %q, want %s", lines[i], want)
		}
	}
}
