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
	"github.com/hostfacts/hostfacts/infra/testbed/programs"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

// root is the module's folder, relative to this package.
const root = "../../.."

// newcomerEnv returns the environment of somebody who has installed Go and nothing else.
func newcomerEnv(variables ...string) []string {
	env := slices.DeleteFunc(os.Environ(), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return !strings.HasPrefix(name, "GO") && !slices.Contains([]string{"PATH", "HOME", "USER", "TMPDIR", "XDG_CACHE_HOME", "LANG"}, name)
	})
	return append(env, variables...)
}

// runMake runs make in the checkout. It uses a new process group, so a signal also reaches the
// processes that make starts.
func runMake(t *testing.T, env []string, args ...string) (out, notes string, code int) {
	cmd := testbed.Command(t, "make", append([]string{"-s", "-C", root}, args...)...)
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

// TestMakePay checks that the text after URL= and AGAIN=, and the contents of the payment file
// that AGAIN= names, reach the program unchanged. Neither make nor a shell may run any part of
// that text. Only the answer may go to stdout. The test also checks that "make smoke" pays for
// ping once.
func TestMakePay(t *testing.T) {
	t.Parallel()
	skipInShort(t, "needs make")
	required := testbed.Must(x402.EncodeHeader(x402.PaymentRequired{
		X402Version: x402.Version, Accepts: []x402.Requirements{testbed.LocalTerms(t).Requirements(catalog.Ping().Amount)},
	}))
	var mu sync.Mutex
	var asked []string
	signature := "" // the signature of the last request
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		signature = r.Header.Get(x402.HeaderSignature)
		switch {
		case r.URL.Path == catalog.PathReady:
			_, _ = io.WriteString(w, `{"checks":{"ledger":{"status":"ok"}}}`)
			return
		case signature != "":
			_, _ = io.WriteString(w, `{"ok":true}`)
		default:
			w.Header().Set(x402.HeaderRequired, required)
			w.WriteHeader(http.StatusPaymentRequired)
		}
		asked = append(asked, r.RequestURI)
	}))
	defer service.Close()
	mark := filepath.Join(t.TempDir(), "ran")
	pays := func(env []string, args []string, want ...string) {
		out, notes, code := runMake(t, env, args...)
		mu.Lock()
		defer mu.Unlock()
		if out != "{\n  \"ok\": true\n}\n" || code != 0 || !slices.Equal(asked, want) {
			t.Errorf("%q: exit status %d, requests for %q, want %q, stdout %q, stderr:\n%s", args, code, asked, want, out, notes)
		}
		asked = nil
		if _, err := os.Stat(mark); err == nil {
			t.Fatalf("what was typed was run: %q", args)
		}
	}
	typed := "/v1?" + strings.ReplaceAll("a=`touch MARK`$(touch MARK)&b=$(shell touch MARK)&c=${shell touch MARK}"+
		`&touch MARK;touch MARK|touch MARK>MARK<MARK&d=$b$HOME$$x${PATH}$&e="quoted"&f=it's'"`+"`touch MARK`"+
		`"'&g=b c  d&h=back\slash\\&i=*?[x]{y,z}~!!&j=%20%zz&k=(e)#b`, "MARK", mark)
	want, _, _ := strings.Cut(typed, "#") // a fragment is not sent
	want, typed = strings.ReplaceAll(want, " ", "%20"), "URL="+service.URL+typed
	pays(newcomerEnv(), []string{"pay", typed}, want, want)
	pays(newcomerEnv(typed), []string{"pay"}, want, want)
	hostile := strings.ReplaceAll("`touch MARK`$(touch MARK)$b \"it's\" -x; $(shell touch MARK)", "MARK", mark)
	file := filepath.Join(t.TempDir(), strings.ReplaceAll(hostile, "/", "_"))
	raw := testbed.Must(json.Marshal(map[string]string{"url": service.URL + "/v1?a=1", "payment_signature": hostile}))
	testbed.Check(os.WriteFile(file, raw, 0o600))
	pays(newcomerEnv(), []string{"pay", "AGAIN=" + file}, "/v1?a=1")
	mu.Lock()
	arrived := signature
	mu.Unlock()
	checkEqual(t, "the signature that arrives", arrived, hostile)
	pays(newcomerEnv(), []string{"smoke", "ORIGIN=" + service.URL}, catalog.Ping().Path, catalog.Ping().Path)
}

// TestMakeTargets checks that "make help OF=all" lists every target, in three groups, and every
// variable that a person can type. The text that a person types must not become part of a
// command in any recipe. The test also checks what "make build" prints for one function.
func TestMakeTargets(t *testing.T) {
	t.Parallel()
	skipInShort(t, "needs make")
	help, _, code := runMake(t, newcomerEnv(), "help", "OF=all")
	checkEqual(t, "exit status", code, 0)
	if groups := regexp.MustCompile(`(?m)^\S+$`).FindAllString(help, -1); !slices.Equal(groups, []string{"Use", "Develop", "Operate"}) {
		t.Errorf("groups %q", groups)
	}
	makefile := testbed.Must(os.ReadFile(filepath.Join(root, "Makefile")))
	targets := regexp.MustCompile(`(?m)^\.PHONY: (.+)$`).FindAllStringSubmatch(string(makefile), -1)
	declared := regexp.MustCompile(`(?m)^TYPED [:+]= (.+)$`).FindAllStringSubmatch(string(makefile), -1)
	if len(targets) < 15 || len(declared) == 0 {
		t.Fatalf("%d targets, typed: %q", len(targets), declared)
	}
	var typed []string
	for _, line := range declared {
		typed = append(typed, strings.Fields(line[1])...)
	}
	for _, name := range typed {
		checkContains(t, "make help", help, "\n"+strings.Repeat(" ", 19)+name+"=")
	}
	mark := filepath.Join(t.TempDir(), "ran")
	hostile := "=HOSTILE'`touch " + mark + "`$(touch " + mark + ");touch " + mark + "\""
	var values []string
	for _, name := range strings.Fields("OF RELEASE TO AT URL KEY AGAIN KEY_FILE MAX YES V FN EVENT ORIGIN PAY_TO RTT RUNS N SEED WALLET TRANSACTION NAME SET UNSET FILE STACK " +
		"SELLER PRICE PROMISES ROW FORMAT OTHER OTHER_PRICE BODY TOOL_URL TOOL ARGS PYTHON") {
		values = append(values, name+hostile)
	}
	args := append([]string{"-n"}, values...) // print what would be run
	for _, m := range targets {
		checkContains(t, "make help", help, "\n  "+m[1]+" ")
		args = append(args, m[1])
	}
	out, notes, code := runMake(t, newcomerEnv(), args...)
	if code != 0 || !strings.Contains(out, `go run ./infra/local/pay`) {
		t.Errorf("make -n: exit status %d\n%s%s", code, out, notes)
	}
	for line := range strings.Lines(out) {
		if strings.Contains(line, "HOSTILE") {
			t.Errorf("typed text is part of a command: %s", line)
		}
	}
	if out, notes, code := runMake(t, newcomerEnv(), "build", "FUNCTIONS=discovery"); code != 0 || !regexp.MustCompile(
		`^  discovery +\S+ +[1-9]\d*\.\d\d MB\n$`).MatchString(out) {
		t.Errorf("make build: exit status %d, stdout %q, stderr:\n%s", code, out, notes)
	}
	if _, err := os.Stat(mark); err == nil {
		t.Error("typed text was run")
	}
}

// TestReadme follows the README: it pays for an answer with "make run" and "make pay". "make
// pay AGAIN=1" must return the stored answer, even after Ctrl-C and another "make run". The
// operator's commands must work while the service has its ledger open, after the service has
// ended, and after it was killed. The tests of infra/local/operate check what these commands
// print and do.
func TestReadme(t *testing.T) {
	t.Parallel()
	skipInShort(t, "needs make")
	resolver := newResolver(t)
	ledgerFile := filepath.Join(t.TempDir(), "ledger.db")
	env := newcomerEnv("LOCAL_ADDR=127.0.0.1:0", "LEDGER_FILE="+ledgerFile, "DNS_RESOLVERS="+resolver.addr)

	first := makeRun(t, env)
	const question = "/v1/tools/dns?domain=example.com&type=MX"
	out, notes, code := runMake(t, newcomerEnv(), "pay", "URL="+first.URL+question)
	file := regexp.MustCompile(`(?m)^kept: +(\S+) \(make pay AGAIN=1 sends it again`).FindStringSubmatch(notes)
	if code != 0 || file == nil {
		t.Fatalf("make pay: exit status %d\n%s%s", code, out, notes)
	}
	t.Cleanup(func() { os.Remove(filepath.Join(root, file[1])) })
	checkEqual(t, "lines on stderr", strings.Count(notes, "\n"), 5)
	checkContains(t, "stderr", notes, "status:  200 OK, transaction 0x", "\nreceipt: valid: signed by did:web:127.0.0.1%3A")
	checkContains(t, "stdout", out, `"exchange": "mx1.example.com"`)

	again := func(typed ...string) {
		stored, notes, code := runMake(t, newcomerEnv(), append(typed, "pay", "AGAIN="+file[1])...)
		checkEqual(t, "exit status", code, 0)
		checkEqual(t, "the stored answer", stored, out)
		checkContains(t, "stderr", notes, "Idempotent-Replayed: true")
	}
	operator := func() {
		owed, _, _ := runMake(t, env, "owed")
		checkContains(t, "stdout", owed, "nothing is owed and nothing is in doubt")
	}
	operator()
	again()
	_ = signalGroup(first.Cmd, syscall.SIGINT) // this cannot fail, because the process is running
	<-first.Gone()
	if crash := programs.Crash(first.Log.String()); crash != "" {
		t.Errorf("it did not end well:\n%s", crash)
	}
	if left := testbed.Must(filepath.Glob(ledgerFile + "-*")); len(left) > 0 {
		t.Errorf("a part of the ledger is left beside its file: %q", left)
	}
	operator()
	second := makeRun(t, env)
	again("URL=" + second.URL + question)
	checkEqual(t, "lookups", resolver.lookups("example.com"), 1)
	_ = signalGroup(second.Cmd, syscall.SIGKILL) // this cannot fail, because the process is running
	<-second.Gone()
	operator()
}

// makeRun starts the service with "make run".
func makeRun(t *testing.T, env []string) *programs.Process {
	cmd := exec.Command("make", "-C", root, "run")
	cmd.Env, cmd.SysProcAttr, cmd.WaitDelay = env, &syscall.SysProcAttr{Setpgid: true}, time.Minute
	p := programs.StartPeer(t, cmd, "")
	t.Cleanup(func() { _ = signalGroup(cmd, syscall.SIGKILL) }) // this fails if the process has ended
	return p
}
