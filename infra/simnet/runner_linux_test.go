package simnet

import (
	"context"
	"crypto/rand"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/built"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// patience is how long a test waits for what must happen.
const patience = 60 * time.Second

// runner is the built local runner, with its play-money facilitator.
type runner struct {
	url  string
	far  *far // where it runs
	log  built.Output
	cmd  *exec.Cmd
	gone chan struct{} // closed at its end
	err  error         // that it ended with
	quit bool          // it was told to end with its stacks
}

// startRunner starts the runner with production's settings: only what names
// this machine's files and ports is set, the registries' bootstrap, and no
// limit on the one client that the tests are. env comes on top.
func startRunner(t *testing.T, n *internet, env ...string) *runner {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.Command(os.Getenv(runnerVar))
	r := &runner{cmd: cmd, far: n.far, gone: make(chan struct{})}
	cmd.Dir = dir
	cmd.Env = append([]string{
		"LOCAL_ADDR=127.0.0.1:0", "LEDGER_FILE=" + filepath.Join(dir, "ledger.db"), "SSL_CERT_FILE=" + n.caFile,
		"RDAP_BOOTSTRAP_URL=" + n.bootstrap, "RATE_LIMIT_PER_MINUTE=0", "CONCURRENCY_SINGLE=0", "CONCURRENCY_BUNDLE=0",
	}, env...)
	cmd.Stdout, cmd.Stderr = &r.log, &r.log
	if err := n.far.start(cmd); err != nil {
		t.Fatal(err)
	}
	go func() {
		r.err = cmd.Wait()
		close(r.gone)
	}()
	t.Cleanup(func() { r.stop(t) })
	select {
	case r.url = <-r.log.Ready():
	case <-time.After(patience):
		t.Fatalf("the runner did not get ready:\n%s", r.log.String())
	}
	return r
}

// stop ends the runner politely, if it still runs; it must have ended well.
func (r *runner) stop(t *testing.T) {
	_ = r.cmd.Process.Signal(syscall.SIGTERM) // it may be gone
	late := time.AfterFunc(patience, func() { _ = r.cmd.Process.Kill() })
	defer late.Stop()
	<-r.gone
	if r.quit {
		return
	}
	log := r.log.String()
	if r.err != nil {
		t.Errorf("the runner ended with %v:\n%s", r.err, log)
	}
	for _, bad := range []string{"panic", "fatal error"} {
		if at := strings.Index(log, bad); at >= 0 {
			t.Errorf("the log says %q: %.2000s", bad, log[at:])
		}
	}
}

// buy pays for one request with a wallet of its own.
func (r *runner) buy(ctx context.Context, path string) (x402test.Reply, error) {
	wallet, err := x402test.NewWallet(rand.Reader)
	if err != nil {
		return x402test.Reply{}, err
	}
	transport := &http.Transport{DialContext: r.far.dial, DisableKeepAlives: true, DisableCompression: true}
	c := &x402test.Client{HTTP: &http.Client{Timeout: patience, Transport: transport}, Wallet: wallet, Now: time.Now}
	reply, _, err := c.Buy(ctx, r.url+path)
	return reply, err
}
