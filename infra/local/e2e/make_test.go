//go:build unix

package e2e

import (
	"context"
	"encoding/json"
	"io"
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
)

// compiling is how long make may take to build something first.
const compiling = 5 * time.Minute

// newcomer is the environment of somebody who has Go and nothing else: none of
// this project's variables, and no trace of the make that may run this test.
func newcomer(more ...string) []string {
	var env []string
	for _, entry := range os.Environ() {
		name, _, _ := strings.Cut(entry, "=")
		switch name {
		case "PATH", "HOME", "USER", "TMPDIR", "XDG_CACHE_HOME", "LANG":
			env = append(env, entry)
		default:
			if strings.HasPrefix(name, "GO") {
				env = append(env, entry)
			}
		}
	}
	return append(env, more...)
}

// inGroup has a command start a process group of its own, so that a signal reaches
// all that it starts, as one from a terminal does.
func inGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// signalGroup sends a signal to a command and all that it has started.
func signalGroup(cmd *exec.Cmd, s syscall.Signal) error { return syscall.Kill(-cmd.Process.Pid, s) }

// runMake runs make in the checkout until it ends. Its -s leaves out the
// "Entering directory" that goes with -C.
func runMake(t *testing.T, env []string, args ...string) (out, notes string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), compiling)
	defer cancel()
	cmd := exec.CommandContext(ctx, "make", append([]string{"-s", "-C", root}, args...)...)
	cmd.Env = env
	inGroup(cmd)
	cmd.Cancel = func() error { return signalGroup(cmd, syscall.SIGKILL) }
	return runToEnd(t, cmd)
}

// fakeService asks for payment and then answers anything, and keeps what it was sent.
type fakeService struct {
	*httptest.Server
	mu         sync.Mutex
	queries    []string
	signatures []string
}

// newFakeService asks for an amount, in atomic units.
func newFakeService(t *testing.T, amount string) *fakeService {
	t.Helper()
	l := &fakeService{}
	required, err := x402.EncodeHeader(x402.PaymentRequired{
		X402Version: x402.Version, Accepts: []x402.Requirements{testbed.Terms(t).Requirements(amount)},
	})
	if err != nil {
		t.Fatal(err)
	}
	l.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.queries = append(l.queries, r.URL.RawQuery)
		if signature := r.Header.Get(x402.HeaderSignature); signature != "" {
			l.signatures = append(l.signatures, signature)
			_, _ = w.Write([]byte(`{"ok":true}`)) // the client is the test's own
			return
		}
		w.Header().Set(x402.HeaderRequired, required)
		w.WriteHeader(http.StatusPaymentRequired)
	}))
	t.Cleanup(l.Close)
	return l
}

// took returns what arrived since it was asked last.
func (l *fakeService) took() (queries, signatures []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	queries, signatures = l.queries, l.signatures
	l.queries, l.signatures = nil, nil
	return queries, signatures
}

const paidAnswer = "{\n  \"ok\": true\n}\n"

// TestMakePay: what a person types after URL= and AGAIN=, and what is in a kept
// payment, arrives as it is. Nothing of it is run by make or by a shell, and stdout is
// the answer and nothing else.
func TestMakePay(t *testing.T) {
	t.Parallel()
	verifyOnly(t, "needs make")
	l := newFakeService(t, "5000")
	mark := filepath.Join(t.TempDir(), "ran")
	pays := func(env []string, args ...string) (queries, signatures []string) {
		t.Helper()
		out, notes, code := runMake(t, env, append([]string{"pay"}, args...)...)
		if out != paidAnswer || code != 0 {
			t.Errorf("%q: exit status %d, stdout %q, stderr:\n%s", args, code, out, notes)
		}
		if _, err := os.Stat(mark); err == nil {
			t.Fatalf("what was typed was run: %q", args)
		}
		return l.took()
	}
	for _, query := range []string{
		"domain=example.com&type=MX",
		"a=`touch MARK`",
		"a=$(touch MARK)",
		"a=$(shell touch MARK)&b=${shell touch MARK}",
		"a=1&touch MARK;touch MARK|touch MARK>MARK<MARK",
		"a=$b&c=$HOME&d=$$x&e=${PATH}&f=$",
		`a="quoted"&b=it's&c='"` + "`touch MARK`" + `"'`,
		"a=b c  d",
		`a=back\slash\\&b=*?[x]{y,z}~!!&c=%20%zz&d=(e)`,
		"a=1#b",
	} {
		query = strings.ReplaceAll(query, "MARK", mark)
		want, _, _ := strings.Cut(query, "#") // a fragment is not sent
		want = strings.ReplaceAll(want, " ", "%20")
		typed := "URL=" + l.URL + "/v1?" + query
		argument, _ := pays(newcomer(), typed)
		environment, _ := pays(newcomer(typed))
		for _, got := range [][]string{argument, environment} {
			if !slices.Equal(got, []string{want, want}) {
				t.Errorf("queries %q arrived, want %q twice", got, want)
			}
		}
	}
	hostile := strings.ReplaceAll("`touch MARK`$(touch MARK)$b \"it's\" -x; $(shell touch MARK)", "MARK", mark)
	file := filepath.Join(t.TempDir(), strings.ReplaceAll(hostile, "/", "_"))
	raw, err := json.Marshal(map[string]string{"url": l.URL + "/v1?a=1", "payment_signature": hostile})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, got := pays(newcomer(), "AGAIN="+file); !slices.Equal(got, []string{hostile}) {
		t.Errorf("signatures %q arrived, want %q", got, hostile)
	}
}

// TestMakeSmoke: who deployed sees what /ready says, and pays ping once if it is
// well, and nothing if it is not.
func TestMakeSmoke(t *testing.T) {
	t.Parallel()
	verifyOnly(t, "needs make")
	l := newFakeService(t, catalog.Ping().Amount)
	status := make(chan int, 1)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/ready" {
			w.WriteHeader(<-status)
			_, _ = io.WriteString(w, `{"checks":{"ledger":{"status":"ok"}}}`)
			return
		}
		if r.URL.Path != "/v1/tools/ping" {
			t.Errorf("%s is paid for", r.URL.Path)
		}
		l.Config.Handler.ServeHTTP(w, r)
	}))
	defer front.Close()
	for _, c := range []struct{ status, paid int }{{http.StatusOK, 1}, {http.StatusServiceUnavailable, 0}} {
		status <- c.status
		out, notes, code := runMake(t, newcomer(), "smoke", "ORIGIN="+front.URL)
		_, signatures := l.took()
		if (code == 0) != (c.paid == 1) || len(signatures) != c.paid || !strings.Contains(notes, "ledger           ok\n") || (out == paidAnswer) != (c.paid == 1) {
			t.Errorf("/ready %d: exit status %d, %d payments, stdout %q, stderr:\n%s", c.status, code, len(signatures), out, notes)
		}
	}
}

// TestMakeRunsNothingTyped: no target puts what a person types into a command.
func TestMakeRunsNothingTyped(t *testing.T) {
	t.Parallel()
	verifyOnly(t, "needs make")
	mark := filepath.Join(t.TempDir(), "ran")
	typed := []string{"RELEASE", "TO", "AT", "URL", "KEY", "AGAIN", "KEY_FILE", "MAX", "YES", "V", "FN", "EVENT", "ORIGIN", "PAY_TO", "RTT", "RUNS", "N", "SEED", "WALLET", "TRANSACTION"}
	hostile := "HOSTILE'`touch " + mark + "`$(touch " + mark + ");touch " + mark + "\""
	values := make([]string, len(typed))
	for i, name := range typed {
		values[i] = name + "=" + hostile
	}
	help, _, code := runMake(t, newcomer(), "help")
	targets := regexp.MustCompile(`(?m)^  ([a-z-]+) `).FindAllStringSubmatch(help, -1)
	if code != 0 || len(targets) < 15 {
		t.Fatalf("make help: exit status %d, %d targets:\n%s", code, len(targets), help)
	}
	args := []string{"-n"} // print what would be run
	for _, target := range targets {
		args = append(args, target[1])
	}
	out, notes, code := runMake(t, newcomer(), append(args, values...)...)
	if code != 0 || !strings.Contains(out, `go run ./infra/local/pay`) {
		t.Errorf("make -n: exit status %d\n%s%s", code, out, notes)
	}
	for _, line := range strings.Split(out, "\n") {
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

// TestMakeHelp: every target is in one of three groups, and every variable that a
// person types into a recipe is there.
func TestMakeHelp(t *testing.T) {
	t.Parallel()
	verifyOnly(t, "needs make")
	help, _, code := runMake(t, newcomer(), "help")
	is(t, "exit status", code, 0)
	if groups := regexp.MustCompile(`(?m)^\S+$`).FindAllString(help, -1); !slices.Equal(groups, []string{"Use", "Develop", "Operate"}) {
		t.Errorf("groups %q", groups)
	}
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	targets := regexp.MustCompile(`(?m)^\.PHONY: (.+)$`).FindAllStringSubmatch(string(makefile), -1)
	for _, m := range targets {
		mentions(t, "make help", help, "\n  "+m[1]+" ")
	}
	typed := regexp.MustCompile(`(?m)^TYPED := (.+)$`).FindStringSubmatch(string(makefile))
	if len(targets) < 15 || typed == nil {
		t.Fatalf("%d targets, typed: %q", len(targets), typed)
	}
	for _, name := range strings.Fields(typed[1]) {
		mentions(t, "make help", help, "\n"+strings.Repeat(" ", 19)+name+"=")
	}
}

// TestMakeBuildSizes: make build needs no tool for its sizes but those of
// every Unix.
func TestMakeBuildSizes(t *testing.T) {
	t.Parallel()
	verifyOnly(t, "needs make")
	bin := t.TempDir() // a PATH without bc
	for _, name := range []string{"bash", "go", "wc", "awk", "make", "gcc", "as", "ld"} {
		path, err := exec.LookPath(name)
		if err != nil {
			continue // go build without cgo needs no compiler of C
		}
		if err := os.Symlink(path, filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	env := newcomer("PATH=" + bin) // the last one counts
	out, notes, code := runMake(t, env, "build", "FUNCTIONS=discovery")
	if m := regexp.MustCompile(`(?m)^  discovery +\S+ +(\d+\.\d\d) MB$`).FindStringSubmatch(out); code != 0 || m == nil || m[1] == "0.00" {
		t.Errorf("exit status %d, stdout %q, stderr:\n%s", code, out, notes)
	}
	if strings.Contains(notes, "not found") {
		t.Errorf("stderr:\n%s", notes)
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
	if code != 0 {
		t.Fatalf("make pay: exit status %d\n%s%s", code, out, notes)
	}
	is(t, "lines on stderr", strings.Count(notes, "\n"), 5)
	t.Logf("make pay URL='%s%s' printed\n%s", first.URL, question, out)
	var answer struct {
		Records []struct{ Exchange string } `json:"records"`
	}
	if err := json.Unmarshal([]byte(out), &answer); err != nil || len(answer.Records) != 2 || answer.Records[0].Exchange != "mx1.example.com" {
		t.Errorf("%+v, %v", answer, err)
	}

	file := regexp.MustCompile(`(?m)^kept: +(\S+) \(make pay AGAIN=1 sends it again`).FindStringSubmatch(notes)
	if file == nil {
		t.Fatalf("no way to send it again:\n%s", notes)
	}
	t.Cleanup(func() { os.Remove(filepath.Join(root, file[1])) })
	again, notes, code := runMake(t, newcomer(), "pay", "AGAIN="+file[1])
	replayed(t, "again", code, again, notes, out)

	interrupt(t, first)
	second := makeRun(t, env)
	again, notes, code = runMake(t, newcomer(), "pay", "URL="+second.URL+question, "AGAIN="+file[1])
	replayed(t, "after a restart", code, again, notes, out)
	if n := resolver.lookups("example.com"); n != 1 {
		t.Errorf("%d lookups, want 1", n)
	}
	interrupt(t, second)
}

// makeRun starts the service as a newcomer does.
func makeRun(t *testing.T, env []string) *testbed.Process {
	t.Helper()
	cmd := exec.Command("make", "-C", root, "run")
	cmd.Env = env
	p, err := testbed.Launch(cmd, func(cmd *exec.Cmd) error {
		inGroup(cmd)
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

// interrupt is Ctrl-C in the terminal of make run.
func interrupt(t *testing.T, p *testbed.Process) {
	t.Helper()
	if err := signalGroup(p.Cmd, syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	<-p.Gone()
	if all := p.Log.String(); strings.Contains(all, "panic") || strings.Contains(all, "goroutine ") {
		t.Errorf("it did not end well:\n%s", all)
	}
}
