//go:build unix

package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
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

// group is a command with all that it starts.
type group struct {
	cmd        *exec.Cmd
	out, notes testbed.Output
	ended      chan error // what Wait said
}

// startGroup starts a command in a process group of its own, which is killed at
// the end of the test at the latest.
func startGroup(t *testing.T, env []string, name string, args ...string) *group {
	t.Helper()
	g := &group{cmd: exec.Command(name, args...), ended: make(chan error, 1)}
	g.cmd.Env, g.cmd.Stdout, g.cmd.Stderr = env, &g.out, &g.notes
	g.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := g.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { g.ended <- g.cmd.Wait() }()
	t.Cleanup(func() {
		g.signal(syscall.SIGKILL)
		g.ended <- <-g.ended // for a test that waits for it itself, too
	})
	return g
}

// signal sends a signal to the whole group, as a terminal does.
func (g *group) signal(s syscall.Signal) { _ = syscall.Kill(-g.cmd.Process.Pid, s) }

// wait returns the exit status.
func (g *group) wait(t *testing.T) int {
	t.Helper()
	select {
	case err := <-g.ended:
		g.ended <- err
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		return g.cmd.ProcessState.ExitCode()
	case <-time.After(compiling):
		t.Fatalf("%s did not end\n%s%s", g.cmd, &g.out, &g.notes)
		return 0
	}
}

// runMake runs make in the checkout until it ends. Its -s leaves out the
// "Entering directory" that goes with -C.
func runMake(t *testing.T, env []string, args ...string) (out, notes string, code int) {
	t.Helper()
	g := startGroup(t, env, "make", append([]string{"-s", "-C", root}, args...)...)
	code = g.wait(t)
	return g.out.String(), g.notes.String(), code
}

// fakeService asks for payment and then answers anything, and keeps what it was sent.
type fakeService struct {
	*httptest.Server
	mu         sync.Mutex
	queries    []string
	signatures []string
}

func newFakeService(t *testing.T) *fakeService {
	t.Helper()
	return newFakeServiceFor(t, "5000")
}

// newFakeServiceFor asks for an amount, in atomic units.
func newFakeServiceFor(t *testing.T, amount string) *fakeService {
	t.Helper()
	l := &fakeService{}
	terms := newLab(t).terms
	required, err := x402.EncodeHeader(x402.PaymentRequired{X402Version: x402.Version, Accepts: []x402.Requirements{terms.Requirements(amount)}})
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

// TestMakePay: what a person types after URL= arrives as it is. Nothing of it
// is run by make or by a shell, and stdout is the answer and nothing else.
func TestMakePay(t *testing.T) {
	t.Parallel()
	verifyOnly(t, "needs make")
	l := newFakeService(t)
	mark := filepath.Join(t.TempDir(), "ran")
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
		for how, c := range map[string]struct{ env, args []string }{
			"argument":    {newcomer(), []string{"pay", "URL=" + l.URL + "/v1?" + query}},
			"environment": {newcomer("URL=" + l.URL + "/v1?" + query), []string{"pay"}},
		} {
			out, notes, code := runMake(t, c.env, c.args...)
			if out != paidAnswer || code != 0 {
				t.Errorf("%s %q: exit status %d, stdout %q, stderr:\n%s", how, query, code, out, notes)
			}
			if got, _ := l.took(); len(got) != 2 || got[0] != want || got[1] != want {
				t.Errorf("%s: queries %q arrived, want %q twice", how, got, want)
			}
		}
		if _, err := os.Stat(mark); err == nil {
			t.Fatalf("%q was run", query)
		}
	}
}

// TestMakePayAgain: the same for AGAIN=, and for a signature that is kept.
func TestMakePayAgain(t *testing.T) {
	t.Parallel()
	verifyOnly(t, "needs make")
	l := newFakeService(t)
	mark := filepath.Join(t.TempDir(), "ran")
	hostile := strings.ReplaceAll("`touch MARK`$(touch MARK)$b \"it's\" -x; $(shell touch MARK)", "MARK", mark)
	file := filepath.Join(t.TempDir(), strings.ReplaceAll(hostile, "/", "_"))
	raw, err := json.Marshal(kept{URL: l.URL + "/v1?a=1", Signature: hostile})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	out, notes, code := runMake(t, newcomer(), "pay", "AGAIN="+file)
	if out != paidAnswer || code != 0 {
		t.Errorf("exit status %d, stdout %q, stderr:\n%s", code, out, notes)
	}
	if _, got := l.took(); len(got) != 1 || got[0] != hostile {
		t.Errorf("signatures %q arrived, want %q", got, hostile)
	}
	if _, err := os.Stat(mark); err == nil {
		t.Error("what was typed was run")
	}
}

// TestMakeSmoke: who deployed sees what /ready says, and pays ping once if it is
// well, and nothing if it is not.
func TestMakeSmoke(t *testing.T) {
	t.Parallel()
	verifyOnly(t, "needs make")
	l := newFakeServiceFor(t, catalog.Ping().Amount)
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

// TestMakePayUsage: what cannot be right is said, with what could be.
func TestMakePayUsage(t *testing.T) {
	t.Parallel()
	verifyOnly(t, "needs make")
	out, notes, code := runMake(t, newcomer(), "pay", "URL=127.0.0.1:8402/v1/tools/ping")
	if code == 0 || out != "" || !strings.Contains(notes, "\n  make pay URL='http://127.0.0.1:8402/v1/tools/ping'\n") {
		t.Errorf("exit status %d, stdout %q, stderr:\n%s", code, out, notes)
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
		if !strings.Contains(help, "\n  "+m[1]+" ") {
			t.Errorf("make help lacks %s", m[1])
		}
	}
	typed := regexp.MustCompile(`(?m)^TYPED := (.+)$`).FindStringSubmatch(string(makefile))
	if len(targets) < 15 || typed == nil {
		t.Fatalf("%d targets, typed: %q", len(targets), typed)
	}
	for _, name := range strings.Fields(typed[1]) {
		if !strings.Contains(help, "\n"+strings.Repeat(" ", 19)+name+"=") {
			t.Errorf("make help lacks %s=", name)
		}
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
	if bytes.Contains([]byte(notes), []byte("not found")) {
		t.Errorf("stderr:\n%s", notes)
	}
}
