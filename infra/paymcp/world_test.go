package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/hostfacts/hostfacts/infra/local/bill"
	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/infra/testbed/programs"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	wire "github.com/hostfacts/hostfacts/pkg/mcp"
	_ "github.com/hostfacts/hostfacts/pkg/operations" // the local runner contains this package; the import makes go test notice its changes
)

func TestMain(m *testing.M) {
	testbed.Parallel(6)
	m.Run()
}

// world is a running service with play money, a relay in front of it, and a folder for the
// files of pay-mcp.
type world struct {
	t     *testing.T
	url   string // the URL of the tools, through the relay
	books *testbed.Facilitator
	dir   string

	mu       sync.Mutex
	handlers []func(*testbed.Relayed) // how the next requests with a payment are handled
	sent     []string                 // all payments that arrived, unchanged
}

// newWorld starts a service and a relay. The plan has the handlers for the first requests with
// a payment.
func newWorld(t *testing.T, plan ...func(*testbed.Relayed)) *world {
	w := &world{t: t, books: testbed.StartFacilitator(t), dir: t.TempDir(), handlers: plan}
	addr := testbed.FreeAddr(t)
	origin := testbed.Serve(t, testbed.Relay{Do: w.relay, To: testbed.ProxyTo(t, "http://"+addr)})
	zone := testbed.ReadZone(t, "example.com. 30 A 192.0.2.77\nexample.com. 30 MX 10 mail.example.com.\n")
	cmd := testbed.Local(testbed.Program(t, testbed.LocalRunner), t.TempDir(), map[string]string{
		"FACILITATOR_URL": w.books.URL, "DNS_RESOLVERS": testbed.Resolver(t, zone), "BASE_URL": origin, "LOCAL_ADDR": addr,
	})
	p := testbed.Must(programs.Start(cmd))
	t.Cleanup(func() { p.End(t) })
	testbed.Check(p.Ready())
	w.url = origin + catalog.PathMCP
	return w
}

// relay passes a request on. If the request has a payment and w.handlers is not empty, the next
// handler handles the request instead.
func (w *world) relay(r *testbed.Relayed) {
	if !bytes.Contains(r.Sent, []byte(wire.KeyPayment)) {
		r.Pass()
		return
	}
	w.mu.Lock()
	w.sent = append(w.sent, paymentIn(r.Sent))
	pass := (*testbed.Relayed).Pass
	if len(w.handlers) > 0 {
		pass, w.handlers = w.handlers[0], w.handlers[1:]
	}
	w.mu.Unlock()
	pass(r)
}

// paymentIn returns the payment in a message, or an empty string.
func paymentIn(message []byte) string {
	var m struct {
		Params struct {
			Meta map[string]json.RawMessage `json:"_meta"`
		} `json:"params"`
	}
	if json.Unmarshal(message, &m) != nil {
		return ""
	}
	return string(m.Params.Meta[wire.KeyPayment])
}

// payments returns how many different payments were sent, and how many messages carried a
// payment.
func (w *world) payments() (different, all int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	seen := map[string]bool{}
	for _, p := range w.sent {
		seen[p] = true
	}
	return len(seen), len(w.sent)
}

// checkCharged checks that the throwaway wallet has made this many transfers.
func (w *world) checkCharged(transfers int) {
	w.t.Helper()
	keys := testbed.Must(filepath.Glob(filepath.Join(w.dir, "*", "play.key")))
	if len(keys) != 1 {
		w.t.Fatalf("keys: %v", keys)
	}
	wallet := testbed.Must(bill.ReadKey(keys[0]))
	if moved := w.books.Moved(wallet.Address().Checksum()); len(moved) != transfers {
		w.t.Errorf("%d transfers, want %d: %+v", len(moved), transfers, moved)
	}
}

// dropAnswer lets the server answer, but drops the answer.
func dropAnswer(r *testbed.Relayed) {
	r.Answer()
	r.Drop()
}

// hostSession is a host's connection to a pay-mcp process that it started.
type hostSession struct {
	*mcp.ClientSession
	cmd *exec.Cmd
	log *programs.Output
}

// start starts pay-mcp as a host does.
func (w *world) start(args ...string) hostSession {
	if len(args) == 0 {
		args = []string{"-dir", w.dir, w.url}
	}
	return startHost(w.t, testbed.PayMCP(w.t), args...)
}

func startHost(t *testing.T, command string, args ...string) hostSession {
	t.Helper()
	h := hostSession{cmd: exec.Command(command, args...), log: new(programs.Output)}
	// The program must not write into the folders of the person who runs the test.
	h.cmd.Env = append(os.Environ(), "NO_PROXY=127.0.0.1", "no_proxy=127.0.0.1", "XDG_CONFIG_HOME="+t.TempDir(), "HOME="+t.TempDir())
	h.cmd.Stderr = h.log
	client := mcp.NewClient(&mcp.Implementation{Name: "host", Version: "1"}, nil)
	session, err := client.Connect(t.Context(), &mcp.CommandTransport{Command: h.cmd}, nil)
	if err != nil {
		t.Fatalf("%v\n%s", err, h.log)
	}
	h.ClientSession = session
	t.Cleanup(func() { session.Close() })
	return h
}

// kill kills the process with SIGKILL.
func (h hostSession) kill() { _ = h.cmd.Process.Kill() } // an error means that the process has ended

// call calls a tool.
func (h hostSession) call(t *testing.T, tool string, arguments map[string]any) *mcp.CallToolResult {
	t.Helper()
	result, err := h.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: arguments})
	if err != nil {
		t.Fatalf("%v\n%s", err, h.log)
	}
	return result
}

// textOf returns all texts of a result, joined.
func textOf(r *mcp.CallToolResult) string {
	var all []string
	for _, c := range r.Content {
		if text, is := c.(*mcp.TextContent); is {
			all = append(all, text.Text)
		}
	}
	return strings.Join(all, "\n")
}

// isPlainAnswer reports whether a result is an answer to which pay-mcp has added no notes.
func isPlainAnswer(r *mcp.CallToolResult) bool { return !r.IsError && len(r.Content) == 1 }

var example = map[string]any{"domain": "example.com"}
