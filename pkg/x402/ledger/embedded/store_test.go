package embedded

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
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

// Any changed bit of a row is noticed, in the answer too.
func TestDamagedRow(t *testing.T) {
	t.Parallel()
	s := planter{open(t, file(t), Options{})}
	r := ledgertest.Full("k")
	row, err := encode(r)
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

	big := ledgertest.Full("k")
	big.Answer.Body = make([]byte, maxRow)
	if _, err := s.Create(t.Context(), big); !errors.Is(err, ErrTooLarge) {
		t.Errorf("Create = %v, want ErrTooLarge", err)
	}
	row[len(row)-1] ^= 1
	must(t, s.put("k", row))
	if _, err := s.Fetch(t.Context(), "k"); !errors.Is(err, ledger.ErrCorrupt) {
		t.Errorf("Fetch = %v, want ErrCorrupt", err)
	}
	// Even over the right version: nobody can have read it.
	if err := s.Replace(t.Context(), ledgertest.Next(r)); !errors.Is(err, ledger.ErrCorrupt) {
		t.Errorf("Replace = %v, want ErrCorrupt", err)
	}
}

// commits is how many transactions the file has seen. bbolt syncs the file twice
// in each, and at no other time.
func commits(t testing.TB, s *Store) (n int) {
	t.Helper()
	must(t, s.db.View(func(tx *bolt.Tx) error { n = tx.ID(); return nil }))
	return n
}

func (q *queue) length() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting)
}

// queued begins a write, and returns once it waits.
func queued(t *testing.T, s *Store, all *sync.WaitGroup, write func()) {
	t.Helper()
	before := s.queue.length()
	all.Go(write)
	for end := time.Now().Add(time.Minute); s.queue.length() == before; runtime.Gosched() {
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
			row = packLen(row, docLen)
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
		if err != nil {
			t.Fatalf("what was read and written again: %v", err)
		}
		// The terms come back compact: equal JSON, perhaps other bytes.
		opts := cmp.Options{cmpopts.IgnoreFields(ledger.Record{}, "Terms"), cmpopts.EquateEmpty()}
		if diff := cmp.Diff(r, back, opts); diff != "" {
			t.Errorf("read, written and read (-first +second):\n%s", diff)
		}
	})
}

// packLen makes a row with a right checksum and any doc length.
func packLen(rest []byte, docLen uint32) []byte {
	row := pack(rest, nil)
	row[5], row[6], row[7], row[8] = byte(docLen>>24), byte(docLen>>16), byte(docLen>>8), byte(docLen)
	sum := checksum(row)
	row[1], row[2], row[3], row[4] = byte(sum>>24), byte(sum>>16), byte(sum>>8), byte(sum)
	return row
}
