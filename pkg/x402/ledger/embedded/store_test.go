package embedded

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	bolt "go.etcd.io/bbolt"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
)

// planter is a Store whose file can be written behind its back.
type planter struct{ *Store }

var _ ledgertest.Planter = planter{}

func (p planter) Plant(_ context.Context, key string, doc []byte) error {
	return p.put(key, pack(doc, nil))
}

func (p planter) put(key string, row []byte) error {
	return p.db.Update(func(tx *bolt.Tx) error { return tx.Bucket(records).Put([]byte(key), row) })
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(t testing.TB, path string, o Options) *Store {
	t.Helper()
	s, err := Open(path, o)
	must(t, err)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func file(t testing.TB) string { return filepath.Join(t.TempDir(), "ledger.db") }

func TestConformance(t *testing.T) {
	t.Parallel()
	ledgertest.Exercise(t, func(t *testing.T) ledgertest.Planter { return planter{open(t, file(t), Options{})} })
}

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
	if _, err := Open(path, Options{LockTimeout: time.Millisecond}); !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), path) {
		t.Errorf("second Open = %v, want ErrLocked with the path", err)
	}
	for _, none := range []string{t.TempDir(), filepath.Join(path, "below.db")} {
		if _, err := Open(none, Options{}); err == nil || errors.Is(err, ErrDamaged) {
			t.Errorf("Open of %s = %v", none, err)
		}
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

// A file that another version wrote is refused, with what to do, and left as it is.
func TestOpenOtherVersion(t *testing.T) {
	t.Parallel()
	path := file(t)
	db, err := bolt.Open(path, 0o600, nil)
	must(t, err)
	must(t, db.Update(func(tx *bolt.Tx) error {
		b, err := tx.CreateBucket([]byte("records"))
		return errors.Join(err, b.Put([]byte("k"), []byte("a row of another form")))
	}))
	must(t, db.Close())
	before, err := os.ReadFile(path)
	must(t, err)
	for range 2 {
		if _, err := Open(path, Options{Now: time.Now}); !errors.Is(err, ErrVersion) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "LEDGER_FILE") {
			t.Errorf("Open = %v", err)
		}
	}
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the file was changed: %v", err)
	}
}

func TestOpenRemovesExpired(t *testing.T) {
	t.Parallel()
	path := file(t)
	at := time.Date(2026, 11, 4, 12, 0, 0, 0, time.UTC)
	s := planter{open(t, path, Options{})}
	has := func(key string, state ledger.State, expires time.Time) {
		r := ledgertest.Full(key)
		r.State, r.ExpiresAt = state, expires
		ledgertest.MustCreate(t, s, r)
	}
	for key, expires := range map[string]time.Time{
		"past": at.Add(-time.Hour), "just past": at.Add(-time.Nanosecond), "now": at, "later": at.Add(time.Hour), "never": {},
	} {
		has(key, ledger.Refused, expires)
	}
	for i := range 100 { // more than one page
		has("old"+strings.Repeat("|", i), ledger.Redeemed, at.Add(-time.Hour))
	}
	must(t, s.Plant(t.Context(), "corrupt", []byte(`{"expires_at":"2000-01-01T00:00:00Z"}`)))
	want := keys(t, s.Store)
	for _, clock := range []func() time.Time{nil, func() time.Time { return at }} { // without one nothing is removed
		must(t, s.Close())
		s.Store = open(t, path, Options{Now: clock})
		if clock != nil {
			want = []string{"corrupt", "later", "never", "now"}
		}
		if diff := cmp.Diff(want, keys(t, s.Store)); diff != "" {
			t.Errorf("with a clock %t (-want +got):\n%s", clock != nil, diff)
		}
	}
}

func keys(t *testing.T, s *Store) []string {
	t.Helper()
	all, err := s.ByPayer(t.Context(), "", 1<<20)
	must(t, err)
	return all
}

// Any changed bit of a row is noticed, in the answer too.
func TestDamagedRow(t *testing.T) {
	t.Parallel()
	row, err := encode(ledgertest.Full("k"))
	must(t, err)
	check := func(what string, row []byte) {
		t.Helper()
		if got, err := decode("k", row); got != nil || !errors.Is(err, ledger.ErrCorrupt) {
			t.Errorf("%s: decode = %v, %v; want ErrCorrupt", what, got, err)
		}
	}
	for i := range row {
		damaged := bytes.Clone(row)
		damaged[i] ^= 1
		check(fmt.Sprintf("a bit of byte %d", i), damaged)
		check("cut short", row[:i])
	}
	check("longer", append(bytes.Clone(row), 0))
}

// commits is how many transactions the file has seen. bbolt syncs the file twice
// in each, and at no other time.
func commits(t testing.TB, s *Store) (n int) {
	t.Helper()
	must(t, s.db.View(func(tx *bolt.Tx) error { n = tx.ID(); return nil }))
	return n
}

// queued begins a write, and returns once it waits.
func queued(t *testing.T, s *Store, all *sync.WaitGroup, write func()) {
	t.Helper()
	length := func() int {
		s.queue.mu.Lock()
		defer s.queue.mu.Unlock()
		return len(s.queue.waiting)
	}
	before := length()
	all.Go(write)
	for end := time.Now().Add(time.Minute); length() == before; runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatal("the write does not wait")
		}
	}
}

// Writes that come while another one is going to disk share one transaction: what
// conflicts is told so, what repeats itself is done, and the rest is there. One that
// waits stops waiting with its context, and is never made.
func TestWritesShareASync(t *testing.T) {
	t.Parallel()
	s := open(t, file(t), Options{})
	const creates = maxCommit - 2
	s.writing <- struct{}{} // somebody writes, and does not finish
	before := commits(t, s)
	var all, left sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	queued(t, s, &left, func() {
		if _, err := s.Create(ctx, ledgertest.First("left")); !errors.Is(err, context.Canceled) {
			t.Errorf("Create = %v, want the context's error", err)
		}
	})
	cancel()
	left.Wait()
	for i := range creates {
		queued(t, s, &all, func() {
			if existing, err := s.Create(t.Context(), ledgertest.First(fmt.Sprint("k", i))); existing != nil || err != nil {
				t.Errorf("Create %d = %v, %v", i, existing, err)
			}
		})
	}
	first := ledgertest.First("k0") // another write of the same key
	queued(t, s, &all, func() {
		if existing, err := s.Create(t.Context(), first); err != nil || existing == nil || existing.WriteID == first.WriteID {
			t.Errorf("a second Create = %v, %v", existing, err)
		}
	})
	queued(t, s, &all, func() {
		if err := s.Replace(t.Context(), ledgertest.Next(ledgertest.First("nobody"))); !errors.Is(err, ledger.ErrConflict) {
			t.Errorf("Replace = %v, want ErrConflict", err)
		}
	})
	if r, err := s.Fetch(t.Context(), "k0"); r != nil || err != nil {
		t.Errorf("Fetch beside a writer = %v, %v", r, err)
	}
	<-s.writing
	all.Wait()
	if n := commits(t, s) - before; n != 1 || len(keys(t, s)) != creates {
		t.Errorf("%d writes took %d transactions, want 1; there are %q", creates, n, keys(t, s))
	}
}

// What has nothing to write costs no transaction, and more than fits into one
// takes the next. A change leaves the queue once, and not when it was taken.
func TestTransactions(t *testing.T) {
	t.Parallel()
	s := open(t, file(t), Options{})
	r := ledgertest.First("k")
	for _, want := range []int{1, 0} { // the second is the same write again
		before := commits(t, s)
		ledgertest.MustCreate(t, s, r)
		if n := commits(t, s) - before; n != want {
			t.Errorf("a write took %d transactions, want %d", n, want)
		}
	}
	var q queue
	all := make([]*change, maxCommit+2)
	for i := range all {
		all[i] = &change{}
		q.add(all[i])
	}
	left := []bool{q.leave(all[0]), q.leave(all[0])}
	if n, rest := len(q.take()), len(q.take()); n != maxCommit || rest != 1 || !left[0] || left[1] || q.leave(all[1]) {
		t.Errorf("took %d and %d, left %v", n, rest, left)
	}
}

// Whatever a row holds, decode reads what encode wrote or calls it corrupt.
func FuzzDecode(f *testing.F) {
	for _, r := range []ledger.Record{ledgertest.First("k"), ledgertest.Full("k")} {
		row, err := encode(r)
		must(f, err)
		f.Add("k", row[rowHeader:], uint32(len(row)-rowHeader), true)
		f.Add("k", row, uint32(0), false)
	}
	f.Add("k", []byte(`{"key":"k","version":1,"write_id":"w","state":"settled","answer":{}}body`), uint32(68), true)
	f.Add("k", []byte("x"), ^uint32(0), true)
	// With a header, so that the fuzzer need not find a checksum.
	f.Fuzz(func(t *testing.T, key string, row []byte, docLen uint32, header bool) {
		if header {
			row = pack(row, nil)
			binary.BigEndian.PutUint32(row[5:], docLen)
			binary.BigEndian.PutUint32(row[1:], checksum(row))
		}
		r, err := decode(key, row)
		if err != nil {
			if !errors.Is(err, ledger.ErrCorrupt) || r != nil {
				t.Fatalf("decode = %v, %v; want ErrCorrupt", r, err)
			}
			return
		}
		again, err := encode(*r)
		if err != nil {
			return // too large, or a key that no store takes
		}
		back, err := decode(key, again)
		// The terms come back compact: equal JSON, perhaps other bytes.
		opts := cmp.Options{cmpopts.IgnoreFields(ledger.Record{}, "Terms"), cmpopts.EquateEmpty()}
		if diff := cmp.Diff(r, back, opts); diff != "" || err != nil {
			t.Errorf("read, written and read (-first +second):\n%s%v", diff, err)
		}
	})
}

// ended is a context that ends once it has been asked n times.
type ended struct {
	context.Context
	n int
}

func (e *ended) Err() error {
	if e.n--; e.n < 0 {
		return context.Canceled
	}
	return nil
}

// A scan ends with its context, and not with the file.
func TestScanEndsWithContext(t *testing.T) {
	t.Parallel()
	s := planter{open(t, file(t), Options{})}
	for i := range 20 {
		must(t, s.put(fmt.Sprint(i), []byte("corrupt")))
	}
	ctx := &ended{Context: t.Context(), n: 5}
	if places, err := s.Owed(ctx, ledger.Place{}, 10); places != nil || !errors.Is(err, context.Canceled) || ctx.n != -1 {
		t.Errorf("Owed = %v, %v; want the context's error; it was asked %d times after its end", places, err, -1-ctx.n)
	}
}
