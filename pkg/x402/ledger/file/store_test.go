package file

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
)

// planter is a Store that can also put any record into its file.
type planter struct{ *Store }

var _ ledgertest.Planter = planter{}

func (p planter) Plant(ctx context.Context, key string, doc []byte) error {
	_, err := p.db.ExecContext(ctx, `INSERT OR REPLACE INTO records (key, version, write_id, list, since, expires, doc, body, sum)
		VALUES (?, 1, '', 0, 0, 0, ?, NULL, ?)`, key, doc, checksum(doc, nil))
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

// TestOpen checks that Open creates the file and the folders above it, for this user only. A
// second Store of the same file, like that of another process, can read and write the same
// records. The calls of a closed Store fail. If no file can be at the path, Open fails, but
// not with ErrUnreadable.
func TestOpen(t *testing.T) {
	t.Parallel()
	path := "/" + filepath.Join(t.TempDir(), "a", "b c?%", "ledger.db")
	first := open(t, path)
	for at, want := range map[string]os.FileMode{
		path: 0o600, path + "-wal": 0o600, filepath.Dir(path): 0o700, filepath.Dir(filepath.Dir(path)): 0o700,
	} {
		if info, err := os.Stat(at); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v; want mode %o", filepath.Base(at), info, err, want)
		}
	}
	sync := 0
	must(t, first.writer.QueryRowContext(t.Context(), "PRAGMA synchronous").Scan(&sync))
	if sync != 2 { // FULL: a write is on disk before it is acknowledged
		t.Errorf("synchronous is %d", sync)
	}
	second, err := Open(path)
	must(t, err)
	r := ledgertest.Full("k")
	ledgertest.MustPut(t, first, r)
	ledgertest.Holds(t, second, r)
	next := ledgertest.Next(r)
	ledgertest.MustPut(t, second, next)
	if current, err := first.Put(t.Context(), ledgertest.Next(r)); err != nil || current.Head().WriteID != next.WriteID {
		t.Errorf("Put over what the other process has replaced = %+v, %v", current, err)
	}
	must(t, second.Close())
	_, fetch := second.Fetch(t.Context(), "k")
	_, put := second.Put(t.Context(), r)
	if fetch == nil || put == nil {
		t.Errorf("a closed store: Fetch = %v, Put = %v", fetch, put)
	}
	for _, none := range []string{t.TempDir(), filepath.Join(path, "below.db")} {
		if _, err := Open(none); err == nil || errors.Is(err, ErrUnreadable) || strings.Contains(err.Error(), "\n") {
			t.Errorf("Open of %s = %v", none, err)
		}
	}
}

// TestOpenTogether checks that four Stores, like those of four processes, can open the same
// new file at once and close it.
func TestOpenTogether(t *testing.T) {
	t.Parallel()
	for range 20 {
		path, opened := newPath(t), make(chan error)
		for range 4 {
			go func() {
				s, err := Open(path)
				if err == nil {
					err = s.Close()
				}
				opened <- err
			}()
		}
		for range 4 {
			if err := <-opened; err != nil {
				t.Error(err)
			}
		}
	}
}

// TestSweep checks that Sweep deletes a record that has expired. It must keep a record that
// expires later, and one that has no time of expiry, like the records in doubt and the owed
// ones.
func TestSweep(t *testing.T) {
	t.Parallel()
	s, now := open(t, newPath(t)), time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	for key, end := range map[string]time.Time{"past": now.Add(-time.Minute), "later": now.Add(time.Minute), "none": {}} {
		r := ledgertest.Full(key)
		r.ExpiresAt = end
		ledgertest.MustPut(t, s, r)
	}
	if n, err := s.Sweep(t.Context(), now); n != 1 || err != nil {
		t.Errorf("Sweep = %d, %v", n, err)
	}
	if p, err := s.Page(t.Context(), "", "", 10); err != nil || len(p.Records) != 2 || p.Records[0].Head().Key != "later" || p.Records[1].Head().Key != "none" {
		t.Errorf("left are %+v, %v", p, err)
	}
}

// TestSweepInParts checks that one Sweep does a limited amount of work. The next Sweep
// continues where the last one stopped, even in another process, until every expired record is
// deleted. After that, Sweep begins again with the first row.
func TestSweepInParts(t *testing.T) {
	t.Parallel()
	path, now := newPath(t), time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	s := open(t, path)
	const rows = maxSweptRows + 3*sweepBatchRows
	_, err := s.db.ExecContext(t.Context(), `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
		INSERT INTO records SELECT 'k' || i, 1, '', 0, 0, CASE WHEN i % 2 THEN ? WHEN i % 4 THEN ? ELSE 0 END, '', NULL, 0 FROM n`,
		rows, now.Unix()-1, now.Unix()+3600)
	must(t, err)
	for _, want := range []int{maxSweptRows / 2, rows/2 - maxSweptRows/2, 0} {
		s := open(t, path)
		if n, err := s.Sweep(t.Context(), now); n != want || err != nil {
			t.Errorf("Sweep = %d, %v; want %d", n, err, want)
		}
	}
	if n, err := s.Sweep(t.Context(), now.Add(2*time.Hour)); n != rows/4 || err != nil {
		t.Errorf("Sweep of what has expired since = %d, %v; want %d", n, err, rows/4)
	}
}

// TestOpenOther checks that Open refuses a file which is not a sound ledger of this version.
// The error has advice, and the file is not changed. Open accepts some damaged files, because
// SQLite does not notice every damage, and because a large file is not checked as a whole.
// From such a file, no record may be read wrongly.
func TestOpenOther(t *testing.T) {
	t.Parallel()
	records, sound := soundLedger(t)
	refused := otherFiles(t, sound)
	damaged := damagedFiles(sound)
	served, unchecked := 0, 0
	for name, contents := range mergeFiles(refused, damaged) {
		path := newPath(t)
		must(t, os.WriteFile(path, contents, 0o600))
		s, err := Open(path)
		if err == nil {
			served++
			if refused[name] != nil {
				t.Errorf("%s: it is opened", name)
			}
			checkReads(t, name, s, records)
			must(t, s.Close())
			continue
		}
		checkRefused(t, name, path, contents, err)
		if strings.HasPrefix(name, "zeros") && readUnchecked(t, name, path, records) {
			unchecked++
		}
	}
	all := len(refused) + len(damaged)
	if n := all - served; n < len(refused)+len(sound)/page || served == 0 || unchecked == 0 {
		t.Errorf("%d of %d were refused, and %d of them only when they are checked as a whole; want some of each", n, all, unchecked)
	}
}

// page is the size of a page of the file.
const page = 4096

// soundLedger returns the records and the bytes of an undamaged ledger.
func soundLedger(t *testing.T) (records map[string]ledger.Payment, contents []byte) {
	t.Helper()
	path := newPath(t)
	s, err := Open(path)
	must(t, err)
	records = map[string]ledger.Payment{}
	for i := range 40 {
		r := ledgertest.Full(fmt.Sprintf("eip155:8453|token|payer|%04d", i))
		records[r.Key] = r
		ledgertest.MustPut(t, s, r)
	}
	must(t, s.Close())
	contents, err = os.ReadFile(path)
	must(t, err)
	return records, contents
}

// otherFiles returns files that are not a ledger of this version, by name.
func otherFiles(t *testing.T, sound []byte) map[string][]byte {
	t.Helper()
	return map[string][]byte{
		"text":     bytes.Repeat([]byte("not a ledger\n"), 1000),
		"bbolt":    append(make([]byte, 16), 0xed, 0xda, 0x0c, 0xed),
		"cut":      sound[:len(sound)/2],
		"another":  databaseOf(t, "CREATE TABLE t (a); PRAGMA user_version = 1"),
		"later":    databaseOf(t, schema+fmt.Sprintf("PRAGMA application_id = %d; PRAGMA user_version = %d", applicationID, schemaVersion+1)),
		"no pages": bytes.Repeat([]byte{0}, page),
		// SQLite's integrity check does not notice the following three changes.
		"format":    append(append(bytes.Clone(sound[:47]), 0xff), sound[48:]...), // the schema format in the file's header
		"column":    bytes.Replace(sound, []byte("version INTEGER"), []byte("versioo INTEGER"), 1),
		"condition": bytes.Replace(sound, []byte("list > 0"), []byte("list > 1"), 1),
	}
}

// damagedFiles returns ledgers in which one page was overwritten or one bit was changed.
func damagedFiles(sound []byte) map[string][]byte {
	files := map[string][]byte{}
	random := rand.New(rand.NewPCG(1, 2))
	for at := 0; at < len(sound); at += page {
		for name, with := range map[string]byte{"zeros": 0, "ones": 0xff} {
			b := bytes.Clone(sound)
			copy(b[at:at+page], bytes.Repeat([]byte{with}, page))
			files[fmt.Sprintf("%s %d", name, at/page)] = b
		}
		b := bytes.Clone(sound)
		b[at+page-1-random.IntN(page/2)] ^= 1 // in the second half of the page, which has data if the page is full
		files[fmt.Sprintf("bit %d", at/page)] = b
	}
	return files
}

func mergeFiles(files, more map[string][]byte) map[string][]byte {
	all := maps.Clone(files)
	maps.Copy(all, more)
	return all
}

// checkReads reads all records, and checks that each is either read correctly or
// reported as corrupt.
func checkReads(t *testing.T, name string, s *Store, records map[string]ledger.Payment) {
	t.Helper()
	for key, r := range records {
		found, err := s.Fetch(t.Context(), key)
		got, ok := found.(ledger.Payment)
		if !errors.Is(err, ledger.ErrCorrupt) && (err != nil || !ok || got.WriteID != r.WriteID || !bytes.Equal(got.Answer.Body, r.Answer.Body)) {
			t.Errorf("%s: %s is %+v, %v", name, key, got, err)
		}
	}
}

// checkRefused checks the error of a refused Open, and that the file is unchanged.
func checkRefused(t *testing.T, name, path string, contents []byte, err error) {
	t.Helper()
	for _, text := range []string{path, "LEDGER_FILE", "owed", "another version"} {
		if !errors.Is(err, ErrUnreadable) || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: Open = %v, which does not say %q", name, err, text)
		}
	}
	if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, contents) {
		t.Errorf("%s: the file was changed (%v)", name, err)
	}
}

// readUnchecked opens a file as a large file is opened, without checking it as a whole, and
// reads its records. It returns false if checkFile refuses the file nevertheless.
func readUnchecked(t *testing.T, name, path string, records map[string]ledger.Payment) bool {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	must(t, err)
	defer func() { must(t, db.Close()) }()
	if checkFile(t.Context(), db, 1) != nil {
		return false
	}
	fetches, err := db.Prepare(fetchQuery)
	must(t, err)
	checkReads(t, name+", unchecked", &Store{db: db, fetchStmt: fetches}, records)
	return true
}

// databaseOf returns a database that a script created, as another program would.
func databaseOf(t *testing.T, script string) []byte {
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

// TestSharedCommit checks that the writes that wait while a transaction runs share the next
// transaction, in the order in which they came. If that transaction fails, all of these writes
// fail, including a write that changed nothing.
func TestSharedCommit(t *testing.T) {
	t.Parallel()
	s := open(t, newPath(t))
	first, second := ledgertest.First("k"), ledgertest.First("k")
	next := ledgertest.Next(first)
	var changes []*change
	for _, r := range []ledger.Payment{first, second, next, next, ledgertest.Next(ledgertest.First("nobody"))} {
		values, err := encode(r)
		must(t, err)
		changes = append(changes, &change{r, values, make(chan result, 1)})
	}
	s.commit(changes)
	for i, want := range []string{first.WriteID, first.WriteID, next.WriteID, next.WriteID, ""} {
		o, held := <-changes[i].result, ""
		if o.stored != nil {
			held = o.stored.Head().WriteID
		}
		if o.err != nil || held != want {
			t.Errorf("change %d: %+v, want %s", i, o, want)
		}
	}
	_, err := s.writer.ExecContext(t.Context(), "BEGIN") // the next transaction cannot begin
	must(t, err)
	s.commit(changes)
	for i, c := range changes {
		if o := <-c.result; o.err == nil || o.stored != nil {
			t.Errorf("change %d of a failed transaction: %+v", i, o)
		}
	}
	ledgertest.MustPut(t, s, ledgertest.First("after it"))
}

// FuzzDecode decodes any row, with a right or a wrong checksum. decode must return a record with
// the row's key, or report the row as corrupt. A row with a wrong checksum must be corrupt. If
// encode accepts a record that decode returned, it must keep the record's key and version.
func FuzzDecode(f *testing.F) {
	for _, r := range []ledger.Payment{ledgertest.First("k"), ledgertest.Full("k")} {
		doc, body, err := ledger.Marshal(r)
		must(f, err)
		f.Add("k", doc, body, true)
		f.Add("k", doc, body, false)
	}
	f.Add("k", []byte(`{"key":"k","version":1,"write_id":"w","state":"settled","answer":{}}`), []byte("body"), true)
	f.Fuzz(func(t *testing.T, key string, doc, body []byte, sound bool) {
		want := int64(checksum(doc, body))
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
		values, err := encode(r)
		head := r.Head()
		if !sound || head.Key != key || err == nil && (values[0] != head.Version || values[8] != key) {
			t.Errorf("%+v of %q, %v, %v", r, key, values, err)
		}
	})
}
