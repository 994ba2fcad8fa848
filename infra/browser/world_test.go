package browser

import (
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/built"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// world is the service behind the pages.
type world struct {
	origin string // of the proxy: what the browser knows
	proxy  *proxy
	dns    *resolver
	books  *books
}

// terms are the local runner's own, so that the facilitator agrees with it.
func terms() x402.Terms {
	return x402.Terms{
		Network: "eip155:8453", Asset: "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913",
		PayTo: "0x70997970C51812dc3A010C7d01b50e0d17dc79C8", Name: "USD Coin", Version: "2",
	}
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{proxy: newProxy(t), dns: newResolver(t), books: newBooks(t)}
	w.origin = w.proxy.url
	w.proxy.to(t, startRunner(t, w))
	return w
}

// books are the play-money facilitator with a count of settlements by payer.
type books struct {
	*x402test.Facilitator
	url string

	mu      sync.Mutex
	settles map[string]int       // by payer, lower case
	next    []x402test.Behaviour // of the next settlements; honest when empty
}

func newBooks(t *testing.T) *books {
	t.Helper()
	b := &books{settles: map[string]int{}}
	f, err := x402test.NewFacilitator(x402test.FacilitatorConfig{Terms: terms(), Now: time.Now, Behave: b.behave})
	if err != nil {
		t.Fatal(err)
	}
	b.Facilitator = f
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	b.url = server.URL
	return b
}

func (b *books) behave(_ int, key string) x402test.Behaviour {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.settles[strings.Split(key, "|")[2]]++
	if len(b.next) == 0 {
		return x402test.Honest
	}
	how := b.next[0]
	b.next = b.next[1:]
	return how
}

func (b *books) plan(next ...x402test.Behaviour) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.next = next
}

// of is how often a payer's money was asked for, and how often it moved.
func (b *books) of(payer string) (settles, transfers int) {
	payer = strings.ToLower(payer)
	for _, t := range b.Transfers() {
		if strings.Split(t.Key, "|")[2] == payer {
			transfers++
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.settles[payer], transfers
}

// startRunner starts the built local runner and returns where it listens.
func startRunner(t *testing.T, w *world) string {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.Command(buildRunner(t))
	cmd.Dir = dir
	cmd.Env = []string{
		"LOCAL_ADDR=127.0.0.1:0", "LEDGER_FILE=" + filepath.Join(dir, "ledger.db"),
		"FACILITATOR_URL=" + w.books.url, "DNS_RESOLVERS=" + w.dns.addr, "RPC_URL=none",
		"RDAP_BOOTSTRAP_URL=http://127.0.0.1:9/", "RATE_LIMIT_PER_MINUTE=0",
		"PAY_TO=" + terms().PayTo, "LOG_LEVEL=warn",
	}
	log := &built.Output{}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	gone := make(chan error, 1)
	go func() { gone <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may be gone
		late := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
		defer late.Stop()
		if err := <-gone; err != nil {
			t.Errorf("the runner ended with %v:\n%s", err, log)
		}
	})
	select {
	case addr := <-log.Ready():
		return addr
	case <-time.After(patience):
		t.Fatalf("the runner did not get ready:\n%s", log)
		return ""
	}
}
