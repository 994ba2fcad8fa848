package validators

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/built"
	"github.com/hostfacts/hostfacts/infra/testbed"
)

// patience is how long a test waits for what must happen.
const patience = 60 * time.Second

// origin is the running service's. Only TestMain writes it.
var origin string

func TestMain(m *testing.M) {
	code, err := serve(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// serve runs the tests beside the built local runner, which looks nothing up: no
// resolver, no registry, no chain.
func serve(m *testing.M) (code int, err error) {
	dir, err := os.MkdirTemp("", "hostfacts-validators-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir) // in the folder for temporary files
	program := filepath.Join(dir, "local")
	if err := built.Command(context.Background(), filepath.Join("..", ".."), testbed.LocalRunner, program); err != nil {
		return 0, err
	}
	p, err := testbed.Launch(testbed.Local(program, dir, map[string]string{"DNS_RESOLVERS": "127.0.0.1:9"}), nil)
	if err != nil {
		return 0, err
	}
	if err := p.Ready(); err != nil {
		return 0, err
	}
	origin = p.URL
	code = m.Run()
	return code, p.Stop()
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
