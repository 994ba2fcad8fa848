package simnet

import (
	"context"
	"crypto/rand"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// patience is how long a test waits for what must happen.
const patience = 60 * time.Second

// runner is the built local runner, with its play-money facilitator.
type runner struct {
	url     string
	far     *far // where it runs
	log     *testbed.Output
	process *testbed.Process
	quit    bool // it was told to end with its stacks
}

// startRunner starts the runner with production's settings: only what names
// this machine's files and ports is set, the registries' bootstrap, and no
// limit on the one client that the tests are. env comes on top.
func startRunner(t *testing.T, n *internet, env ...string) *runner {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.Command(os.Getenv(runnerVar))
	cmd.Dir = dir
	cmd.Env = append([]string{
		"LOCAL_ADDR=127.0.0.1:0", "LEDGER_FILE=" + filepath.Join(dir, "ledger.db"), "SSL_CERT_FILE=" + n.ca.File,
		"RDAP_BOOTSTRAP_URL=" + n.bootstrap, "RATE_LIMIT_PER_MINUTE=0", "CONCURRENCY_SINGLE=0", "CONCURRENCY_BUNDLE=0",
	}, env...)
	p, err := testbed.Launch(cmd, n.far.start)
	if err != nil {
		t.Fatal(err)
	}
	r := &runner{far: n.far, log: &p.Log, process: p}
	t.Cleanup(func() { r.stop(t) })
	if err := p.Ready(); err != nil {
		t.Fatal(err)
	}
	r.url = p.URL
	return r
}

// stop ends the runner politely, if it still runs; it must have ended well.
func (r *runner) stop(t *testing.T) {
	err := r.process.Stop()
	if r.quit {
		return
	}
	if err != nil {
		t.Error(err)
	}
	log := r.log.String()
	for _, bad := range []string{"panic", "fatal error"} {
		if at := strings.Index(log, bad); at >= 0 {
			t.Errorf("the log says %q: %.2000s", bad, log[at:])
		}
	}
}

// http are requests from where the runner is.
func (r *runner) http() *http.Client {
	transport := &http.Transport{DialContext: r.far.dial, DisableKeepAlives: true, DisableCompression: true}
	return &http.Client{Timeout: patience, Transport: transport}
}

// buy pays for one request with a wallet of its own.
func (r *runner) buy(ctx context.Context, path string) (x402test.Reply, error) {
	wallet, err := x402test.NewWallet(rand.Reader)
	if err != nil {
		return x402test.Reply{}, err
	}
	c := &x402test.Client{HTTP: r.http(), Wallet: wallet, Now: time.Now}
	reply, _, err := c.Buy(ctx, r.url+path)
	return reply, err
}
