package simnet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// oracle is a program that is asked what the service is asked.
type oracle struct {
	path      string
	questions []string // names, and what else it is asked about them
	// ask gets both answers to a question and compares them.
	ask func(t *testing.T, question string, a *agreement)
}

// agrees compares answers with what other programs say about the same hosts.
// Where they differ, the differences are listed with the reason: one that is
// not listed fails, and so does one that is listed and gone.
func agrees(t *testing.T, n *internet, r *runner) {
	if err := useResolvers(t.TempDir()); err != nil {
		t.Fatalf("programs do not know this internet's names: %v", err)
	}
	n.forget()
	for tool, o := range map[string]oracle{"dig": digOracle(n), "openssl": opensslOracle(n), "curl": curlOracle(n), "rdap": rdapOracle(t, n)} {
		t.Run("with "+tool, func(t *testing.T) {
			testbed.Find(t, tool, o.path)
			t.Parallel()
			a := &agreement{runner: r, differ: map[string]string{}}
			t.Run("hosts", func(t *testing.T) {
				for _, q := range o.questions {
					t.Run(q, func(t *testing.T) {
						t.Parallel()
						o.ask(t, q, a)
					})
				}
			})
			a.settle(t, tool)
		})
	}
}

// agreement collects what one program and the service say.
type agreement struct {
	*runner
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
	a.differ[host+" "+field] = fmt.Sprintf("%.300q, the other says %.300q", ours, theirs)
}

// settle holds what differs to the list.
func (a *agreement) settle(t *testing.T, tool string) {
	t.Helper()
	listed := map[string]bool{}
	for _, d := range differences()[tool] {
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

// lookUp pays for an answer. It returns the error's code, or decodes the answer.
func (a *agreement) lookUp(t *testing.T, op catalog.Operation, domain, more string, into any) (code string) {
	t.Helper()
	reply, err := buyUntil(t, a.runner, op.Path+"?domain="+domain+more, func(x402test.Reply) bool { return timesOut(domain) })
	if err != nil {
		t.Fatal(err)
	}
	if reply.Status == http.StatusOK {
		if err := json.Unmarshal(reply.Body, into); err != nil {
			t.Fatal(err)
		}
		return ""
	}
	var failed struct{ Error struct{ Code string } }
	if err := json.Unmarshal(reply.Body, &failed); err != nil || failed.Error.Code == "" {
		t.Fatalf("%d %v: %.300s", reply.Status, err, reply.Body)
	}
	return failed.Error.Code
}

// ran is what came of a program.
type ran struct {
	out    string
	status int // -1 when it had to be ended
}

// run runs a program for some time at most.
func run(t *testing.T, limit time.Duration, env []string, stdin string, name string, args ...string) ran {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdin = strings.NewReader(stdin)
	b, err := cmd.Output()
	var exit *exec.ExitError
	if ctx.Err() != nil && err != nil { // also when it ended by itself just then, or was not started before
		return ran{string(b), -1}
	}
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%s: %v", name, err)
	}
	return ran{string(b), cmd.ProcessState.ExitCode()}
}

// patiently asks with a limit in seconds, and once more with a longer one where a
// program was late and the service was not: perhaps this machine is slow, and not
// the host.
func patiently(code string, late func(status int) bool, ask func(seconds string) ran) ran {
	r := ask("6")
	if late(r.status) && !strings.HasSuffix(code, "_timeout") {
		r = ask("40")
	}
	return r
}

// comparedNames are those of the hosts that a program is asked about, which listen
// or could.
func (n *internet) comparedNames(tool string) []string {
	var names []string
	for _, h := range n.comparedWith(tool) {
		if h.addrs != nil {
			names = append(names, h.name)
		}
	}
	return names
}

// at443 is where an address listens.
func at443(address string) string {
	return netip.AddrPortFrom(netip.MustParseAddr(address), 443).String()
}

// short is a name as it is in the list of differences.
func short(name string) string { return strings.TrimSuffix(name, ".example.com") }
