package embedded

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	bolt "go.etcd.io/bbolt"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
)

// The file and the folders above it are made, for this user alone, and one process at a
// time has it open.
func TestOpen(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a", "b", "ledger.db")
	s := open(t, path, Options{})
	for at, want := range map[string]os.FileMode{
		path: 0o600, filepath.Dir(path): 0o700, filepath.Dir(filepath.Dir(path)): 0o700,
	} {
		info, err := os.Stat(at)
		must(t, err)
		if got := info.Mode().Perm(); got != want {
			t.Errorf("%s has mode %o, want %o", filepath.Base(at), got, want)
		}
	}
	_, err := Open(path, Options{LockTimeout: time.Millisecond})
	if !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), "another process") || !strings.Contains(err.Error(), path) {
		t.Errorf("second Open = %v, want ErrLocked with the path", err)
	}
	r := ledgertest.Full("k")
	ledgertest.MustCreate(t, s, r)
	must(t, s.Close())
	_, fetch := s.Fetch(t.Context(), "k")
	_, create := s.Create(t.Context(), r)
	replace := s.Replace(t.Context(), ledgertest.Next(r))
	if fetch == nil || create == nil || replace == nil || errors.Is(replace, ledger.ErrConflict) {
		t.Errorf("a closed store: Fetch = %v, Create = %v, Replace = %v", fetch, create, replace)
	}
	ledgertest.Holds(t, open(t, path, Options{LockTimeout: patience}), r)
}

func TestOpenWhatIsNoLedger(t *testing.T) {
	t.Parallel()
	text := filepath.Join(t.TempDir(), "text")
	must(t, os.WriteFile(text, bytes.Repeat([]byte("not a ledger\n"), 1000), 0o600))
	for name, path := range map[string]string{
		"text": text, "folder": t.TempDir(), "below a file": filepath.Join(text, "ledger.db"),
	} {
		if s, err := Open(path, Options{}); err == nil {
			t.Errorf("%s: Open succeeded", name)
			_ = s.Close()
		}
	}
	if b, err := os.ReadFile(text); err != nil || !bytes.HasPrefix(b, []byte("not a ledger")) {
		t.Errorf("the file was changed (%v)", err)
	}
}

func TestOpenRemovesExpired(t *testing.T) {
	t.Parallel()
	path := file(t)
	at := time.Date(2026, 11, 4, 12, 0, 0, 0, time.UTC)
	s := planter{open(t, path, Options{})}
	for key, expires := range map[string]time.Time{
		"past": at.Add(-time.Hour), "just past": at.Add(-time.Nanosecond), "now": at, "later": at.Add(time.Hour), "never": {},
	} {
		r := ledgertest.First(key)
		r.State, r.ExpiresAt = ledger.Refused, expires
		ledgertest.MustCreate(t, s, r)
	}
	for i := range 100 { // more than one page
		r := ledgertest.Full("old" + strings.Repeat("|", i))
		r.ExpiresAt = at.Add(-time.Hour)
		ledgertest.MustCreate(t, s, r)
	}
	for _, state := range []ledger.State{ledger.Settling, ledger.Uncertain, ledger.Settled} { // with the end of an earlier version
		r := ledgertest.First(string(state))
		r.State, r.ExpiresAt = state, at.Add(-time.Hour)
		ledgertest.MustCreate(t, s, r)
	}
	must(t, s.Plant(t.Context(), "corrupt", []byte(`{"expires_at":"2000-01-01T00:00:00Z"}`)))
	all := keys(t, s.Store)
	must(t, s.Close())

	s2 := open(t, path, Options{}) // no clock: nothing is removed
	if diff := cmp.Diff(all, keys(t, s2)); diff != "" {
		t.Errorf("without a clock (-want +got):\n%s", diff)
	}
	must(t, s2.Close())
	s3 := open(t, path, Options{Now: func() time.Time { return at }})
	if diff := cmp.Diff([]string{"corrupt", "later", "never", "now", "settled", "settling", "uncertain"}, keys(t, s3)); diff != "" {
		t.Errorf("what is left (-want +got):\n%s", diff)
	}
}

func keys(t *testing.T, s *Store) (all []string) {
	t.Helper()
	err := s.db.View(func(tx *bolt.Tx) error {
		return tx.Bucket(records).ForEach(func(k, _ []byte) error {
			all = append(all, string(k))
			return nil
		})
	})
	must(t, err)
	return all
}
