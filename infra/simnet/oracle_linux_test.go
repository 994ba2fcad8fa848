package simnet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// agrees compares answers with what other programs say about the same hosts.
// Where they differ, the differences are listed with the reason: one that is
// not listed fails, and so does one that is listed and gone.
func agrees(t *testing.T, n *internet, r *runner) {
	if err := useResolvers(t.TempDir()); err != nil {
		t.Fatalf("programs do not know this internet's names: %v", err)
	}
	n.forget()
	for tool, ask := range map[string]func(*testing.T, *internet, *runner, *agreement){
		"dig": agreesWithDig, "openssl": agreesWithOpenSSL, "curl": agreesWithCurl, "rdap": agreesWithRDAP,
	} {
		t.Run("with "+tool, func(t *testing.T) {
			if tool != "rdap" {
				need(t, tool)
			}
			t.Parallel()
			a := &agreement{tool: tool, differ: map[string]string{}}
			t.Run("hosts", func(t *testing.T) { ask(t, n, r, a) })
			a.settle(t)
		})
	}
}

func need(t *testing.T, tool string) {
	t.Helper()
	if _, err := exec.LookPath(tool); err != nil {
		t.Skip(tool + " is not installed")
	}
}

// agreement collects what one program and the service say.
type agreement struct {
	tool   string
	mu     sync.Mutex
	same   int
	differ map[string]string // "host field" -> both values
}

// compare notes one field of one host.
func (a *agreement) compare(host, field, ours, theirs string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if ours == theirs {
		a.same++
		return
	}
	a.differ[host+" "+field] = fmt.Sprintf("%.300q, %s says %.300q", ours, a.tool, theirs)
}

// settle holds what differs to the list.
func (a *agreement) settle(t *testing.T) {
	t.Helper()
	listed := map[string]bool{}
	for _, d := range differences() {
		if d.tool != a.tool {
			continue
		}
		for host := range strings.FieldsSeq(d.hosts) {
			for field := range strings.FieldsSeq(d.fields) {
				key := host + " " + field
				listed[key] = true
				if a.differ[key] == "" {
					t.Errorf("%s is said to differ (%s) and does not", key, d.why)
				}
			}
		}
	}
	unlisted := 0
	for _, key := range slices.Sorted(maps.Keys(a.differ)) {
		if !listed[key] {
			unlisted++
			t.Errorf("%s is %s", key, a.differ[key])
		}
	}
	if a.same < 100 {
		t.Errorf("only %d values were compared and equal", a.same)
	}
	t.Logf("%d values are the same, %d differ as listed, %d are not listed", a.same, len(a.differ)-unlisted, unlisted)
}

// sideBySide runs a comparison for each host, side by side.
func sideBySide(t *testing.T, hosts []string, compare func(t *testing.T, host string)) {
	t.Helper()
	for _, h := range hosts {
		t.Run(h, func(t *testing.T) {
			t.Parallel()
			compare(t, h)
		})
	}
}

// lookUp pays for an answer. It returns the error's code, or decodes the answer.
func lookUp(t *testing.T, r *runner, op catalog.Operation, query string, into any) (code string) {
	t.Helper()
	domain, _, _ := strings.Cut(query, "&")
	reply, err := buyUntil(t, r, op.Path+"?domain="+query, func(x402test.Reply) bool { return timesOut(t, domain) })
	if err != nil {
		t.Fatal(err)
	}
	if reply.Status != http.StatusOK {
		var failed struct{ Error struct{ Code string } }
		if err := json.Unmarshal(reply.Body, &failed); err != nil || failed.Error.Code == "" {
			t.Fatalf("%d %v: %.300s", reply.Status, err, reply.Body)
		}
		return failed.Error.Code
	}
	if err := json.Unmarshal(reply.Body, into); err != nil {
		t.Fatal(err)
	}
	return ""
}

// run is a program's output and exit status, -1 when it had to be ended.
func run(t *testing.T, limit time.Duration, env []string, stdin string, name string, args ...string) (out string, status int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdin = strings.NewReader(stdin)
	b, err := cmd.Output()
	var exit *exec.ExitError
	if ctx.Err() != nil && err != nil { // also when it ended by itself just then, or was not started before
		return string(b), -1
	}
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%s: %v", name, err)
	}
	return string(b), cmd.ProcessState.ExitCode()
}

// serving are the names of hosts that listen.
func serving(parts ...[]host) []string {
	var out []string
	for _, h := range slices.Concat(parts...) {
		if h.serve != nil || h.addrs != nil {
			out = append(out, h.name)
		}
	}
	return out
}
