package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/infra/testbed/programs"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/file"
	"github.com/hostfacts/hostfacts/pkg/x402/x402http"
)

// The service and the middleware ask for payments on this network to this payee. Nothing is
// paid on any chain.
const (
	network = "eip155:8453"
	payTo   = "0x70997970C51812dc3A010C7d01b50e0d17dc79C8" // a public test account
)

type server struct{ *programs.Process }

func (s *server) host() string { return strings.TrimPrefix(s.URL, "http://") }

// start starts a server program. It waits until the program prints the given text, followed by
// the origin of the server.
func start(ready string, cmd *exec.Cmd) *server {
	cmd.Stderr = os.Stderr
	p := must(programs.StartWith(cmd, programs.Options{Mark: ready, Most: 64 << 10}))
	check(p.Ready())
	return &server{p}
}

// serve serves a handler on this machine until the context ends, and prints its URL.
func (s *site) serve(h http.Handler) {
	listener := must(new(net.ListenConfig).Listen(s.ctx, "tcp", "127.0.0.1:0"))
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	defer context.AfterFunc(s.ctx, func() { _ = server.Close() })()
	fmt.Printf("ready on http://%s\n", listener.Addr())
	_ = server.Serve(listener)
}

// startSelf starts another process of this program, with a command that runs a server.
func (s *site) startSelf(command, file string) *server {
	return start("ready on ", exec.CommandContext(s.ctx, must(os.Executable()), command, "-file", file, "-facilitator", s.facilitator))
}

// startService starts the local runner with a ledger in a file. The runner has no rate limit,
// because all requests come from one address.
func (s *site) startService(ledgerFile string) *server {
	cmd := exec.CommandContext(s.ctx, "build/local")
	cmd.Env = []string{
		"LOCAL_ADDR=127.0.0.1:0", "LEDGER_FILE=" + ledgerFile, "FACILITATOR_URL=" + s.facilitator, "NETWORK=" + network, "PAY_TO=" + payTo,
		"RPC_URL=none", "RATE_LIMIT_PER_MINUTE=0", "PATH=" + os.Getenv("PATH"), "HOME=" + s.dir,
	}
	return start(" is ready on ", cmd)
}

func (s *site) startExpress() *server {
	cmd := exec.CommandContext(s.ctx, "node", "server.mjs")
	cmd.Dir = "infra/bench/testdata/express"
	cmd.Env = append(os.Environ(), "NODE_ENV=production", "FACILITATOR="+s.facilitator, "NETWORK="+network, "PAY_TO="+payTo)
	return start("ready on ", cmd)
}

func (s *server) stop() {
	_ = s.Stop() // the exit status of a stopped process does not matter
}

// processorTime returns how much processor time the server's process has used so far. If it
// cannot read this time from /proc, it returns 0.
func (s *server) processorTime() time.Duration {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.Cmd.Process.Pid))
	// See proc_pid_stat(5). Fields 14 and 15 are the times in user and in kernel mode, in
	// hundredths of a second. The second field is the program's name in parentheses, so rest
	// begins with the third field.
	_, rest, _ := strings.Cut(string(b), ") ")
	fields := strings.Fields(rest)
	const (
		user   = 14 - 3
		system = 15 - 3
		hertz  = 100
	)
	if len(fields) <= system {
		return 0
	}
	u, _ := strconv.Atoi(fields[user])
	k, _ := strconv.Atoi(fields[system])
	return time.Duration(u+k) * time.Second / hertz
}

// sell runs a shop: a seller that uses the library, without rate and concurrency limits. The
// shop's handler gives the same answer as the ping of the service.
func (s *site) sell(ledgerFile string) {
	ledger := must(file.Open(ledgerFile))
	defer func() { check(ledger.Close()) }()
	seller := must(x402http.New(x402http.Config{
		PayTo: payTo, Facilitator: s.facilitator, Ledger: ledger, Origin: "http://127.0.0.1", PerMinute: -1, Concurrent: -1, NoNode: true, Name: catalog.Service,
		Log: slog.New(slog.NewJSONHandler(os.Stdout, nil)),
	}))
	mux := http.NewServeMux()
	seller.Handle(mux, "GET "+catalog.Ping().Path, "0.001", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"ok":true}`)
	}))
	s.serve(mux)
}
