package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/infra/testbed/cloud"
	"github.com/hostfacts/hostfacts/infra/testbed/programs"
	"github.com/hostfacts/hostfacts/pkg/boot"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// runner is a call of run in this process, which a test can stop.
type runner struct {
	out       programs.Output
	stop      context.CancelFunc
	runResult chan error
}

// quietEnv returns an environment in which the service uses no network outside this machine.
func quietEnv(env map[string]string) func(string) string {
	all := map[string]string{"LOCAL_ADDR": "127.0.0.1:0", "DNS_RESOLVERS": "127.0.0.1:9", "RPC_URL": "none"}
	for name, value := range env {
		all[name] = value
	}
	return func(name string) string { return all[name] }
}

func start(t *testing.T, env map[string]string) *runner {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r := &runner{stop: cancel, runResult: make(chan error, 1)}
	go func() { r.runResult <- run(ctx, quietEnv(env), &r.out) }()
	t.Cleanup(func() {
		cancel()
		r.runResult <- <-r.runResult // waits for the end, and puts the result back for a test that also waits
	})
	select {
	case <-r.out.Ready():
	case err := <-r.runResult:
		r.runResult <- err
		t.Fatalf("it ended: %v\n%s", err, r.out.String())
	case <-time.After(time.Minute):
		t.Fatal("not ready after a minute")
	}
	return r
}

// welcomeLine looks for the given text in the welcome, which the service prints at start, and
// returns the rest of that line.
func (r *runner) welcomeLine(t *testing.T, what string) string {
	t.Helper()
	m := regexp.MustCompile(`(?m)` + what + ` +(\S.*)$`).FindStringSubmatch(r.out.String())
	if m == nil {
		t.Fatalf("the welcome does not name the %s:\n%s", what, r.out.String())
	}
	return m[1]
}

func buyPing(t *testing.T, r *runner) {
	t.Helper()
	reply, _, err := testbed.NewClient(t, &http.Client{Timeout: time.Minute}).Buy(t.Context(), r.welcomeLine(t, "is ready on")+catalog.Ping().Path)
	if err != nil || reply.Status != http.StatusOK {
		t.Fatalf("paid ping: %d %s, %v\n%s", reply.Status, reply.Body, err, r.out.String())
	}
}

// visitor returns a client that has no wallet.
func visitor() *x402test.Client { return &x402test.Client{HTTP: &http.Client{Timeout: time.Minute}} }

func transfers(t *testing.T, facilitator string) int {
	t.Helper()
	var list []x402test.Transfer
	testbed.Check(json.Unmarshal(testbed.Must(visitor().Get(t.Context(), facilitator+"/transfers", "")).Body, &list))
	return len(list)
}

// TestRunWithPlayMoney checks that a service without configuration takes play money, and still
// has its transfers after a restart.
func TestRunWithPlayMoney(t *testing.T) {
	t.Parallel()
	env := map[string]string{"LEDGER_FILE": filepath.Join(t.TempDir(), "new", "ledger.db")}
	first := start(t, env)
	buyPing(t, first)
	if n := transfers(t, first.welcomeLine(t, "facilitator")); n != 1 {
		t.Errorf("%d transfers, want 1", n)
	}
	if got := first.welcomeLine(t, "ledger"); got != env["LEDGER_FILE"] {
		t.Errorf("ledger %s", got)
	}

	// The documentation page and the welcome must say that the service takes play money. The
	// server must have time limits, so that it drops clients that do not send a complete
	// request.
	page := testbed.Must(visitor().Get(t.Context(), first.welcomeLine(t, "is ready on")+"/docs", ""))
	if !strings.Contains(string(page.Body), "takes play money") || first.welcomeLine(t, "Pay for an answer") != "(play money), in another terminal:" {
		t.Errorf("the page or the welcome does not say so: %s", page.Body)
	}
	if s := newServer(nil); s.ReadTimeout == 0 || s.IdleTimeout == 0 || s.WriteTimeout <= 30*time.Second {
		t.Errorf("%+v waits for ever, or not for a lookup", s)
	}

	// Several services can share a ledger, but only one at a time can have the play-money
	// facilitator. A second run with play money must therefore fail.
	checkErrorMentions(t, run(t.Context(), quietEnv(env), io.Discard), "play-money journal", "another process", "FACILITATOR_URL", "LEDGER_FILE=")
	first.stop()
	if err := <-first.runResult; err != nil {
		t.Errorf("stopped: %v", err)
	}
	first.runResult <- nil
	// If the service listens on all addresses, the welcome and every offer must name an
	// address that clients can use.
	env["LOCAL_ADDR"] = "0.0.0.0:0"
	second := start(t, env)
	if n := transfers(t, second.welcomeLine(t, "facilitator")); n != 1 {
		t.Errorf("%d transfers after a restart, want 1", n)
	}
	ping := second.welcomeLine(t, "is ready on") + catalog.Ping().Path
	offer, err := visitor().Challenge(t.Context(), ping)
	if err != nil || offer.Resource.URL != ping || !strings.HasPrefix(ping, "http://127.0.0.1:") || strings.Contains(second.out.String(), "://0.0.0.0") {
		t.Errorf("the offer is for %s, want %s (%v):\n%s", offer.Resource.URL, ping, err, second.out.String())
	}
	buyPing(t, second)
}

// TestRunOnATestNetwork checks that NETWORK alone selects the token, the facilitator and the
// text for payers of a test network. The test does not use that network: at start, the service
// calls neither the facilitator nor a node.
func TestRunOnATestNetwork(t *testing.T) {
	t.Parallel()
	r := start(t, map[string]string{"NETWORK": x402.BaseSepolia, "LEDGER_FILE": filepath.Join(t.TempDir(), "ledger.db")})
	known := x402.Network(x402.BaseSepolia)
	for what, want := range map[string]string{
		"network": "Base Sepolia", "facilitator": known.Facilitator, "payee": boot.LocalPayTo + " (a published test address; set PAY_TO to use yours)",
		"Pay for an answer": "(test money of Base Sepolia, which https://faucet.circle.com gives away), in another terminal:",
		"make pay":          "KEY_FILE=<a file with a private key> URL='" + catalog.DNS().ExampleURL(r.welcomeLine(t, "is ready on")) + "'",
	} {
		if got := r.welcomeLine(t, what); got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
	offer := testbed.Must(visitor().Challenge(t.Context(), r.welcomeLine(t, "is ready on")+catalog.Ping().Path))
	terms := known.USDC
	terms.PayTo = boot.LocalPayTo
	if got, want := offer.Accepts[0], terms.Requirements(catalog.Ping().Amount); got != want {
		t.Errorf("offered %+v, want %+v", got, want)
	}

	// The service must accept a payment in the network's token if a facilitator for this
	// network settles the payment.
	f := testbed.Must(x402test.NewFacilitator(x402test.FacilitatorConfig{Terms: terms, Now: time.Now}))
	t.Cleanup(func() { f.Close() })
	paid := start(t, map[string]string{
		"NETWORK": x402.BaseSepolia, "FACILITATOR_URL": testbed.Serve(t, f), "LEDGER_FILE": filepath.Join(t.TempDir(), "ledger.db"),
	})
	buyPing(t, paid)
	if n := transfers(t, paid.welcomeLine(t, "facilitator")); n != 1 {
		t.Errorf("%d transfers on the test network, want 1", n)
	}
}

// TestRunAsConfigured checks that a configured facilitator is used instead of the play-money
// one, and that a configured table in DynamoDB is used and is created if it is missing.
func TestRunAsConfigured(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("runs in make verify: needs Node for the DynamoDB server")
	}
	env := cloud.StartDynamo(t).Settings("made-here")
	env["FACILITATOR_URL"], env["BASE_URL"] = "http://127.0.0.1:1", "http://localhost:1"
	env["LEDGER_FILE"] = filepath.Join(t.TempDir(), "ledger.db")
	r := start(t, env)
	for what, want := range map[string]string{
		"facilitator": "http://127.0.0.1:1", "ledger": "DynamoDB table made-here", "is ready on": "http://localhost:1", "Pay for an answer, in": "another terminal:",
	} {
		if got := r.welcomeLine(t, what); got != want {
			t.Errorf("%s %s, want %s", what, got, want)
		}
	}
}

// checkErrorMentions checks that an error contains all parts.
func checkErrorMentions(t *testing.T, err error, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("error %v, want one with %q", err, part)
		}
	}
}

func TestRunSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	taken := testbed.Must(net.Listen("tcp", "127.0.0.1:0"))
	t.Cleanup(func() { taken.Close() })
	damaged := filepath.Join(t.TempDir(), "ledger.db")
	testbed.Check(os.WriteFile(damaged, []byte("not a ledger"), 0o600))
	kept := t.TempDir()
	other := testbed.Must(x402test.NewFacilitator(x402test.FacilitatorConfig{Now: time.Now, Journal: filepath.Join(kept, "play-money.jsonl")}))
	t.Cleanup(func() { testbed.Check(other.Close()) })
	for _, c := range []struct {
		name  string
		env   map[string]string
		wants []string
	}{
		{"every fault at once", map[string]string{"PAY_TO": "me", "DNS_RESOLVERS": "resolver", "LOG_LEVEL": "loud"}, []string{"PAY_TO", "DNS_RESOLVERS", "LOG_LEVEL"}},
		{"the port is taken", map[string]string{"LOCAL_ADDR": taken.Addr().String()}, []string{"running already", "LOCAL_ADDR"}},
		{"the ledger is another service's", map[string]string{"LOCAL_ADDR": "127.0.0.1:0", "LEDGER_FILE": filepath.Join(kept, "ledger.db")}, []string{"in use by another process", "running already", "LEDGER_FILE=", "FACILITATOR_URL"}},
		{"no port", map[string]string{"LOCAL_ADDR": "8402"}, []string{"LOCAL_ADDR=8402 is not an address", "127.0.0.1:8402"}},
		{"no such port", map[string]string{"LOCAL_ADDR": "127.0.0.1:99999"}, []string{"LOCAL_ADDR=127.0.0.1:99999 is not an address", "1 to 65535"}},
		{"the last port", map[string]string{"LOCAL_ADDR": "127.0.0.1:65535"}, []string{"LOCAL_ADDR", "65535"}}, // the error has both words even if another program uses this port
		{"play money in AWS", map[string]string{"LEDGER_TABLE": "ledger", "AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s"}, []string{"LEDGER_TABLE", "FACILITATOR_URL"}},
		{"real money for nobody", map[string]string{"FACILITATOR_URL": "https://facilitator.example"}, []string{"PAY_TO is not set", "NETWORK=eip155:84532 is a test network"}},
		{"a ledger that cannot be", map[string]string{"LEDGER_FILE": filepath.Join("/dev/null", "ledger.db")}, []string{"LEDGER_FILE"}},
		{"a damaged ledger", map[string]string{"LEDGER_FILE": damaged}, []string{damaged, "is damaged", "move it away", "LEDGER_FILE", "owed"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if c.env["LEDGER_FILE"] == "" {
				c.env["LEDGER_FILE"] = filepath.Join(t.TempDir(), "ledger.db")
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			checkErrorMentions(t, run(ctx, quietEnv(c.env), io.Discard), c.wants...)
		})
	}
}

// TestAddresses checks at which addresses clients reach the service and the play-money
// facilitator. Both depend on the address that the service listens on and on the configured
// address.
func TestAddresses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ listening, configured, called, next string }{
		{"[::]:41234", ":8410", "127.0.0.1:41234", "127.0.0.1:41235"},
		{"[::]:41234", "0.0.0.0:0", "127.0.0.1:41234", "127.0.0.1:0"},
		{"[::]:65534", "[::]:65534", "[::1]:65534", "[::1]:65535"},
		{"127.0.0.1:41234", "localhost:0", "127.0.0.1:41234", "127.0.0.1:0"},
		{"192.0.2.7:41234", "192.0.2.7:41234", "192.0.2.7:41234", "192.0.2.7:41235"},
		{"127.0.0.1:65535", "127.0.0.1:0", "127.0.0.1:65535", "127.0.0.1:0"},
		{"127.0.0.1:65535", "127.0.0.1:65535", "127.0.0.1:65535", ""},
	} {
		t.Run(c.listening+" for "+c.configured, func(t *testing.T) {
			called := clientAddr(net.TCPAddrFromAddrPort(netip.MustParseAddrPort(c.listening)), c.configured)
			next, err := nextPort(called, c.configured)
			if called != c.called || next != c.next {
				t.Errorf("called by %s, want %s; play money at %s (%v), want %s", called, c.called, next, err, c.next)
			}
			if c.next == "" {
				checkErrorMentions(t, err, "LOCAL_ADDR has the last port")
			}
		})
	}
}

// TestRunFacilitatorPortTaken checks the error if the port of the play-money facilitator is
// taken. This port is the one after the service's.
func TestRunFacilitatorPortTaken(t *testing.T) {
	t.Parallel()
	for range 20 {
		taken := testbed.Must(net.Listen("tcp", "127.0.0.1:0"))
		defer taken.Close()
		addr := fmt.Sprintf("127.0.0.1:%d", taken.Addr().(*net.TCPAddr).Port-1)
		err := run(t.Context(), quietEnv(map[string]string{"LOCAL_ADDR": addr, "LEDGER_FILE": filepath.Join(t.TempDir(), "ledger.db")}), io.Discard)
		if err == nil || !strings.Contains(err.Error(), "running already") { // otherwise the service's own port was taken: try another
			checkErrorMentions(t, err, "the play-money facilitator on the port after the service's", "address already in use", "LOCAL_ADDR", "FACILITATOR_URL")
			return
		}
	}
	t.Fatal("the service's port was always taken")
}

func TestLineLog(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	log := newLog(&b, slog.LevelInfo)
	log.Debug("hidden")
	log.With("a", 1).Info("said", "text", "two words", "Requests", 1, "_aws", []int{1}, "line", "a\nb")
	log.Warn("careful")
	lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	if len(lines) != 2 {
		t.Fatalf("%d lines: %s", len(lines), b.String())
	}
	for i, want := range []string{
		`^time=\d\d:\d\d:\d\d\.\d{3} msg=said a=1 text="two words" line="a b"$`, `^time=\d\d:\d\d:\d\d\.\d{3} level=WARN msg=careful$`,
	} {
		if !regexp.MustCompile(want).MatchString(lines[i]) {
			t.Errorf("line %q, want %s", lines[i], want)
		}
	}
}

// TestAtHome checks which web pages can use the service's MCP tools. A page of another site
// must not, even if its host name resolves to this machine. Pages of this machine and of the
// configured origin must be able to use them. If other machines can reach the service anyway,
// every page may use the tools.
func TestAtHome(t *testing.T) {
	here, everywhere := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8402}, &net.TCPAddr{IP: net.IPv4zero, Port: 8402}
	for _, c := range []struct {
		listening    net.Addr
		base, path   string
		host, origin string
		status       int
	}{
		{listening: here, base: "http://127.0.0.1:8402", path: "/mcp", host: "127.0.0.1:8402", status: 200},
		{listening: here, base: "http://127.0.0.1:8402", path: "/mcp", host: "localhost:8402", origin: "http://localhost:6274", status: 200},
		{listening: here, base: "http://127.0.0.1:8402", path: "/mcp", host: "[::1]:8402", origin: "http://[::1]:1", status: 200},
		{listening: here, base: "http://127.0.0.1:8402", path: "/mcp", host: "LOCALHOST", status: 200},
		{listening: here, base: "http://127.0.0.1:8402", path: "/mcp", host: "evil.example.com", status: 403},
		{listening: here, base: "http://127.0.0.1:8402", path: "/mcp", host: "evil.example.com:8402", origin: "http://evil.example.com:8402", status: 403},
		{listening: here, base: "http://127.0.0.1:8402", path: "/mcp", host: "127.0.0.1:8402", origin: "https://evil.example.com", status: 403},
		{listening: here, base: "http://127.0.0.1:8402", path: "/mcp", host: "127.0.0.1:8402", origin: "null", status: 403},
		{listening: here, base: "http://127.0.0.1:8402", path: "/mcp", host: "127.0.0.1.evil.example.com", status: 403},
		{listening: here, base: "http://127.0.0.1:8402", path: "/docs", host: "evil.example.com", origin: "https://evil.example.com", status: 200},
		{listening: here, base: "https://api.example.com", path: "/mcp", host: "api.example.com", origin: "https://api.example.com", status: 200}, // behind a proxy on this machine
		{listening: everywhere, base: "http://127.0.0.1:8402", path: "/mcp", host: "my-machine.example.com", origin: "https://evil.example.com", status: 200},
	} {
		h := onlyFromHere(c.listening, c.base, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		r := httptest.NewRequest(http.MethodPost, c.path, nil)
		r.Host = c.host
		if c.origin != "" {
			r.Header.Set("Origin", c.origin)
		}
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); w.Code != c.status {
			t.Errorf("%+v: %d", c, w.Code)
		}
	}
}
