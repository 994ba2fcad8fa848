package simnet

import (
	"net/http"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

const patience = 60 * time.Second

// runner is the service: the local runner with play money, or the built functions.
type runner struct {
	url     string
	far     *far // where it runs
	log     *testbed.Output
	process *testbed.Process
	turns   chan struct{} // how many are served at once; nil is any number
}

// startRunner starts the runner with production's settings, but for limits, files and ports.
func startRunner(t *testing.T, n *internet, env ...string) *runner {
	dir := t.TempDir()
	cmd := exec.Command(testbed.Program(t, testbed.LocalRunner))
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
	t.Cleanup(func() {
		p.End(t)
		r.sound(t)
	})
	if err := p.Ready(); err != nil {
		t.Fatal(err)
	}
	r.url = p.URL
	return r
}

// sound wants no crash in the log.
func (r *runner) sound(t *testing.T) {
	if crash := testbed.Crash(r.log.String()); crash != "" {
		t.Errorf("the log says %s", crash)
	}
}

// client has a new wallet, and is where the service is.
func (r *runner) client(t testing.TB) *x402test.Client {
	transport := &http.Transport{DialContext: r.far.dial, DisableKeepAlives: true, DisableCompression: true}
	return testbed.NewClient(t, &http.Client{Timeout: patience, Transport: transport})
}

func (r *runner) buy(t testing.TB, path string) (x402test.Reply, error) {
	if r.turns != nil {
		r.turns <- struct{}{}
		defer func() { <-r.turns }()
	}
	reply, _, err := r.client(t).Buy(t.Context(), r.url+path)
	return reply, err
}

// maxResident is design §12's memory of an instance after 1,000 paid requests, in KiB. The runner
// also holds the ledger's file and the play-money facilitator. maxPeak is what that may hold for
// a moment, with 48 hostile peers at once that each send as much as they are let.
const maxResident, maxPeak = 64 << 10, 128 << 10

// deploy starts the built functions as the template deploys them, without limits and without a
// chain. Every invocation must end by itself.
func deploy(t *testing.T, n *internet) *runner {
	r := &runner{log: new(testbed.Output), turns: make(chan struct{}, 12)} // each has a process
	db := testbed.StartDynamo(t)
	t.Cleanup(func() { r.sound(t) }) // when the host is closed
	r.url = testbed.Deployment{
		Functions: testbed.Functions(t), Sound: true,
		Parameters: map[string]string{
			"Ledger": db.Table(t), "FacilitatorUrl": testbed.StartFacilitator(t).URL, "RpcUrl": "none", "RdapBootstrapUrl": n.bootstrap,
			"RateLimitPerMinute": "0", "ConcurrencySingle": "0", "ConcurrencyBundle": "0",
		},
		Environment: map[string]string{"AWS_ENDPOINT_URL_DYNAMODB": db.URL, "SSL_CERT_FILE": n.ca.File},
		Logs:        r.log,
	}.Open(t).URL
	return r
}

// nothingLeft looks at the memory of a runner that has answered every kind of hostile peer.
func nothingLeft(t *testing.T, r *runner) {
	pid := r.process.Cmd.Process.Pid
	// What the hostile peers took is given back in the course of ordinary requests.
	for limit := time.Now().Add(patience); testbed.Memory(t, pid, "VmRSS") > maxResident && time.Now().Before(limit); {
		_, _ = r.buy(t, catalog.Ping().Path)
	}
	resident, peak := testbed.Memory(t, pid, "VmRSS"), testbed.Memory(t, pid, "VmHWM")
	if resident > maxResident || peak > maxPeak {
		t.Errorf("the runner holds %d KiB and held %d, want %d and %d at most", resident, peak, maxResident, maxPeak)
	}
}
