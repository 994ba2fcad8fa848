package validators

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	// The cache of go test sees what a test imports, not what it builds: this
	// is what the runner is made of.
	_ "github.com/hostfacts/hostfacts/pkg/operations"

	"github.com/hostfacts/hostfacts/infra/built"
)

// patience is how long a test waits for what must happen.
const patience = 60 * time.Second

// origin is the running service's. Only TestMain writes it.
var origin string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "hostfacts-validators-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := 1
	r, err := startRunner(dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	} else {
		origin = r.url
		code = m.Run()
		if err := r.stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	_ = os.RemoveAll(dir) // in the folder for temporary files
	os.Exit(code)
}

// runner is the built local runner.
type runner struct {
	url string
	cmd *exec.Cmd
	log built.Output
}

// startRunner builds the runner and starts it on ports of its own choice. It
// looks nothing up: no resolver, no registry, no chain.
func startRunner(dir string) (*runner, error) {
	program := filepath.Join(dir, "local")
	if err := built.Command(context.Background(), filepath.Join("..", ".."), "./infra/local", program); err != nil {
		return nil, err
	}
	r := &runner{cmd: exec.Command(program)}
	r.cmd.Dir = dir
	r.cmd.Env = []string{
		"LOCAL_ADDR=127.0.0.1:0", "LEDGER_FILE=" + filepath.Join(dir, "ledger.db"), "DNS_RESOLVERS=127.0.0.1:9",
		"RDAP_BOOTSTRAP_URL=http://127.0.0.1:9/", "RPC_URL=none", "RATE_LIMIT_PER_MINUTE=0",
	}
	r.cmd.Stdout, r.cmd.Stderr = &r.log, &r.log
	if err := r.cmd.Start(); err != nil {
		return nil, err
	}
	select {
	case r.url = <-r.log.Ready():
		return r, nil
	case <-time.After(patience):
		_ = r.cmd.Process.Kill()
		_ = r.cmd.Wait() // it was killed
		return nil, fmt.Errorf("the runner did not get ready:\n%s", r.log.String())
	}
}

// stop ends the runner politely; it must have ended well.
func (r *runner) stop() error {
	_ = r.cmd.Process.Signal(syscall.SIGTERM)
	late := time.AfterFunc(patience, func() { _ = r.cmd.Process.Kill() })
	defer late.Stop()
	if err := r.cmd.Wait(); err != nil {
		return fmt.Errorf("the runner ended with %w:\n%s", err, r.log.String())
	}
	return nil
}

// answer is one answer, read whole.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// send makes one request, and follows no redirect.
func send(ctx context.Context, method, url, accept string) (answer, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return answer{}, err
	}
	if accept != "" {
		req.Header.Set("Accept", accept)
	}
	client := http.Client{Timeout: patience, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	res, err := client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, 8<<20))
	return answer{res.StatusCode, res.Header, body}, err
}

// ask is send for a test that cannot go on without an answer.
func ask(t *testing.T, method, url, accept string) answer {
	t.Helper()
	a, err := send(t.Context(), method, url, accept)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// document is a free document of the running service.
func document(t *testing.T, path string) []byte {
	t.Helper()
	a := ask(t, http.MethodGet, origin+path, "")
	if a.status != http.StatusOK {
		t.Fatalf("%s: %d %.300s", path, a.status, a.body)
	}
	return a.body
}

// decoded is JSON as Go values.
func decoded[T any](t *testing.T, raw []byte) T {
	t.Helper()
	var v T
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatalf("%v: %.300s", err, raw)
	}
	return v
}

// broken is a document with something replaced, everywhere. It fails the test
// when there is nothing to replace: a validator would be shown a good one.
func broken(t *testing.T, doc []byte, old, other string) []byte {
	t.Helper()
	if !bytes.Contains(doc, []byte(old)) {
		t.Errorf("the document has no %q to break", old) // not Fatal: servers call it too
	}
	return bytes.ReplaceAll(doc, []byte(old), []byte(other))
}

// wantOne wants a validator to complain, and about this.
func wantOne(t *testing.T, complaints []string, about string) {
	t.Helper()
	for _, c := range complaints {
		if strings.Contains(c, about) {
			return
		}
	}
	t.Errorf("complains of %q, want something about %q", complaints, about)
}

// wantNone wants a validator to be content.
func wantNone(t *testing.T, complaints []string) {
	t.Helper()
	for _, c := range complaints {
		t.Error(c)
	}
}
