//go:build unix

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/embedded"
)

// newcomer is the environment of somebody who has Go and nothing else: none of
// this project's variables, and no trace of the make that may run this test.
func newcomer(more ...string) []string {
	env := slices.DeleteFunc(os.Environ(), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return !strings.HasPrefix(name, "GO") && !slices.Contains([]string{"PATH", "HOME", "USER", "TMPDIR", "XDG_CACHE_HOME", "LANG"}, name)
	})
	return append(env, more...)
}

// runMake runs make in the checkout until it ends, in a process group of its own, so
// that a signal reaches all that it starts, as one from a terminal does. Its -s leaves
// out the "Entering directory" that goes with -C.
func runMake(t *testing.T, env []string, args ...string) (out, notes string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testbed.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "make", append([]string{"-s", "-C", root}, args...)...)
	var stdout, stderr bytes.Buffer
	cmd.Env, cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = env, &stdout, &stderr, &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return signalGroup(cmd, syscall.SIGKILL) }
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()
}

func signalGroup(cmd *exec.Cmd, s syscall.Signal) error { return syscall.Kill(-cmd.Process.Pid, s) }

// fakeService is ready, if status says so, asks for payment and then answers anything,
// and keeps what it was sent.
type fakeService struct {
	*httptest.Server
	mu                         sync.Mutex
	status                     int
	paths, queries, signatures []string
}

func newFakeService(t *testing.T) *fakeService {
	f := &fakeService{}
	required := must(x402.EncodeHeader(x402.PaymentRequired{
		X402Version: x402.Version, Accepts: []x402.Requirements{testbed.LocalTerms(t).Requirements(catalog.Ping().Amount)},
	}))
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		defer f.mu.Unlock()
		signature := r.Header.Get(x402.HeaderSignature)
		switch {
		case r.URL.Path == catalog.PathReady:
			w.WriteHeader(f.status)
			_, _ = io.WriteString(w, `{"checks":{"ledger":{"status":"ok"}}}`)
			return
		case signature != "":
			f.signatures = append(f.signatures, signature)
			_, _ = io.WriteString(w, `{"ok":true}`)
		default:
			w.Header().Set(x402.HeaderRequired, required)
			w.WriteHeader(http.StatusPaymentRequired)
		}
		f.paths, f.queries = append(f.paths, r.URL.Path), append(f.queries, r.URL.RawQuery)
	}))
	t.Cleanup(f.Close)
	return f
}

// take forgets what arrived, and sets the status of /ready.
func (f *fakeService) take(status int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.status, f.paths, f.queries, f.signatures = status, nil, nil, nil
}

const paidAnswer = "{\n  \"ok\": true\n}\n"

// TestMakePay: what a person types after URL= and AGAIN=, and what is in a kept
// payment, arrives as it is. Nothing of it is run by make or by a shell, and stdout is
// the answer and nothing else. Who deployed sees what /ready says, and make smoke pays
// ping once if it is well, and nothing if it is not.
func TestMakePay(t *testing.T) {
	t.Parallel()
	verifyOnly(t, "needs make")
	f := newFakeService(t)
	mark := filepath.Join(t.TempDir(), "ran")
	pays := func(env []string, args ...string) {
		t.Helper()
		f.take(http.StatusOK)
		out, notes, code := runMake(t, env, append([]string{"pay"}, args...)...)
		if out != paidAnswer || code != 0 {
			t.Errorf("%q: exit status %d, stdout %q, stderr:\n%s", args, code, out, notes)
		}
		if _, err := os.Stat(mark); err == nil {
			t.Fatalf("what was typed was run: %q", args)
		}
	}
	for _, query := range []string{
		"domain=example.com&type=MX",
		"a=`touch MARK`$(touch MARK)&b=$(shell touch MARK)&c=${shell touch MARK}",
		"a=1&touch MARK;touch MARK|touch MARK>MARK<MARK",
		"a=$b&c=$HOME&d=$$x&e=${PATH}&f=$",
		`a="quoted"&b=it's&c='"` + "`touch MARK`" + `"'`,
		`a=b c  d&a=back\slash\\&b=*?[x]{y,z}~!!&c=%20%zz&d=(e)#b`,
	} {
		query = strings.ReplaceAll(query, "MARK", mark)
		want, _, _ := strings.Cut(query, "#") // a fragment is not sent
		want = strings.ReplaceAll(want, " ", "%20")
		typed := "URL=" + f.URL + "/v1?" + query
		for _, how := range []func(){func() { pays(newcomer(), typed) }, func() { pays(newcomer(typed)) }} {
			if how(); !slices.Equal(f.queries, []string{want, want}) {
				t.Errorf("queries %q arrived, want %q twice", f.queries, want)
			}
		}
	}
	hostile := strings.ReplaceAll("`touch MARK`$(touch MARK)$b \"it's\" -x; $(shell touch MARK)", "MARK", mark)
	file := filepath.Join(t.TempDir(), strings.ReplaceAll(hostile, "/", "_"))
	raw := must(json.Marshal(map[string]string{"url": f.URL + "/v1?a=1", "payment_signature": hostile}))
	if err := os.WriteFile(file, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	if pays(newcomer(), "AGAIN="+file); !slices.Equal(f.signatures, []string{hostile}) {
		t.Errorf("signatures %q arrived, want %q", f.signatures, hostile)
	}
	for status, wantPaths := range map[int][]string{http.StatusOK: {catalog.Ping().Path, catalog.Ping().Path}, http.StatusServiceUnavailable: nil} {
		f.take(status)
		out, notes, code := runMake(t, newcomer(), "smoke", "ORIGIN="+f.URL)
		well := status == http.StatusOK
		if (code == 0) != well || (out == paidAnswer) != well || !slices.Equal(f.paths, wantPaths) || !strings.Contains(notes, "ledger           ok\n") {
			t.Errorf("/ready %d: exit status %d, requests for %v, stdout %q, stderr:\n%s", status, code, f.paths, out, notes)
		}
	}
}

// TestMakeTargets: every target is in one of three groups of make help, and every
// variable that a person types into a recipe is there. No target puts what a person
// types into a command.
func TestMakeTargets(t *testing.T) {
	t.Parallel()
	verifyOnly(t, "needs make")
	help, _, code := runMake(t, newcomer(), "help")
	is(t, "exit status", code, 0)
	if groups := regexp.MustCompile(`(?m)^\S+$`).FindAllString(help, -1); !slices.Equal(groups, []string{"Use", "Develop", "Operate"}) {
		t.Errorf("groups %q", groups)
	}
	makefile := must(os.ReadFile(filepath.Join(root, "Makefile")))
	targets := regexp.MustCompile(`(?m)^\.PHONY: (.+)$`).FindAllStringSubmatch(string(makefile), -1)
	declared := regexp.MustCompile(`(?m)^TYPED := (.+)$`).FindStringSubmatch(string(makefile))
	if len(targets) < 15 || declared == nil {
		t.Fatalf("%d targets, typed: %q", len(targets), declared)
	}
	for _, name := range strings.Fields(declared[1]) {
		mentions(t, "make help", help, "\n"+strings.Repeat(" ", 19)+name+"=")
	}
	mark := filepath.Join(t.TempDir(), "ran")
	hostile := "=HOSTILE'`touch " + mark + "`$(touch " + mark + ");touch " + mark + "\""
	var values []string
	for _, name := range strings.Fields("RELEASE TO AT URL KEY AGAIN KEY_FILE MAX YES V FN EVENT ORIGIN PAY_TO RTT RUNS N SEED WALLET TRANSACTION") {
		values = append(values, name+hostile)
	}
	args := append([]string{"-n"}, values...) // print what would be run
	for _, m := range targets {
		mentions(t, "make help", help, "\n  "+m[1]+" ")
		args = append(args, m[1])
	}
	out, notes, code := runMake(t, newcomer(), args...)
	if code != 0 || !strings.Contains(out, `go run ./infra/local/pay`) {
		t.Errorf("make -n: exit status %d\n%s%s", code, out, notes)
	}
	for line := range strings.Lines(out) {
		if strings.Contains(line, "HOSTILE") {
			t.Errorf("typed text is part of a command: %s", line)
		}
	}
	// And for real, where that costs little. -o: nothing is built before.
	for _, target := range []string{"local-invoke", "sign-origin", "payer", "refund"} {
		out, notes, code := runMake(t, newcomer(), append([]string{"-o", "build", target}, values...)...)
		if code == 0 || out != "" || !strings.Contains(notes, "HOSTILE") && target != "sign-origin" {
			t.Errorf("%s: exit status %d, stdout %q, stderr:\n%s", target, code, out, notes)
		}
	}
	if _, err := os.Stat(mark); err == nil {
		t.Error("typed text was run")
	}
}

// TestMakeBuildSizes: make build needs no tool for its sizes but those of
// every Unix.
func TestMakeBuildSizes(t *testing.T) {
	t.Parallel()
	verifyOnly(t, "needs make")
	bin := t.TempDir() // a PATH without bc
	for _, name := range []string{"bash", "go", "wc", "awk", "make", "gcc", "as", "ld"} {
		if path, err := exec.LookPath(name); err == nil { // go build without cgo needs no compiler of C
			if err := os.Symlink(path, filepath.Join(bin, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	out, notes, code := runMake(t, newcomer("PATH="+bin), "build", "FUNCTIONS=discovery") // the last PATH counts
	m := regexp.MustCompile(`(?m)^  discovery +\S+ +(\d+\.\d\d) MB$`).FindStringSubmatch(out)
	if code != 0 || m == nil || m[1] == "0.00" || strings.Contains(notes, "not found") {
		t.Errorf("exit status %d, stdout %q, stderr:\n%s", code, out, notes)
	}
}

// TestReadme goes the README's way: make run, make pay, make pay AGAIN=1, Ctrl-C,
// make run again, and the same signature once more.
func TestReadme(t *testing.T) {
	t.Parallel()
	verifyOnly(t, "needs make")
	resolver := newResolver(t)
	env := newcomer("LOCAL_ADDR=127.0.0.1:0", "LEDGER_FILE="+filepath.Join(t.TempDir(), "ledger.db"), "DNS_RESOLVERS="+resolver.addr)

	first := makeRun(t, env)
	const question = "/v1/tools/dns?domain=example.com&type=MX"
	out, notes, code := runMake(t, newcomer(), "pay", "URL="+first.URL+question)
	file := regexp.MustCompile(`(?m)^kept: +(\S+) \(make pay AGAIN=1 sends it again`).FindStringSubmatch(notes)
	if code != 0 || file == nil {
		t.Fatalf("make pay: exit status %d\n%s%s", code, out, notes)
	}
	t.Cleanup(func() { os.Remove(filepath.Join(root, file[1])) })
	is(t, "lines on stderr", strings.Count(notes, "\n"), 5)
	mentions(t, "stderr", notes, "status:  200 OK, transaction 0x", "\nreceipt: holds: signed by did:web:127.0.0.1%3A")
	mentions(t, "stdout", out, `"exchange": "mx1.example.com"`)

	again := func(typed ...string) {
		t.Helper()
		stored, notes, code := runMake(t, newcomer(), append(typed, "pay", "AGAIN="+file[1])...)
		is(t, "exit status", code, 0)
		is(t, "the stored answer", stored, out)
		mentions(t, "stderr", notes, "Idempotent-Replayed: true")
	}
	again()
	interrupt(t, first)
	second := makeRun(t, env)
	again("URL=" + second.URL + question)
	is(t, "lookups", resolver.lookups("example.com"), 1)
	interrupt(t, second)
}

// makeRun starts the service as a newcomer does.
func makeRun(t *testing.T, env []string) *testbed.Process {
	cmd := exec.Command("make", "-C", root, "run")
	cmd.Env = env
	p, err := testbed.Launch(cmd, func(cmd *exec.Cmd) error {
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		return cmd.Start()
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = signalGroup(cmd, syscall.SIGKILL) }) // it may be gone
	if err := p.Ready(); err != nil {
		t.Fatal(err)
	}
	return p
}

func interrupt(t *testing.T, p *testbed.Process) {
	if err := signalGroup(p.Cmd, syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	<-p.Gone()
	if all := p.Log.String(); strings.Contains(all, "panic") || strings.Contains(all, "goroutine ") {
		t.Errorf("it did not end well:\n%s", all)
	}
}

// operator has the runbook, and a service whose ledger is a file. The money of the
// lab moves on a chain whose clock is ahead, so that nothing is too young for the books.
type operator struct {
	*testing.T
	file, chain string // of the ledger, and the node's URL
}

// reads types a command that the runbook has, with values of his own, and reads what
// it says.
func (o *operator) reads(says, target string, typed ...string) {
	o.Helper()
	form := "make " + target
	for _, t := range typed {
		name, _, _ := strings.Cut(t, "=")
		form += " " + name + `=\S+`
	}
	if !regexp.MustCompile(form).Match(must(os.ReadFile(filepath.Join(root, "infra", "RUNBOOK.md")))) {
		o.Errorf("the runbook has no %q", form)
	}
	env := newcomer("LEDGER_FILE="+o.file, "RPC_URL="+o.chain)
	out, notes, code := runMake(o.T, env, append([]string{target}, typed...)...)
	if code != 0 || !strings.Contains(out+notes, says) {
		o.Errorf("%s %q: exit status %d\n%s%s\nwant %q", target, typed, code, out, notes, says)
	}
}

// TestToolsBesideService: the operator's commands work while the service has its
// ledger open, after it was killed and started again, and after it has ended. What they
// say and do is in the tests of infra/local/operate.
func TestToolsBesideService(t *testing.T) {
	t.Parallel()
	verifyOnly(t, "needs make")
	l := newLab(t)
	chain := httptest.NewServer(testbed.PlayNode{
		// Its safe block stays some seconds ahead, and well behind its newest.
		Moved: l.facilitator.Transfers, ChainID: 8453, Safe: 30 * time.Second,
		Now: func() time.Time { return time.Now().Add(35 * time.Second) },
	})
	defer chain.Close()
	o := &operator{T: t, file: filepath.Join(t.TempDir(), "ledger.db"), chain: chain.URL}
	s := l.setup()
	s.more["RPC_URL"] = chain.URL
	day := time.Now().UTC().Format(time.DateOnly)
	c := testbed.NewClient(t, newClient())
	payer := "WALLET=" + c.Wallet.Address().String()
	var p *testbed.Process
	buy := func() {
		t.Helper()
		p = startLocal(t, l, s, o.file)
		if reply, _, err := c.Buy(t.Context(), p.URL+catalog.Ping().Path); err != nil || reply.Status != 200 {
			t.Fatalf("ping: %+v, %v", reply, err)
		}
	}
	buy()
	o.reads("nothing is owed, and nothing in doubt", "owed")
	o.reads("in doubt  0 of 0 listed", "reconcile")
	o.reads("has paid 1 time ($0.001), got 1 answer, and is owed nothing.", "payer", payer)
	p.Kill() // its socket stays
	if _, err := os.Lstat(embedded.SocketPath(o.file)); err != nil {
		t.Error(err)
	}
	o.reads("has paid 1 time ($0.001), got 1 answer, and is owed nothing.", "payer", payer)
	buy()
	o.reads("has paid 2 times ($0.002), got 2 answers", "payer", payer)
	if time.Now().UTC().Format(time.DateOnly) == day { // all payments are of one day
		o.reads("$0.002 received in 2 payments; no differences", "books", "DAY="+day)
	}
	p.End(t)
	if _, err := os.Lstat(filepath.Dir(embedded.SocketPath(o.file))); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket's folder is left behind: %v", err)
	}
	o.reads("has paid 2 times ($0.002), got 2 answers", "payer", payer)
}
