package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestOfficialClient has the reference TypeScript client, unmodified and with
// its default spend controls, pay the local runner.
func TestOfficialClient(t *testing.T) {
	t.Parallel()
	verifyOnly(t, "needs Node for the reference client")
	dir := filepath.Join("testdata", "typescript")
	node := nodeWith(t, dir)
	l := newLab(t)
	d := openLocal(t, l, l.setup())
	path := lookup("example.com", "MX")

	cmd := exec.CommandContext(t.Context(), node, "pay.mjs", d.base+path, l.terms.Network)
	cmd.Dir = dir
	var complaints strings.Builder
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("the reference client failed: %v\n%s", err, complaints.String())
	}
	var got struct {
		Payer          string
		Answer, Replay nodeAnswer
		Requests       []map[string]string
	}
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	is(t, "requests of the client", len(got.Requests), 2)
	hash := ""
	if list := l.transfers(strings.ToLower(got.Payer)); len(list) == 1 {
		hash = list[0].Transaction
	} else {
		t.Errorf("money moved %d times", len(list))
	}
	op, _ := opOf(path)
	s := subject{op: op, origin: d.origin, terms: l.terms, payer: got.Payer, hash: hash}
	w := result(op.Response)
	w.body = strings.Replace(w.body, "1.1.1.1", "127.0.0.1", 1) // our resolver
	for _, a := range []nodeAnswer{got.Answer, got.Replay} {
		e := exchange{method: http.MethodGet, path: path, status: a.Status, header: http.Header{}, body: []byte(a.Body)}
		for name, value := range a.Headers {
			e.header.Set(name, value)
		}
		check(t, e, w, s)
		w, s.before = w.replayed(), e
	}
	if err := l.books(strings.ToLower(got.Payer), op.Amount, 1, 1); err != nil {
		t.Error(err)
	}
}

// nodeAnswer is a response as pay.mjs prints it.
type nodeAnswer struct {
	Status  int
	Headers map[string]string
	Body    string
}

// nodeWith returns node, with the packages of a folder installed as its lock
// file says; it skips the test where that cannot be had.
func nodeWith(t testing.TB, dir string) string {
	t.Helper()
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("needs Node for the reference x402 client: node is not in PATH")
	}
	missing := packagesMissing(dir)
	if missing == nil {
		return node
	}
	npm, err := exec.LookPath("npm")
	if err != nil {
		t.Skipf("needs the reference x402 client: %v, and npm is not in PATH", missing)
	}
	cmd := exec.CommandContext(t.Context(), npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Skipf("needs the reference x402 client, and npm ci fails: %v: %.400s", err, out)
	}
	if err := packagesMissing(dir); err != nil {
		t.Fatalf("after npm ci: %v", err)
	}
	return node
}

// packagesMissing compares what is installed with package.json. npm writes the
// hidden lock file last.
func packagesMissing(dir string) error {
	var wanted struct{ Dependencies map[string]string }
	if err := readJSON(filepath.Join(dir, "package.json"), &wanted); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(dir, "node_modules", ".package-lock.json")); err != nil {
		return errors.New("node_modules is missing or incomplete")
	}
	for name, version := range wanted.Dependencies {
		var present struct{ Version string }
		if err := readJSON(filepath.Join(dir, "node_modules", name, "package.json"), &present); err != nil {
			return err
		}
		if present.Version != version {
			return fmt.Errorf("node_modules has %s %s, not %s", name, present.Version, version)
		}
	}
	return nil
}

func readJSON(path string, v any) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, v)
}
