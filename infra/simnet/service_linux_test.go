package simnet

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/clients"
	"github.com/hostfacts/hostfacts/infra/dynamotest"
	"github.com/hostfacts/hostfacts/infra/local/lambdahost"
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
	cmd := exec.Command(builtIn("local"))
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
	t.Helper()
	err := r.process.Stop()
	if r.quit {
		return
	}
	if err != nil {
		t.Error(err)
	}
	r.sound(t)
}

// sound wants no crash in the log.
func (r *runner) sound(t *testing.T) {
	t.Helper()
	log := r.log.String()
	for _, bad := range []string{"panic", "fatal error"} {
		if at := strings.Index(log, bad); at >= 0 {
			t.Errorf("the log says %q: %.2000s", bad, log[max(0, at-200):])
		}
	}
}

// client has a wallet of its own, and is where the service is.
func (r *runner) client() (*x402test.Client, error) {
	transport := &http.Transport{DialContext: r.far.dial, DisableKeepAlives: true, DisableCompression: true}
	wallet, err := x402test.NewWallet(rand.Reader)
	return &x402test.Client{HTTP: &http.Client{Timeout: patience, Transport: transport}, Wallet: wallet, Now: time.Now}, err
}

// buy pays for one request with a wallet of its own.
func (r *runner) buy(ctx context.Context, path string) (x402test.Reply, error) {
	c, err := r.client()
	if err != nil {
		return x402test.Reply{}, err
	}
	reply, _, err := c.Buy(ctx, r.url+path)
	return reply, err
}

// description is the runner's own OpenAPI description, as it serves it.
func (r *runner) description(t *testing.T) *clients.OpenAPI {
	t.Helper()
	c, err := r.client()
	if err != nil {
		t.Fatal(err)
	}
	d, err := clients.FetchOpenAPI(t.Context(), c.HTTP, r.url)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// deployed is the built functions as the template deploys them: one process
// for each event at a time, behind a gateway, over a DynamoDB table.
type deployed struct {
	runner
	host  *lambdahost.Host
	mu    sync.Mutex
	procs map[int]string // PID -> function
}

// deploy starts them in the internet. Their limits are off as the runner's are,
// and they know no chain.
func deploy(t *testing.T, n *internet) *deployed {
	t.Helper()
	d := &deployed{runner: runner{log: new(testbed.Output)}, procs: map[int]string{}}
	db := dynamotest.Start(t)
	d.host, d.url = testbed.Deployment{
		Functions: builtIn("functions"),
		Parameters: map[string]string{
			"Ledger": db.Table(t), "FacilitatorUrl": testbed.StartFacilitator(t, nil).URL, "RpcUrl": "none", "RdapBootstrapUrl": n.bootstrap,
			"RateLimitPerMinute": "0", "ConcurrencySingle": "0", "ConcurrencyBundle": "0",
		},
		Environment: map[string]string{"AWS_ENDPOINT_URL_DYNAMODB": db.URL, "SSL_CERT_FILE": n.ca.File},
		Configure: func(c *lambdahost.Config) {
			c.Logs = d.log
			c.OnSpawn = func(p lambdahost.Process) {
				d.mu.Lock()
				defer d.mu.Unlock()
				d.procs[p.PID] = p.Function
			}
		},
	}.Open(t)
	return d
}

// endedWell wants every invocation to have ended by itself, no crash in the
// logs, and no function to hold more memory than design §12 allows.
func (d *deployed) endedWell(t *testing.T) {
	t.Helper()
	for _, name := range d.host.Names() {
		if st := d.host.Stats(name); st.Errors != 0 {
			t.Errorf("%s: %d invocations failed, %d of them timed out", name, st.Errors, st.TimedOut)
		}
	}
	d.sound(t)
	d.mu.Lock()
	defer d.mu.Unlock()
	most := map[string]int{}
	for pid, name := range d.procs {
		if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); err == nil {
			most[name] = max(most[name], memory(t, pid, "VmHWM:"))
		}
	}
	for name, kib := range most {
		if kib > maxResident {
			t.Errorf("a process of %s held %d KiB, want %d at most", name, kib, maxResident)
		}
	}
	t.Logf("the most that a process of each function held, in KiB: %v", most)
}

// maxResident is design §12's memory of an instance after 1,000 paid requests.
// The runner also holds the ledger's file and the play-money facilitator.
const maxResident = 64 << 10 // KiB

// maxPeak is what it may hold for a moment, with 48 hostile peers at once that
// each send as much as they are let.
const maxPeak = 2 * maxResident

// holding is what a process holds.
type holding struct{ resident, peak, descriptors int }

func holds(t *testing.T, pid int) holding {
	t.Helper()
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	return holding{resident: memory(t, pid, "VmRSS:"), peak: memory(t, pid, "VmHWM:"), descriptors: len(open)}
}

// nothingLeft looks at a runner that has answered everything, every kind of
// hostile peer included, and compares with what it held before: memory,
// descriptors, sockets and goroutines. It ends the runner, whose last words are
// the stacks of its goroutines.
func nothingLeft(t *testing.T, r *runner, before holding) {
	t.Helper()
	after := holds(t, r.process.Cmd.Process.Pid)
	t.Logf("the runner holds %d KiB and %d descriptors; before the first request %d KiB and %d; at most it held %d KiB",
		after.resident, after.descriptors, before.resident, before.descriptors, after.peak)
	if after.resident > maxResident || after.peak > maxPeak {
		t.Errorf("the runner holds %d KiB and held %d, want %d and %d at most", after.resident, after.peak, maxResident, maxPeak)
	}
	// The runner's own connections to its facilitator may stay open, and a peer's
	// last segment may be under way.
	const kept = 16
	for limit := time.Now().Add(patience); ; <-time.After(100 * time.Millisecond) {
		open, left := outgoing(t), holds(t, r.process.Cmd.Process.Pid).descriptors-before.descriptors
		if len(open) == 0 && left <= kept {
			break
		}
		if time.Now().After(limit) {
			t.Fatalf("%d descriptors were left behind, and the sockets %v", left, open)
		}
	}
	stacks := r.lastWords(t)
	if !strings.Contains(stacks, "main.serve") || !strings.Contains(stacks, "net/http.(*Server).Serve") {
		t.Fatalf("there are not all stacks in the runner's last words: %.500s", stacks)
	}
	for g := range strings.SplitSeq(stacks, "\n\n") {
		for _, pkg := range []string{"pkg/lookup", "pkg/origin", "pkg/guard"} {
			if strings.Contains(g, pkg) {
				t.Errorf("a goroutine was left behind: %.1000s", g)
			}
		}
	}
}

// memory is a line of what the kernel says about a process's memory, in KiB.
func memory(t *testing.T, pid int, line string) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), line)
	value, _, _ := strings.Cut(strings.TrimSpace(rest), " kB")
	n, err := strconv.Atoi(value)
	if err != nil {
		t.Fatalf("%s %v", line, err)
	}
	return n
}

// outgoing are the sockets of the namespace that are connected to port 443 or
// 53 of anybody, as the kernel lists them, but for those that only wait for
// stray segments (TIME_WAIT, which belongs to no process).
func outgoing(t *testing.T) []string {
	t.Helper()
	const timeWait = "06"
	var open []string
	for _, file := range []string{"tcp", "tcp6", "udp", "udp6"} {
		b, err := os.ReadFile("/proc/self/net/" + file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(b)) {
			f := strings.Fields(line) // number, local, remote, state
			if len(f) < 4 || f[3] == timeWait {
				continue
			}
			if _, port, _ := strings.Cut(f[2], ":"); port == "01BB" || port == "0035" {
				open = append(open, file+" "+f[2]+" "+f[3])
			}
		}
	}
	return open
}

// lastWords ends the runner as Go programs end at SIGQUIT, and returns what it
// wrote then.
func (r *runner) lastWords(t *testing.T) string {
	t.Helper()
	before := len(r.log.String())
	if err := r.process.Cmd.Process.Signal(syscall.SIGQUIT); err != nil {
		t.Fatal(err)
	}
	r.quit = true
	select {
	case <-r.process.Gone():
	case <-time.After(patience):
		t.Fatal("the runner does not end")
	}
	return r.log.String()[before:]
}
