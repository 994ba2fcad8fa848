package agents

import (
	"context"
	"io"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/hostfacts/hostfacts/infra/built"
	"github.com/hostfacts/hostfacts/infra/dynamotest"
	"github.com/hostfacts/hostfacts/infra/local/lambdahost"
	"github.com/hostfacts/hostfacts/pkg/boot"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

const (
	// root is the module, seen from this package.
	root = "../.."
	// patience is how long a test waits for another process.
	patience = 10 * time.Minute
)

// world is a running service and the books of its play-money facilitator.
type world struct {
	tools string // the URL of its tools
	books *x402test.Facilitator
}

// worlds are the ways to run the service.
func worlds() map[string]func(*testing.T) world {
	return map[string]func(*testing.T) world{"local": localWorld, "lambda": lambdaWorld}
}

// facilitator starts a play-money one.
func facilitator(t *testing.T) (books *x402test.Facilitator, url string) {
	t.Helper()
	config, err := boot.ReadLocal(func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	if books, err = x402test.NewFacilitator(x402test.FacilitatorConfig{Terms: config.Terms, Now: time.Now}); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(books)
	t.Cleanup(server.Close)
	return books, server.URL
}

// resolver answers every question about an address with one of documentation.
func resolver(t *testing.T) string {
	t.Helper()
	c, err := new(net.ListenConfig).ListenPacket(t.Context(), "udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &dns.Server{PacketConn: c, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		if q.Question[0].Qtype == dns.TypeA {
			m.Answer = []dns.RR{&dns.A{
				Hdr: dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 30}, A: net.IPv4(192, 0, 2, 77),
			}}
		}
		_ = w.WriteMsg(m) // who asked is gone
	})}
	go func() { _ = s.ActivateAndServe() }()
	t.Cleanup(func() { _ = s.Shutdown() })
	return c.LocalAddr().String()
}

// environment is what both worlds are told. All tests share one address.
func environment() map[string]string {
	return map[string]string{"RPC_URL": "none", "RDAP_BOOTSTRAP_URL": "http://127.0.0.1:9/", "RATE_LIMIT_PER_MINUTE": "0"}
}

// localWorld runs the built local runner.
func localWorld(t *testing.T) world {
	t.Helper()
	books, url := facilitator(t)
	dir := t.TempDir()
	program := filepath.Join(dir, "local")
	if err := built.Command(t.Context(), root, "./infra/local", program); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	cmd := exec.CommandContext(ctx, program)
	cmd.Dir, cmd.WaitDelay = dir, patience
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.Env = []string{"LOCAL_ADDR=127.0.0.1:0", "LEDGER_FILE=" + filepath.Join(dir, "ledger.db"), "FACILITATOR_URL=" + url, "DNS_RESOLVERS=" + resolver(t)}
	for name, value := range environment() {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	out := &built.Output{}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		_ = cmd.Wait() // it was told to end
		if t.Failed() {
			t.Logf("the service said:\n%s", out)
		}
	})
	select {
	case base := <-out.Ready():
		return world{tools: base + catalog.PathMCP, books: books}
	case <-time.After(patience):
		t.Fatalf("the local runner did not get ready: %s", out)
	}
	panic("unreachable")
}

// builtIn is a folder for the built functions; making it is the first use.
var builtIn = sync.OnceValues(func() (string, error) { return os.MkdirTemp("", "hostfacts-agents-") })

// functions are the built functions; building them is the first use.
var functions = sync.OnceValues(func() (string, error) {
	dir, err := builtIn()
	if err != nil {
		return "", err
	}
	return dir, built.Functions(context.Background(), root, dir)
})

func TestMain(m *testing.M) {
	code := m.Run()
	if dir, err := builtIn(); err == nil {
		_ = os.RemoveAll(dir)
	}
	os.Exit(code)
}

// lambdaWorld runs the built functions of the template behind a gateway.
func lambdaWorld(t *testing.T) world {
	t.Helper()
	books, url := facilitator(t)
	db := dynamotest.Start(t)
	dir, err := functions()
	if err != nil {
		t.Fatal(err)
	}
	extra := environment()
	extra["AWS_ENDPOINT_URL_DYNAMODB"] = db.URL
	config, err := lambdahost.FromTemplate(filepath.Join(root, "template.yaml"), dir, map[string]string{
		"PayTo": boot.LocalPayTo, "Ledger": db.Table(t), "FacilitatorUrl": url, "DnsResolvers": resolver(t),
	}, extra)
	if err != nil {
		t.Fatal(err)
	}
	config.Logs, config.Domain = io.Discard, "agents.execute-api.us-east-1.amazonaws.com"
	host, err := lambdahost.New(config)
	if err != nil {
		t.Fatal(err)
	}
	gateway := httptest.NewServer(host)
	t.Cleanup(func() {
		gateway.Close()
		host.Close()
	})
	return world{tools: gateway.URL + catalog.PathMCP, books: books}
}
