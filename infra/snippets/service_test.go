package snippets

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/hostfacts/hostfacts/infra/built"
	"github.com/hostfacts/hostfacts/pkg/boot"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// root is the module, seen from this package.
const root = "../.."

// patience is how long a test waits for another process.
const patience = 10 * time.Minute

func TestMain(m *testing.M) {
	flag.Parse()
	// Two tests wait for the end of a lease, and those who pay for their answers.
	if f := flag.Lookup("test.parallel"); f != nil && f.Value.String() == f.DefValue {
		_ = f.Value.Set("6")
	}
	code := m.Run()
	if dir, err := builtIn(); err == nil {
		_ = os.RemoveAll(dir)
	}
	os.Exit(code)
}

// builtIn is a folder for the built runner; making it is the first use.
var builtIn = sync.OnceValues(func() (string, error) { return os.MkdirTemp("", "hostfacts-snippets-") })

// localRunner is the built local runner, and operatorTools what make owed runs.
var (
	localRunner   = sync.OnceValues(func() (string, error) { return builtProgram("./infra/local") })
	operatorTools = sync.OnceValues(func() (string, error) { return builtProgram("./infra/local/operate") })
)

func builtProgram(pkg string) (string, error) {
	dir, err := builtIn()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, filepath.Base(pkg))
	return path, built.Command(context.Background(), root, pkg, path)
}

// world is what the service works with: the play-money facilitator, a resolver
// and a ledger that outlives the process.
type world struct {
	books *x402test.Facilitator
	env   []string
	dir   string
}

// newWorld makes one. The first settlement goes as first says, the others
// honestly.
func newWorld(t *testing.T, first x402test.Behaviour, resolver string) world {
	t.Helper()
	config, err := boot.ReadLocal(func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	books, err := x402test.NewFacilitator(x402test.FacilitatorConfig{
		Terms: config.Terms, Now: time.Now,
		Behave: func(n int, _ string) x402test.Behaviour {
			if n == 0 {
				return first
			}
			return x402test.Honest
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	facilitator := httptest.NewServer(books)
	t.Cleanup(facilitator.Close)
	dir := t.TempDir()
	return world{books: books, dir: dir, env: []string{
		"LOCAL_ADDR=127.0.0.1:0", "LEDGER_FILE=" + filepath.Join(dir, "ledger.db"), "RPC_URL=none",
		"FACILITATOR_URL=" + facilitator.URL, "DNS_RESOLVERS=" + resolver,
	}}
}

// service is the running service with the play-money facilitator's books.
type service struct {
	url   string
	books *x402test.Facilitator
	kill  func()        // kill -9; it returns when the process is gone
	log   func() string // what it has printed so far
}

// start starts the whole service on this machine, in a world of its own.
func start(t *testing.T, first x402test.Behaviour) service {
	t.Helper()
	return newWorld(t, first, resolver(t, func() {})).start(t)
}

// start starts the service in this world, which may have had one before.
func (w world) start(t *testing.T) service {
	t.Helper()
	s, err := w.tryStart(t)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// tryStart is start for a world in which a first attempt may fail.
func (w world) tryStart(t *testing.T) (service, error) {
	t.Helper()
	program, err := localRunner()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program)
	cmd.Dir, cmd.Env = w.dir, w.env
	url, kill, log, err := run(t, cmd)
	return service{url: url, books: w.books, kill: kill, log: log}, err
}

// run starts the runner, waits for its address and stops it after the test,
// unless it was killed, or ends before it is ready, which is an error.
func run(t *testing.T, cmd *exec.Cmd) (url string, kill func(), log func() string, err error) {
	t.Helper()
	ready := &built.Output{}
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = ready, ready, dieWithUs()
	started, gone := make(chan error, 1), make(chan error, 1)
	go func() {
		// The kernel's dieWithUs is about the thread that started the process.
		runtime.LockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			gone <- cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	over := false
	t.Cleanup(func() {
		if over {
			return
		}
		_ = cmd.Process.Signal(syscall.SIGTERM)
		late := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
		defer late.Stop()
		if err := <-gone; err != nil {
			t.Errorf("the local runner ended with: %v\n%s", err, ready)
		}
	})
	select {
	case url = <-ready.Ready():
	case err := <-gone:
		over = true
		return "", nil, nil, fmt.Errorf("the local runner did not get ready: %w\n%s", err, ready)
	case <-time.After(patience):
		t.Fatalf("the local runner did not get ready: %s", ready)
	}
	return url, func() {
		over = true
		_ = cmd.Process.Kill()
		<-gone
	}, ready.String, nil
}

// answer is the catalog's example answer as the runner gives it here: from the
// resolver of this machine.
func answer(t *testing.T) map[string]any {
	t.Helper()
	var want map[string]any
	if err := json.Unmarshal([]byte(catalog.DNS().Response), &want); err != nil {
		t.Fatal(err)
	}
	want["resolver"] = "127.0.0.1"
	return want
}

// resolver answers the example question with the example's records, each time
// when asked returns.
func resolver(t *testing.T, asked func()) string {
	t.Helper()
	example := answer(t)
	var records []dns.RR
	for _, r := range example["records"].([]any) {
		mx := r.(map[string]any)
		records = append(records, &dns.MX{
			Hdr:        dns.RR_Header{Name: "example.com.", Rrtype: dns.TypeMX, Class: dns.ClassINET, Ttl: uint32(example["ttl"].(float64))},
			Preference: uint16(mx["preference"].(float64)), Mx: mx["exchange"].(string) + ".",
		})
	}
	handler := dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		asked()
		m := new(dns.Msg).SetReply(q)
		m.RecursionAvailable = true
		if len(q.Question) == 1 && strings.EqualFold(q.Question[0].Name, "example.com.") && q.Question[0].Qtype == dns.TypeMX {
			m.Answer = records
		}
		_ = w.WriteMsg(m) // whoever asked may have given up
	})
	packets, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &dns.Server{PacketConn: packets, Handler: handler}
	started, ended := make(chan struct{}), make(chan error, 1)
	server.NotifyStartedFunc = func() { close(started) }
	go func() { ended <- server.ActivateAndServe() }()
	<-started
	t.Cleanup(func() {
		if err := server.Shutdown(); err != nil {
			t.Errorf("stop the DNS server: %v", err)
		}
		if err := <-ended; err != nil {
			t.Errorf("DNS server: %v", err)
		}
	})
	return packets.LocalAddr().String()
}

// get is a plain request of this process.
func get(t *testing.T, url string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := (&http.Client{Timeout: patience}).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { res.Body.Close() })
	return res
}
