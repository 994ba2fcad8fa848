package embedded

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
)

// shortFolder is one: a socket's path may not be long.
func shortFolder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "sock") //nolint:usetesting // t.TempDir has the test's name in it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// served is a client of a store that is served until the end of the test.
func served(t *testing.T, s Served) *Client {
	t.Helper()
	file := filepath.Join(shortFolder(t), "ledger.db")
	serve(t, file, s)
	return dial(t, file)
}

func serve(t *testing.T, file string, s Served) (end func()) {
	t.Helper()
	closeAll, err := Serve(t.Context(), file, s)
	if err != nil {
		t.Fatal(err)
	}
	closed := false
	end = func() {
		if closed {
			return
		}
		closed = true
		if err := closeAll(); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(end)
	return end
}

func dial(t *testing.T, file string) *Client {
	t.Helper()
	c, err := Dial(t.Context(), file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// planted is a client whose store can be made to hold what it would never write.
type planted struct {
	*Client
	store *ledgertest.Memory
}

var _ ledgertest.Planter = planted{}

func (p planted) Plant(ctx context.Context, key string, doc []byte) error {
	return p.store.Plant(ctx, key, doc)
}

// TestSocketConformance: a store behind the socket is one in every way.
func TestSocketConformance(t *testing.T) {
	t.Parallel()
	ledgertest.Exercise(t, func(t *testing.T) ledgertest.Planter {
		m := new(ledgertest.Memory)
		return planted{served(t, m), m}
	})
}

func modeOf(t *testing.T, path string) fs.FileMode {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Mode()
}

// Only its own user gets at it, also where the folder was there and open to all;
// at the end nothing is left.
func TestSocketIsPrivate(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(string) error{
		"no folder":      func(string) error { return nil },
		"an open folder": func(dir string) error { return errors.Join(os.Mkdir(dir, 0o700), os.Chmod(dir, 0o777)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(shortFolder(t), "ledger.db")
			dir := filepath.Dir(SocketPath(file))
			if err := prepare(dir); err != nil {
				t.Fatal(err)
			}
			end := serve(t, file, new(ledgertest.Memory))
			if got := modeOf(t, dir); got != fs.ModeDir|0o700 {
				t.Errorf("the folder's mode is %v", got)
			}
			if got := modeOf(t, SocketPath(file)); got != fs.ModeSocket|0o600 {
				t.Errorf("the socket's mode is %v", got)
			}
			end()
			if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("left behind: %v", err)
			}
		})
	}
}

// What a killed service has left is replaced.
func TestSocketIsStale(t *testing.T) {
	t.Parallel()
	file := filepath.Join(shortFolder(t), "ledger.db")
	if err := os.Mkdir(filepath.Dir(SocketPath(file)), 0o700); err != nil {
		t.Fatal(err)
	}
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: SocketPath(file), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	dead.Close()
	if c, err := Dial(t.Context(), file); c != nil || !errors.Is(err, ErrNobody) {
		t.Errorf("Dial at a stale socket = %v, %v", c, err)
	}
	m := new(ledgertest.Memory)
	serve(t, file, m)
	if _, err := dial(t, file).Create(t.Context(), ledgertest.First("k")); err != nil || m.Len() != 1 {
		t.Errorf("Create = %v; the store has %d records", err, m.Len())
	}
}

// Nothing that is no socket is removed, and nobody is led elsewhere.
func TestSocketInTheWay(t *testing.T) {
	t.Parallel()
	elsewhere := shortFolder(t)
	for name, prepare := range map[string]func(dir, path string) error{
		"a file as folder":  func(dir, _ string) error { return os.WriteFile(dir, nil, 0o600) },
		"a link as folder":  func(dir, _ string) error { return os.Symlink(elsewhere, dir) },
		"a file as socket":  func(dir, path string) error { return errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(path, nil, 0o600)) },
		"a link as socket":  func(dir, path string) error { return errors.Join(os.Mkdir(dir, 0o700), os.Symlink("x", path)) },
		"no place for them": func(dir, _ string) error { return os.RemoveAll(filepath.Dir(dir)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(shortFolder(t), "ledger.db")
			if err := prepare(filepath.Dir(SocketPath(file)), SocketPath(file)); err != nil {
				t.Fatal(err)
			}
			closeAll, err := Serve(t.Context(), file, new(ledgertest.Memory))
			if err == nil {
				t.Errorf("served: %v", closeAll())
			}
			if left, err := os.ReadDir(elsewhere); len(left) > 0 || err != nil {
				t.Errorf("elsewhere are %v (%v)", left, err)
			}
		})
	}
}

func TestDialNobody(t *testing.T) {
	t.Parallel()
	file := filepath.Join(shortFolder(t), "ledger.db")
	if _, err := Dial(t.Context(), file); !errors.Is(err, ErrNobody) {
		t.Errorf("Dial = %v", err)
	}
	long := filepath.Join(shortFolder(t), strings.Repeat("x", 100), "ledger.db")
	if err := os.Mkdir(filepath.Dir(long), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := Dial(t.Context(), long); err == nil || !strings.Contains(err.Error(), "LEDGER_FILE") {
		t.Errorf("Dial of a long path = %v", err)
	}
	if _, err := Serve(t.Context(), long, new(ledgertest.Memory)); err == nil || !strings.Contains(err.Error(), "LEDGER_FILE") {
		t.Errorf("Serve at a long path = %v", err)
	}
}

// A service that has ended, and one that does not answer, are errors.
func TestServedStoreEnds(t *testing.T) {
	t.Parallel()
	file := filepath.Join(shortFolder(t), "ledger.db")
	end := serve(t, file, new(ledgertest.Memory))
	c := dial(t, file)
	if r, err := c.Fetch(t.Context(), "k"); r != nil || err != nil {
		t.Fatalf("Fetch = %v, %v", r, err)
	}
	end()
	if r, err := c.Fetch(t.Context(), "k"); r != nil || err == nil {
		t.Errorf("Fetch after the end = %v, %v", r, err)
	}
}

// What is no request changes nothing, and gets an answer that says so.
func TestSocketHostile(t *testing.T) {
	t.Parallel()
	m := new(ledgertest.Memory)
	c := served(t, m)
	for name, c := range map[string]struct {
		body string
		says string
	}{
		"nothing":           {"", "EOF"},
		"no JSON":           {"create", "invalid character"},
		"no verb":           {"{}", "unknown verb"},
		"a strange verb":    {`{"verb":"delete","key":"aw=="}`, "unknown verb"},
		"a strange member":  {`{"verb":"fetch","table":"x"}`, "unknown field"},
		"no record":         {`{"verb":"create"}`, "there is no record"},
		"half a record":     {`{"verb":"create","record":{"doc":"e30="}}`, "not a record"},
		"no base64":         {`{"verb":"fetch","key":"|"}`, "illegal base64"},
		"an endless one":    {`{"verb":"fetch","key":"` + strings.Repeat("aaaa", maxRequest/4) + `"}`, "request body too large"},
		"a negative number": {`{"verb":"owed","limit":-9223372036854775809}`, "cannot unmarshal"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := post(t, served(t, m), c.body)
			if !strings.Contains(got, c.says) || err != nil {
				t.Errorf("answered %q, %v; want %q", got, err, c.says)
			}
		})
	}
	if m.Len() != 0 {
		t.Errorf("%d records were written", m.Len())
	}
	if r, err := c.Fetch(t.Context(), "k"); r != nil || err != nil {
		t.Errorf("Fetch after all = %v, %v", r, err)
	}
}

func post(t *testing.T, c *Client, body string) (string, error) {
	t.Helper()
	res, err := c.http.Post("http://ledger.invalid/", "application/json", strings.NewReader(body))
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	return string(b), err
}

func replies(w http.ResponseWriter, p reply) { _ = json.NewEncoder(w).Encode(p) }

// A reply that is not the one asked for is not taken for it.
func TestDialHostileService(t *testing.T) {
	t.Parallel()
	other := ledgertest.First("other")
	doc, err := messageOf(other)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		answer func(http.ResponseWriter)
		want   error
	}{
		"another record": {func(w http.ResponseWriter) { replies(w, reply{Record: doc}) }, ledger.ErrCorrupt},
		"no record":      {func(w http.ResponseWriter) { replies(w, reply{Record: &message{Doc: []byte("{")}}) }, ledger.ErrCorrupt},
		"corrupt":        {func(w http.ResponseWriter) { replies(w, reply{Fault: "f", Kind: kindCorrupt}) }, ledger.ErrCorrupt},
		"conflict":       {func(w http.ResponseWriter) { replies(w, reply{Fault: "f", Kind: kindConflict}) }, ledger.ErrConflict},
		"a fault":        {func(w http.ResponseWriter) { replies(w, reply{Fault: "f"}) }, nil},
		"no JSON":        {func(w http.ResponseWriter) { w.WriteHeader(http.StatusTeapot) }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(shortFolder(t), "ledger.db")
			l, err := listen(t.Context(), SocketPath(file))
			if err != nil {
				t.Fatal(err)
			}
			server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { c.answer(w) }), ReadHeaderTimeout: time.Minute}
			go func() { _ = server.Serve(l) }()
			t.Cleanup(func() { server.Close() })
			r, err := dial(t, file).Fetch(t.Context(), "k")
			if r != nil || err == nil || c.want != nil && !errors.Is(err, c.want) {
				t.Errorf("Fetch = %v, %v; want %v", r, err, c.want)
			}
		})
	}
}
