package embedded

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	bolt "go.etcd.io/bbolt"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
)

// soundFile is a ledger file with some records, one of them with an answer of
// several pages, and freed pages in between.
type soundFile struct {
	contents []byte
	want     map[string]ledger.Record
	last     string // the key that was written last
	used     int    // where the pages end that mean something
}

func sound(t *testing.T, n int) (f soundFile) {
	t.Helper()
	path := file(t)
	s := open(t, path, Options{})
	f.want = map[string]ledger.Record{}
	for i := range n {
		r := ledgertest.Full(fmt.Sprintf("eip155:8453|token|payer|%04d", i))
		if i == n/3 {
			r.Answer.Body = bytes.Repeat([]byte{1}, 20<<10)
		}
		ledgertest.MustCreate(t, s, r)
		f.want[r.Key], f.last = r, r.Key
	}
	must(t, s.db.View(func(tx *bolt.Tx) error {
		f.used = int(tx.Size())
		return nil
	}))
	must(t, s.Close())
	contents, err := os.ReadFile(path)
	must(t, err)
	f.contents = contents
	return f
}

// pageBytes is bbolt's default, and pageHeader how many bytes of a page come before
// its entries.
var pageBytes = os.Getpagesize()

const pageHeader = 16

// patience is for a lock that another test's process holds between its fork and
// its exec.
const patience = 30 * time.Second

// answers holds an open store to what was written: every record is as it was, or
// ErrCorrupt. It returns how many are gone without a word.
func (f soundFile) answers(t *testing.T, what string, s *Store) (gone []string) {
	t.Helper()
	for _, key := range slices.Sorted(maps.Keys(f.want)) {
		got, err := s.Fetch(t.Context(), key)
		switch r := f.want[key]; {
		case errors.Is(err, ledger.ErrCorrupt):
		case err != nil:
			t.Errorf("%s: Fetch = %v, want ErrCorrupt", what, err)
		case got == nil:
			gone = append(gone, key)
		case got.WriteID != r.WriteID || !bytes.Equal(got.Answer.Body, r.Answer.Body):
			t.Errorf("%s: another record:\n%s", what, cmp.Diff(&r, got))
		}
	}
	return gone
}

// tryOpen opens a file that may be damaged. The error must tell its reader what to do,
// and the file must not be held nor changed after it.
func tryOpen(t *testing.T, what string, contents []byte) *Store {
	t.Helper()
	path := file(t)
	must(t, os.WriteFile(path, contents, 0o600))
	early := func() time.Time { return time.Unix(0, 0) } // nothing has expired
	s, err := Open(path, Options{Now: early, LockTimeout: patience})
	if err == nil {
		return s
	}
	for _, part := range []string{path, "is damaged", "Move it away", "LEDGER_FILE", "owed"} {
		if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), part) {
			t.Errorf("%s: Open = %v, which is not ErrDamaged or does not say %q", what, err, part)
		}
	}
	// Damage that only writing meets leaves the file locked until the process ends.
	if _, err := Open(path, Options{LockTimeout: time.Second}); !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrLocked) {
		t.Errorf("%s: a second Open = %v, want ErrDamaged again", what, err)
	}
	if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, contents) {
		t.Errorf("%s: the file was changed (%v)", what, err)
	}
	return nil
}

// fill writes a byte into a part of b, and returns all of it.
func fill(b []byte, from, to int, with byte) []byte {
	copy(b[from:to], bytes.Repeat([]byte{with}, to-from))
	return b
}

// Whatever page is lost, wherever the file ends, or some bytes are others: Open says so, or
// the store answers. What can be lost without a word is the last write: bbolt takes a
// damaged meta page for one that was being written when the power went.
func TestOpenDamaged(t *testing.T) {
	t.Parallel()
	f := sound(t, 40)
	const head = pageHeader
	for name, spoil := range map[string]func(b []byte, at int, random *rand.ChaCha8) []byte{
		"0xff":        func(b []byte, at int, _ *rand.ChaCha8) []byte { return fill(b, at, at+pageBytes, 0xff) },
		"zeros":       func(b []byte, at int, _ *rand.ChaCha8) []byte { return fill(b, at, at+pageBytes, 0) },
		"entries":     func(b []byte, at int, _ *rand.ChaCha8) []byte { return fill(b, at+head, at+pageBytes, 0xff) }, // lengths out of the file
		"second half": func(b []byte, at int, _ *rand.ChaCha8) []byte { return fill(b, at+pageBytes/2, at+pageBytes, 0xff) },
		"overflow":    func(b []byte, at int, _ *rand.ChaCha8) []byte { return fill(b, at+12, at+16, 0xff) },
		"count":       func(b []byte, at int, _ *rand.ChaCha8) []byte { return fill(b, at+10, at+12, 0xff) },
		// bbolt's check faults on these, in a goroutine of its own: the length of a
		// branch's first key, and a row that says that it is a table of rows.
		"long key": func(b []byte, at int, _ *rand.ChaCha8) []byte { return fill(b, at+head+7, at+head+8, 0x42) },
		"table":    func(b []byte, at int, _ *rand.ChaCha8) []byte { return fill(b, at+head, at+head+1, b[at+head]|1) },
		"noise": func(b []byte, at int, random *rand.ChaCha8) []byte {
			_, _ = random.Read(b[at : at+pageBytes])
			return b
		},
		"entry noise": func(b []byte, at int, random *rand.ChaCha8) []byte {
			_, _ = random.Read(b[at+head : at+head+64])
			return b
		},
		"here and there": func(b []byte, _ int, random *rand.ChaCha8) []byte {
			for range 1 + random.Uint64()%40 {
				b[random.Uint64()%uint64(f.used)] ^= byte(1 + random.Uint64()%255)
			}
			return b
		},
		"cut before": func(b []byte, at int, _ *rand.ChaCha8) []byte { return b[:max(1, at)] },
		"cut behind": func(b []byte, at int, _ *rand.ChaCha8) []byte { return b[:at+pageBytes-1] },
	} {
		random := rand.NewChaCha8(sha256.Sum256([]byte(name)))
		served := map[bool]int{}
		for at := 0; at < len(f.contents); at += pageBytes {
			b := spoil(bytes.Clone(f.contents), at, random)
			what := fmt.Sprintf("%s, page %d", name, at/pageBytes)
			s := tryOpen(t, what, b)
			served[s != nil]++
			if s == nil {
				continue
			}
			gone := f.answers(t, what, s)
			if len(gone) > 0 && name != "here and there" && (at/pageBytes > 1 || !slices.Equal(gone, []string{f.last})) {
				t.Errorf("%s: %d records are gone without a word: %.3q", what, len(gone), gone)
			}
			if err := s.Close(); err != nil || len(b) < f.used {
				t.Errorf("%s: %d of %d bytes were enough, Close = %v", what, len(b), f.used, err)
			}
		}
		if served[true] == 0 || served[false] == 0 && name != "second half" {
			t.Errorf("%s: %d files were refused and %d served, want some of both", name, served[false], served[true])
		}
	}
	if tryOpen(t, "text", bytes.Repeat([]byte("not a ledger\n"), 1000)) != nil {
		t.Error("a text is a ledger")
	}
}

// use calls everything a store has. Each call returns, and what it cannot do
// is ErrCorrupt.
func (f soundFile) use(t *testing.T, what string, s *Store) {
	t.Helper()
	f.answers(t, what, s)
	_, open := s.Open(t.Context(), time.Now(), ledger.Place{}, 10)
	_, owed := s.Owed(t.Context(), ledger.Place{}, 10)
	_, create := s.Create(t.Context(), ledgertest.First("new"))
	replace := s.Replace(t.Context(), ledgertest.Next(f.want[f.last]))
	if errors.Is(replace, ledger.ErrConflict) {
		replace = nil // damage can hide a record, so that there is none to replace
	}
	for call, err := range map[string]error{"Open": open, "Owed": owed, "Create": create, "Replace": replace} {
		if err != nil && !errors.Is(err, ledger.ErrCorrupt) {
			t.Errorf("%s: %s = %v, want ErrCorrupt", what, call, err)
		}
	}
}

// A page that is damaged while the store is open, and a file that is cut: reading the
// mapped memory past its end is SIGBUS. Nobody waits for ever for whoever met it first.
func TestDamageLater(t *testing.T) {
	t.Parallel()
	f, corrupt := sound(t, 30), 0
	damage := func(what string, contents []byte, users int) error {
		s := tryOpen(t, what, f.contents)
		if s == nil {
			t.Fatal("a sound file was refused")
		}
		must(t, os.WriteFile(s.path, contents, 0)) // the same file
		var all sync.WaitGroup
		for range users {
			all.Go(func() { f.use(t, what, s) })
		}
		all.Wait()
		err := s.trouble.errIf()
		if err != nil && (!errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), s.path) || strings.Contains(err.Error(), "\n")) {
			t.Errorf("%s: %v; want one line with the path", what, err)
		}
		if err := s.Close(); err != nil {
			t.Errorf("%s: Close = %v", what, err)
		}
		return err
	}
	for at := 0; at < f.used; at += pageBytes {
		contents := fill(bytes.Clone(f.contents), at, at+pageBytes, 0xff)
		if damage(fmt.Sprintf("page %d", at/pageBytes), contents, 1) != nil {
			corrupt++
		}
	}
	if corrupt == 0 {
		t.Error("no damage was noticed")
	}
	for _, n := range []int{0, pageBytes, 4 * pageBytes, f.used / 2} {
		what := fmt.Sprintf("cut to %d bytes", n)
		if err := damage(what, f.contents[:n], 8); !errors.Is(err, ledger.ErrCorrupt) {
			t.Errorf("%s: %v, want ErrCorrupt", what, err)
		}
	}
}
