package file

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
)

// planter is a Store whose file can be written behind its back.
type planter struct{ *Store }

var _ ledgertest.Planter = planter{}

func (p planter) Plant(ctx context.Context, key string, doc []byte) error {
	_, err := p.db.ExecContext(ctx, `INSERT OR REPLACE INTO records (key, version, write_id, list, since, expires, doc, body, sum)
		VALUES (?, 1, '', 0, 0, 0, ?, NULL, ?)`, key, doc, sum(doc, nil))
	return err
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(t testing.TB, path string) *Store {
	t.Helper()
	s, err := Open(path)
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	return s
}

func newPath(t testing.TB) string { return filepath.Join(t.TempDir(), "ledger.db") }

func TestConformance(t *testing.T) {
	t.Parallel()
	ledgertest.Exercise(t, func(t *testing.T) ledgertest.Planter { return planter{open(t, newPath(t))} })
}

// The file and the folders above it are made, for this user alone. A second process
// reads and writes what the first one does.
func TestOpen(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a", "b c?%", "ledger.db")
	first := open(t, path)
	for at, want := range map[string]os.FileMode{
		path: 0o600, path + "-wal": 0o600, filepath.Dir(path): 0o700, filepath.Dir(filepath.Dir(path)): 0o700,
	} {
		if info, err := os.Stat(at); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v; want mode %o", filepath.Base(at), info, err, want)
		}
	}
	second, err := Open(path)
	must(t, err)
	r := ledgertest.Full("k")
	ledgertest.MustCreate(t, first, r)
	ledgertest.Holds(t, second, r)
	must(t, second.Replace(t.Context(), ledgertest.Next(r)))
	if err := first.Replace(t.Context(), ledgertest.Next(r)); !errors.Is(err, ledger.ErrConflict) {
		t.Errorf("Replace of what the other process has replaced = %v", err)
	}
	must(t, second.Close())
	_, fetch := second.Fetch(t.Context(), "k")
	_, create := second.Create(t.Context(), r)
	replace := second.Replace(t.Context(), ledgertest.Next(r))
	if fetch == nil || create == nil || replace == nil || errors.Is(replace, ledger.ErrConflict) {
		t.Errorf("a closed store: Fetch = %v, Create = %v, Replace = %v", fetch, create, replace)
	}
	for _, none := range []string{t.TempDir(), filepath.Join(path, "below.db")} {
		if _, err := Open(none); err == nil || errors.Is(err, ErrUnreadable) {
			t.Errorf("Open of %s = %v", none, err)
		}
	}
}

// Sweep deletes what has expired, and nothing that is in doubt or owed.
func TestSweep(t *testing.T) {
	t.Parallel()
	s, now := open(t, newPath(t)), time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	for key, end := range map[string]time.Time{"past": now.Add(-time.Minute), "later": now.Add(time.Minute), "none": {}} {
		r := ledgertest.Full(key)
		r.ExpiresAt = end
		ledgertest.MustCreate(t, s, r)
	}
	must(t, s.Sweep(t.Context(), now))
	if keys, err := s.ByPayer(t.Context(), "", 10); err != nil || strings.Join(keys, " ") != "later none" {
		t.Errorf("left are %q, %v", keys, err)
	}
}

// What is not a sound ledger of this version is refused with what to do, and left as it
// is. Where SQLite does not notice that a page was changed, no record is read wrongly.
func TestOpenOther(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	s, err := Open(path)
	must(t, err)
	want := map[string]ledger.Record{}
	for i := range 40 {
		r := ledgertest.Full(fmt.Sprintf("eip155:8453|token|payer|%04d", i))
		want[r.Key] = r
		ledgertest.MustCreate(t, s, r)
	}
	must(t, s.Close())
	sound, err := os.ReadFile(path)
	must(t, err)
	const page = 4096
	files := map[string][]byte{
		"text":     bytes.Repeat([]byte("not a ledger\n"), 1000),
		"bbolt":    append(make([]byte, 16), 0xed, 0xda, 0x0c, 0xed),
		"cut":      sound[:len(sound)/2],
		"another":  another(t, "CREATE TABLE t (a); PRAGMA user_version = 1"),
		"later":    another(t, schema+fmt.Sprintf("PRAGMA application_id = %d; PRAGMA user_version = %d", application, version+1)),
		"no pages": bytes.Repeat([]byte{0}, page),
	}
	refused := len(files)
	for at := 0; at < len(sound); at += page {
		for name, with := range map[string]byte{"zeros": 0, "ones": 0xff} {
			b := bytes.Clone(sound)
			copy(b[at:at+page], bytes.Repeat([]byte{with}, page))
			files[fmt.Sprintf("%s %d", name, at/page)] = b
		}
		b := bytes.Clone(sound)
		b[at+page-1-rand.IntN(page/2)] ^= 1 // within the contents of a full page
		files[fmt.Sprintf("bit %d", at/page)] = b
	}
	served := 0
	for name, contents := range files {
		path := newPath(t)
		must(t, os.WriteFile(path, contents, 0o600))
		s, err := Open(path)
		if err == nil {
			served++
			for key, r := range want {
				if got, err := s.Fetch(t.Context(), key); !errors.Is(err, ledger.ErrCorrupt) && (err != nil || got == nil || got.WriteID != r.WriteID || !bytes.Equal(got.Answer.Body, r.Answer.Body)) {
					t.Errorf("%s: %s is %+v, %v", name, key, got, err)
				}
			}
			must(t, s.Close())
			continue
		}
		for _, part := range []string{path, "LEDGER_FILE", "owed", "another version"} {
			if !errors.Is(err, ErrUnreadable) || !strings.Contains(err.Error(), part) {
				t.Errorf("%s: Open = %v, which does not say %q", name, err, part)
			}
		}
		if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, contents) {
			t.Errorf("%s: the file was changed (%v)", name, err)
		}
	}
	if n := len(files) - served; n < refused+len(sound)/page || served == 0 {
		t.Errorf("%d of %d were refused, want some of both", n, len(files))
	}
}

// A large file is not checked as a whole when it is opened: a damaged page is noticed when
// it is read.
func TestCheckedAsAWhole(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	s, err := Open(path)
	must(t, err)
	var keys []string
	for i := range 40 {
		keys = append(keys, fmt.Sprint(i))
		ledgertest.MustCreate(t, s, ledgertest.Full(keys[i]))
	}
	must(t, s.Close())
	b, err := os.ReadFile(path)
	must(t, err)
	copy(b[len(b)-4096:], make([]byte, 4096))
	must(t, os.WriteFile(path, b, 0o600))
	db, err := sql.Open("sqlite", path)
	must(t, err)
	defer db.Close()
	if err := told(prepare(t.Context(), db, len(b)/4096)); !errors.Is(err, ledger.ErrCorrupt) {
		t.Errorf("of a small file: %v, want ErrCorrupt", err)
	}
	must(t, prepare(t.Context(), db, len(b)/4096-1))
	damaged := 0
	for _, key := range keys {
		if _, err := (&Store{db: db}).Fetch(t.Context(), key); errors.Is(err, ledger.ErrCorrupt) {
			damaged++
		} else if err != nil {
			t.Error(err)
		}
	}
	if damaged == 0 {
		t.Error("nobody has noticed")
	}
}

// another is a database that somebody else made.
func another(t *testing.T, script string) []byte {
	t.Helper()
	path := newPath(t)
	db, err := sql.Open("sqlite", path)
	must(t, err)
	_, err = db.Exec(script)
	must(t, errors.Join(err, db.Close()))
	b, err := os.ReadFile(path)
	must(t, err)
	return b
}

// Writes that wait for a transaction share the next one, each on top of those before it.
func TestSharedCommit(t *testing.T) {
	t.Parallel()
	s := open(t, newPath(t))
	first, second := ledgertest.First("k"), ledgertest.First("k")
	next := ledgertest.Next(first)
	nobody := ledgertest.Next(ledgertest.First("nobody"))
	var changes []*change
	for _, c := range []struct {
		record    ledger.Record
		statement *sql.Stmt
	}{{first, s.insert}, {second, s.insert}, {next, s.update}, {next, s.update}, {nobody, s.update}} {
		values, err := encode(c.record)
		must(t, err)
		changes = append(changes, &change{c.record.Key, c.statement, values, make(chan result, 1)})
	}
	s.commit(changes)
	for i, want := range []struct {
		written bool
		held    string
	}{{true, ""}, {false, first.WriteID}, {true, ""}, {false, next.WriteID}, {false, ""}} {
		o, held := <-changes[i].done, ""
		if o.held != nil {
			held = o.held.WriteID
		}
		if o.err != nil || o.written != want.written || held != want.held {
			t.Errorf("change %d: %+v, want %+v", i, o, want)
		}
	}
	// All have failed when the transaction does, also what had nothing to write.
	_, err := s.writer.ExecContext(t.Context(), "BEGIN") // there is one already when the next one begins
	must(t, err)
	s.commit(changes)
	for i, c := range changes {
		if o := <-c.done; o.err == nil || o.written || o.held != nil {
			t.Errorf("change %d of a failed transaction: %+v", i, o)
		}
	}
}

// Whatever a row holds, decode reads what encode wrote or calls it corrupt.
func FuzzDecode(f *testing.F) {
	for _, r := range []ledger.Record{ledgertest.First("k"), ledgertest.Full("k")} {
		doc, body, err := r.Marshal()
		must(f, err)
		f.Add("k", doc, body, true)
		f.Add("k", doc, body, false)
	}
	f.Add("k", []byte(`{"key":"k","version":1,"write_id":"w","state":"settled","answer":{}}`), []byte("body"), true)
	f.Fuzz(func(t *testing.T, key string, doc, body []byte, sound bool) {
		want := sum(doc, body)
		if !sound {
			want++
		}
		r, err := decode(key, doc, body, want)
		if err != nil {
			if !errors.Is(err, ledger.ErrCorrupt) || r != nil {
				t.Fatalf("decode = %v, %v; want ErrCorrupt", r, err)
			}
			return
		}
		values, err := encode(*r)
		if !sound || r.Key != key || err == nil && (values[0] != r.Version || values[8] != key) {
			t.Errorf("%+v of %q, %v, %v", r, key, values, err)
		}
	})
}

// crashFile makes this test binary write to the ledger it names until killed.
const crashFile = "LEDGER_CRASH_FILE"

func TestMain(m *testing.M) {
	if path := os.Getenv(crashFile); path != "" {
		if err := writeUntilKilled(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// writeUntilKilled prints key, version and write id of each write once the store has
// acknowledged it.
func writeUntilKilled(path string) error {
	s, err := Open(path)
	if err != nil {
		return err
	}
	var all sync.WaitGroup
	for w := range 4 {
		all.Go(func() {
			for n := 0; err == nil; n++ {
				r := ledgertest.Full("")
				r.Key = fmt.Sprintf("crash|%d|%s", w, r.WriteID)
				r.Answer.Body = make([]byte, n%50<<10)
				_, err = s.Create(context.Background(), r)
				fmt.Println(r.Key, r.Version, r.WriteID)
				for range n % 4 {
					r = ledgertest.Next(r)
					err = errors.Join(err, s.Replace(context.Background(), r))
					fmt.Println(r.Key, r.Version, r.WriteID)
				}
			}
		})
	}
	all.Wait()
	return err
}

type acknowledged struct {
	version int64
	writeID string
}

// Every acknowledged write is there after the writer was killed, round after round on
// the same file. The kernel survives, so that this proves the order of the writes; that
// they reach the disk is SQLite's fsync.
func TestKill(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	wrote := map[string]acknowledged{}
	for round := range 6 {
		maps.Copy(wrote, killAfter(t, path, 10+rand.IntN(60)))
		s, err := Open(path)
		must(t, err)
		all, err := s.ByPayer(t.Context(), "", 1<<20)
		must(t, err)
		for _, key := range all {
			r, err := s.Fetch(t.Context(), key)
			must(t, err)
			a := wrote[key] // version 0 if it was not acknowledged
			if r.Version != a.version && r.Version != a.version+1 || r.Version == a.version && r.WriteID != a.writeID {
				t.Errorf("round %d: %q is version %d, acknowledged was %d", round, key, r.Version, a.version)
			}
			wrote[key] = acknowledged{r.Version, r.WriteID}
		}
		if len(all) != len(wrote) {
			t.Errorf("round %d: %d records, %d were acknowledged", round, len(all), len(wrote))
		}
		must(t, s.Close())
	}
}

// killAfter lets another process write, kills it after n acknowledgements at the
// earliest, and returns all that it gave.
func killAfter(t *testing.T, path string, n int) map[string]acknowledged {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), crashFile+"="+path)
	var complaints strings.Builder
	cmd.Stderr = &complaints
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	got := map[string]acknowledged{}
	lines := 0
	for in := bufio.NewScanner(out); in.Scan(); lines++ {
		var key string
		var a acknowledged
		if _, err := fmt.Sscan(in.Text(), &key, &a.version, &a.writeID); err != nil {
			continue // the line that the kill cut short
		}
		if a.version > got[key].version {
			got[key] = a
		}
		if lines == n {
			must(t, cmd.Process.Kill())
		}
	}
	if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() != -1 || lines < n {
		t.Fatalf("the writer ended by itself, after %d acknowledgements: %v: %s", lines, err, complaints.String())
	}
	return got
}
