package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/chaintest"
	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

// chainWorld is the local runner as an operator runs it on Base: an Ethereum
// node with the token, a facilitator made of the reference packages, and
// nothing of play money. What goes between the three can be cut or lost.
type chainWorld struct {
	testing.TB
	lab  *lab // the resolver, and the signatures that no log may show
	id   string
	node *chaintest.Node
	// rpc is the service's way to the node; the facilitator has one of its own.
	rpc         *proxy
	facilitator *testbed.Process
	relay       *relay // the service's way to the facilitator
	service     *testbed.Process
	d           *deployment
	ledger      string // the file

	pace    *pace
	payee   x402.Address
	confirm time.Duration

	fallback string  // URL of the second facilitator, empty without one
	killer   *killer // the first one's way to the node, if it can be killed there
}

// chainOptions is what a scenario changes about its world.
type chainOptions struct {
	// confirm is how long the facilitator waits for a receipt. 0 is longer than
	// any scenario.
	confirm time.Duration
	// direct has the service talk to the facilitator without the relay.
	direct bool
	// fallback gives the service a second facilitator, and no duplicate window, and
	// lets the first one be killed at any of its calls to the node.
	fallback bool
}

const longConfirm = 30 * time.Second

// openChain starts everything. It skips the test where Node, its packages or
// the Ethereum node cannot be had.
func openChain(t testing.TB, p *pace, l *lab, o chainOptions) *chainWorld {
	t.Helper()
	testbed.Node(t, facilitatorDir)
	w := &chainWorld{TB: t, pace: p, lab: l, id: fmt.Sprintf("chain%d", caseIDs.Add(1)), confirm: o.confirm}
	if w.confirm == 0 {
		w.confirm = longConfirm
	}
	w.payee = parseAddress(t, l.terms.PayTo)
	w.ledger = filepath.Join(t.TempDir(), "ledger.db")
	w.node = chaintest.Start(t)
	w.rpc = newProxy(t, w.node.URL)
	if o.fallback {
		w.startFacilitator("0")
		w.fallback = w.facilitator.URL
		w.killer = newKiller(t, w.node.URL)
	}
	w.startFacilitator("0")
	url := w.facilitator.URL
	if !o.direct {
		w.relay = newRelay(t, url)
		url = w.relay.url
	}
	w.startService(url)
	return w
}

var facilitatorDir = filepath.Join("testdata", "facilitator")

// startFacilitator runs the reference facilitator on a port. Its account and
// its memory are new.
func (w *chainWorld) startFacilitator(port string) {
	w.Helper()
	node, err := exec.LookPath("node")
	if err != nil {
		w.Fatal(err)
	}
	rpc := w.node.URL
	if w.killer != nil {
		rpc = w.killer.url
	}
	cmd := exec.Command(node, "facilitator.mjs")
	cmd.Dir = facilitatorDir
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "RPC=" + rpc, "NETWORK=" + chaintest.Network, "PORT=" + port,
		"CONFIRM_MS=" + strconv.FormatInt(w.confirm.Milliseconds(), 10),
	}
	w.facilitator = launch(w, cmd)
}

// startService runs the local runner over the world's ledger.
func (w *chainWorld) startService(facilitator string) {
	w.Helper()
	s := w.lab.setup()
	s.facilitator = facilitator
	cmd := exec.Command(localBinary(w))
	cmd.Dir = filepath.Dir(w.ledger)
	cmd.Env = w.environment(s)
	p := launch(w, cmd)
	w.Cleanup(func() {
		p.End(w)
		w.lab.checkLog(w, p.Log.String())
		if w.Failed() {
			w.Logf("the service's log:\n%s", p.Log.String())
		}
	})
	w.service, w.d = p, &deployment{base: p.URL, origin: p.URL}
}

// environment is the configuration of the service, and of the commands that
// look at its ledger.
func (w *chainWorld) environment(s setup) []string {
	vars := s.environment()
	vars["RPC_URL"] = "http://" + w.rpc.addr
	vars["NETWORK"], vars["LEDGER_FILE"], vars["LOCAL_ADDR"] = chaintest.Network, w.ledger, "127.0.0.1:0"
	if w.fallback != "" {
		vars["FACILITATOR_FALLBACK_URL"], vars["DUPLICATE_WINDOW_SECONDS"] = w.fallback, "0"
	}
	return testbed.Environment(vars)
}

// reconcile runs the command of make reconcile over the ledger of a service
// that was stopped, and returns what it prints.
func (w *chainWorld) reconcile() string {
	w.Helper()
	cmd := exec.CommandContext(w.Context(), operateBinary(w), "reconcile")
	cmd.Env = w.environment(w.lab.setup())
	out, err := cmd.Output()
	if err != nil {
		w.Fatalf("reconcile: %v\n%s", err, out)
	}
	return string(out)
}

// balanced holds make books, beside the service, to no differences and to what they
// come to. It makes blocks until all that was paid is safe.
func (w *chainWorld) balanced(total string) {
	w.Helper()
	const settled = 40 // more than the node wants behind a safe block
	w.node.Mine(w, settled)
	now := time.Now().UTC()
	if now.Add(-5*time.Minute).Day() != now.Day() {
		return // it may have been paid on the day before
	}
	cmd := exec.CommandContext(w.Context(), operateBinary(w), "reconcile", "-books", now.Format(time.DateOnly))
	cmd.Env = w.environment(w.lab.setup())
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "\ntotal   "+total+"\n") {
		w.Errorf("books: %v\n%s", err, out)
	}
}

// launch starts a program that says " is ready on <url>" and returns when it
// has. The program is killed at the end of the test, unless it was stopped.
func launch(tb testing.TB, cmd *exec.Cmd) *testbed.Process {
	tb.Helper()
	p, err := testbed.Launch(cmd, nil)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(p.Kill)
	if err := p.Ready(); err != nil {
		tb.Fatal(err)
	}
	return p
}

func parseAddress(tb testing.TB, s string) x402.Address {
	tb.Helper()
	a, err := x402.ParseAddress(s)
	if err != nil {
		tb.Fatal(err)
	}
	return a
}
