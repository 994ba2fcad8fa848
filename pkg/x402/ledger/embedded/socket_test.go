package embedded

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
)

// socketFile is a ledger's path, in a folder of its own that is short: a socket's path
// may not be long.
func socketFile(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "sock") //nolint:usetesting // t.TempDir has the test's name in it
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "ledger.db")
}

// serve serves a store until end, or the end of the test.
func serve(t *testing.T, file string, s Served) (end func()) {
	t.Helper()
	closeAll, err := Serve(t.Context(), file, s)
	must(t, err)
	end = sync.OnceFunc(func() {
		if err := closeAll(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(end)
	return end
}

func dial(t *testing.T, file string) *Client {
	t.Helper()
	c, err := Dial(t.Context(), file)
	must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// served is a client of a store that is served until the end of the test.
func served(t *testing.T, s Served) *Client {
	t.Helper()
	file := socketFile(t)
	serve(t, file, s)
	return dial(t, file)
}

// planted is a client whose store can be made to hold what it would never write.
type planted struct {
	*Client
	store *ledgertest.Memory
}

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

// Only its own user gets at a socket, also where its folder was there and open to all;
// what a killed service has left is replaced, and at the end nothing is left. Nothing
// that is no socket is removed, and nobody is led elsewhere.
func TestSocketFiles(t *testing.T) {
	t.Parallel()
	elsewhere := t.TempDir()
	folder := func(dir string) error { return os.Mkdir(dir, 0o700) }
	for name, c := range map[string]struct {
		prepare func(dir, path string) error
		serves  bool
	}{
		"no folder":      {func(string, string) error { return nil }, true},
		"an open folder": {func(dir, _ string) error { return errors.Join(folder(dir), os.Chmod(dir, 0o777)) }, true},
		"a dead socket": {func(dir, path string) error {
			must(t, folder(dir))
			dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
			must(t, err)
			dead.SetUnlinkOnClose(false)
			return dead.Close()
		}, true},
		"a file as folder":  {func(dir, _ string) error { return os.WriteFile(dir, nil, 0o600) }, false},
		"a link as folder":  {func(dir, _ string) error { return os.Symlink(elsewhere, dir) }, false},
		"a file as socket":  {func(dir, path string) error { return errors.Join(folder(dir), os.WriteFile(path, nil, 0o600)) }, false},
		"a link as socket":  {func(dir, path string) error { return errors.Join(folder(dir), os.Symlink("x", path)) }, false},
		"no place for them": {func(dir, _ string) error { return os.RemoveAll(filepath.Dir(dir)) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			file := socketFile(t)
			path := SocketPath(file)
			dir := filepath.Dir(path)
			must(t, c.prepare(dir, path))
			if client, err := Dial(t.Context(), file); client != nil || !errors.Is(err, ErrNobody) {
				t.Errorf("Dial before = %v, %v", client, err)
			}
			if !c.serves {
				if closeAll, err := Serve(t.Context(), file, new(ledgertest.Memory)); err == nil {
					t.Errorf("served: %v", closeAll())
				}
				if left, err := os.ReadDir(elsewhere); len(left) > 0 || err != nil {
					t.Errorf("elsewhere are %v (%v)", left, err)
				}
				return
			}
			m := new(ledgertest.Memory)
			end := serve(t, file, m)
			for at, want := range map[string]fs.FileMode{dir: fs.ModeDir | 0o700, path: fs.ModeSocket | 0o600} {
				if info, err := os.Lstat(at); err != nil || info.Mode() != want {
					t.Errorf("%s has mode %v, want %v; %v", at, info.Mode(), want, err)
				}
			}
			client := dial(t, file)
			ledgertest.MustCreate(t, client, ledgertest.First("k"))
			end()
			if r, err := client.Fetch(t.Context(), "k"); r != nil || err == nil || m.Len() != 1 {
				t.Errorf("Fetch after the end = %v, %v; %d records", r, err, m.Len())
			}
			if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("left behind: %v", err)
			}
		})
	}
	long := filepath.Join(filepath.Dir(socketFile(t)), strings.Repeat("x", 100), "ledger.db")
	must(t, folder(filepath.Dir(long)))
	_, dials := Dial(t.Context(), long)
	_, serves := Serve(t.Context(), long, new(ledgertest.Memory))
	for _, err := range []error{dials, serves} {
		if err == nil || !strings.Contains(err.Error(), "LEDGER_FILE") {
			t.Errorf("a long path: %v", err)
		}
	}
}

// What is no request changes nothing, and gets an answer that says so.
func TestSocketHostile(t *testing.T) {
	t.Parallel()
	m := new(ledgertest.Memory)
	c := served(t, m)
	for body, says := range map[string]string{
		"": "EOF", "create": "invalid character", "{}": "unknown verb", `{"verb":"delete","key":"aw=="}`: "unknown verb",
		`{"verb":"fetch","table":"x"}`: "unknown field", `{"verb":"create"}`: "there is no record",
		`{"verb":"create","record":{"doc":"e30="}}`: "not a record", `{"verb":"fetch","key":"|"}`: "illegal base64",
		`{"verb":"fetch","key":"` + strings.Repeat("aaaa", maxRequest/4) + `"}`: "request body too large",
		`{"verb":"owed","limit":-9223372036854775809}`:                          "cannot unmarshal",
	} {
		res, err := c.http.Post("http://ledger.invalid/", "application/json", strings.NewReader(body))
		must(t, err)
		got, err := io.ReadAll(res.Body)
		if res.Body.Close(); !strings.Contains(string(got), says) || err != nil {
			t.Errorf("%.60q is answered %q, %v; want %q", body, got, err, says)
		}
	}
	if r, err := c.Fetch(t.Context(), "k"); r != nil || err != nil || m.Len() != 0 {
		t.Errorf("Fetch after all = %v, %v; %d records were written", r, err, m.Len())
	}
}

// A reply that is not the one asked for is not taken for it.
func TestDialHostileService(t *testing.T) {
	t.Parallel()
	other, err := messageOf(ledgertest.First("other"))
	must(t, err)
	for name, c := range map[string]struct {
		answer any // no reply where it is nil
		want   error
	}{
		"another record": {reply{Record: other}, ledger.ErrCorrupt},
		"no record":      {reply{Record: &message{Doc: []byte("{")}}, ledger.ErrCorrupt},
		"no JSON":        {nil, nil},
	} {
		file := socketFile(t)
		l, err := listen(t.Context(), SocketPath(file))
		must(t, err)
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if c.answer != nil {
				_ = json.NewEncoder(w).Encode(c.answer)
			}
		}))
		server.Listener.Close()
		server.Listener = l
		server.Start()
		t.Cleanup(server.Close)
		if r, err := dial(t, file).Fetch(t.Context(), "k"); r != nil || err == nil || c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("%s: Fetch = %v, %v; want %v", name, r, err, c.want)
		}
	}
}
