package e2e

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
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
	d           *deployment

	pace    *pace
	payee   x402.Address
	confirm time.Duration

	fallback string // URL of the second facilitator, empty without one
	toNode   *tap   // the first one's way to the node, if it can be killed there
	nodeURL  string // what a facilitator calls the node by
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
	w.node = chaintest.Start(t)
	w.rpc, w.nodeURL = newProxy(t, w.node.URL), w.node.URL
	if o.fallback {
		w.startFacilitator("0")
		w.fallback = w.facilitator.URL
		w.toNode = newTap(t)
		w.nodeURL = w.toNode.server(callNode, w.node.URL)
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
	cmd := exec.Command(node, "facilitator.mjs")
	cmd.Dir = facilitatorDir
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "RPC=" + w.nodeURL, "NETWORK=" + chaintest.Network, "PORT=" + port,
		"CONFIRM_MS=" + strconv.FormatInt(w.confirm.Milliseconds(), 10),
	}
	p, err := testbed.Launch(cmd, nil)
	if err != nil {
		w.Fatal(err)
	}
	w.facilitator = p
	w.Cleanup(p.Kill)
	if err := p.Ready(); err != nil {
		w.Fatal(err)
	}
}

// restartFacilitator runs another one where the last one was.
func (w *chainWorld) restartFacilitator() {
	w.Helper()
	u, err := url.Parse(w.facilitator.URL)
	if err != nil {
		w.Fatal(err)
	}
	w.startFacilitator(u.Port())
}

// startService runs the local runner over a ledger of its own.
func (w *chainWorld) startService(facilitator string) {
	w.Helper()
	s := w.lab.setup()
	s.facilitator = facilitator
	s.more = map[string]string{"RPC_URL": "http://" + w.rpc.addr, "NETWORK": chaintest.Network}
	if w.fallback != "" {
		s.more["FACILITATOR_FALLBACK_URL"], s.more["DUPLICATE_WINDOW_SECONDS"] = w.fallback, "0"
	}
	service := startLocal(w, w.lab, s, filepath.Join(w.TempDir(), "ledger.db"))
	w.Cleanup(func() {
		if w.Failed() {
			w.Logf("the service's log:\n%s", service.Log.String())
		}
	})
	w.d = &deployment{base: service.URL, origin: service.URL}
}

// ask calls the node, and reads its answer into v.
func (w *chainWorld) ask(v any, method string, params ...any) {
	w.Helper()
	if raw := w.node.Call(w, method, params...); json.Unmarshal(raw, v) != nil {
		w.Fatalf("%s: %s", method, raw)
	}
}

// awaitPool waits until that many transactions wait for a block.
func (w *chainWorld) awaitPool(n int) {
	w.Helper()
	poll(w, fmt.Sprintf("%d transactions on their way", n), func() bool {
		var pool struct{ Pending string }
		w.ask(&pool, "txpool_status")
		return pool.Pending == fmt.Sprintf("0x%x", n)
	})
}

func parseAddress(tb testing.TB, s string) x402.Address {
	tb.Helper()
	a, err := x402.ParseAddress(s)
	if err != nil {
		tb.Fatal(err)
	}
	return a
}
