//go:build unix

package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
)

// TestReadme goes the README's way: make run, make pay, make pay AGAIN=1, Ctrl-C,
// make run again, and the same signature once more.
func TestReadme(t *testing.T) {
	t.Parallel()
	verifyOnly(t, "needs make")
	resolver := newResolver(t)
	env := newcomer("LOCAL_ADDR=127.0.0.1:0", "LEDGER_FILE="+filepath.Join(t.TempDir(), "ledger.db"), "DNS_RESOLVERS="+resolver.addr)

	first, base := makeRun(t, env)
	const question = "/v1/tools/dns?domain=example.com&type=MX"
	out, notes, code := runMake(t, newcomer(), "pay", "URL="+base+question)
	if code != 0 {
		t.Fatalf("make pay: exit status %d\n%s%s", code, out, notes)
	}
	is(t, "lines on stderr", strings.Count(notes, "\n"), 5)
	t.Logf("make pay URL='%s%s' printed\n%s", base, question, out)
	if err := shaped([]byte(out), catalog.DNS().Fields); err != nil {
		t.Errorf("stdout is not the DNS result: %v\n%s", err, out)
	}
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
	second, base := makeRun(t, env)
	again, notes, code = runMake(t, newcomer(), "pay", "URL="+base+question, "AGAIN="+file[1])
	replayed(t, "after a restart", code, again, notes, out)
	if n := resolver.lookups("example.com"); n != 1 {
		t.Errorf("%d lookups, want 1", n)
	}
	interrupt(t, second)
}

// replayed holds an answer to the one that was stored.
func replayed(t *testing.T, what string, code int, out, notes, stored string) {
	t.Helper()
	is(t, what+": exit status", code, 0)
	is(t, what+": the stored answer", out, stored)
	if !strings.Contains(notes, "Idempotent-Replayed: true") {
		t.Errorf("%s: stderr does not show the replay:\n%s", what, notes)
	}
}

// makeRun starts the service as a newcomer does, and returns where it is.
func makeRun(t *testing.T, env []string) (g *group, base string) {
	t.Helper()
	g = startGroup(t, env, "make", "-C", root, "run")
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(compiling); time.Now().Before(deadline); {
		if _, rest, ok := strings.Cut(g.out.String(), " is ready on "); ok && strings.Contains(rest, "Ctrl-C stops it.") {
			base, _, _ = strings.Cut(rest, "\n")
			return g, base
		}
		select {
		case err := <-g.ended:
			g.ended <- err
			t.Fatalf("make run ended: %v\n%s%s", err, &g.out, &g.notes)
		case <-tick.C:
		}
	}
	t.Fatalf("make run did not get ready\n%s%s", &g.out, &g.notes)
	return nil, ""
}

// interrupt is Ctrl-C in the terminal of make run.
func interrupt(t *testing.T, g *group) {
	t.Helper()
	g.signal(syscall.SIGINT)
	g.wait(t)
	if all := g.out.String() + g.notes.String(); strings.Contains(all, "panic") || strings.Contains(all, "goroutine ") {
		t.Errorf("it did not end well:\n%s", all)
	}
}
