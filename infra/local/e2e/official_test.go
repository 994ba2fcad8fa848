package e2e

import (
	"encoding/json"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/infra/testbed"
)

// TestOfficialClient has the reference TypeScript client, unmodified and with
// its default spend controls, pay the local runner.
func TestOfficialClient(t *testing.T) {
	t.Parallel()
	verifyOnly(t, "needs Node for the reference client")
	dir := filepath.Join("testdata", "typescript")
	node := testbed.Node(t, dir)
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
	if list := l.facilitator.Moved(strings.ToLower(got.Payer)); len(list) == 1 {
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
