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
	must(t, s.Close())
	contents, err := os.ReadFile(path)
	must(t, err)
	db, err := bolt.Open(path, 0, &bolt.Options{ReadOnly: true, PreLoadFreelist: true})
	must(t, err)
	err = db.View(func(tx *bolt.Tx) error {
		for ; ; f.used += pageBytes {
			if p, err := tx.Page(f.used / pageBytes); p == nil || err != nil {
				return err
			}
		}
	})
	must(t, errors.Join(err, db.Close()))
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

// reopens is a file with a change: it is refused, or the store answers, and some records
// may be gone without a word.
func (f soundFile) reopens(t *testing.T, what string, contents []byte) (served bool, gone []string) {
	t.Helper()
	s := tryOpen(t, what, contents)
	if s == nil {
		return false, nil
	}
	gone = f.answers(t, what, s)
	if err := s.Close(); err != nil {
		t.Errorf("%s: Close = %v", what, err)
	}
	return true, gone
}

func TestOpenCutFile(t *testing.T) {
	t.Parallel()
	f := sound(t, 200)
	for _, n := range []int{
		1, 100, pageBytes - 1, pageBytes, 2*pageBytes - 1, 2 * pageBytes, 3 * pageBytes, len(f.contents) / 2, f.used - pageBytes, f.used - 1,
	} {
		what := fmt.Sprintf("cut to %d of %d bytes", n, len(f.contents))
		if served, _ := f.reopens(t, what, f.contents[:n]); served {
			t.Errorf("%s: Open succeeded", what)
		}
	}
}

// fill is every byte of b.
func fill(b []byte, with byte) { copy(b, bytes.Repeat([]byte{with}, len(b))) }

// Whatever page is lost, Open says so, or the store answers. What can be lost without
// a word is the last write: bbolt takes a damaged meta page for one that was being
// written when the power went.
func TestOpenDamagedPage(t *testing.T) {
	t.Parallel()
	f := sound(t, 40)
	for name, spoil := range map[string]func(page []byte, random *rand.ChaCha8){
		"0xff":        func(p []byte, _ *rand.ChaCha8) { fill(p, 0xff) },
		"zeros":       func(p []byte, _ *rand.ChaCha8) { fill(p, 0) },
		"noise":       func(p []byte, random *rand.ChaCha8) { _, _ = random.Read(p) },
		"entries":     func(p []byte, _ *rand.ChaCha8) { fill(p[pageHeader:], 0xff) }, // lengths that lead out of the file
		"entry noise": func(p []byte, random *rand.ChaCha8) { _, _ = random.Read(p[pageHeader : pageHeader+64]) },
		"second half": func(p []byte, _ *rand.ChaCha8) { fill(p[len(p)/2:], 0xff) },
		"overflow":    func(p []byte, _ *rand.ChaCha8) { fill(p[12:16], 0xff) },
		"count":       func(p []byte, _ *rand.ChaCha8) { fill(p[10:12], 0xff) },
		// bbolt's check faults on these, in a goroutine of its own: the length of a
		// branch's first key, and a row that says that it is a table of rows.
		"long key": func(p []byte, _ *rand.ChaCha8) { p[pageHeader+7] = 0x42 },
		"table":    func(p []byte, _ *rand.ChaCha8) { p[pageHeader] |= 1 },
	} {
		random := rand.NewChaCha8(sha256.Sum256([]byte(name)))
		served := map[bool]int{}
		for at := 0; at < len(f.contents); at += pageBytes {
			b := bytes.Clone(f.contents)
			spoil(b[at:at+pageBytes], random)
			what := fmt.Sprintf("%s in page %d", name, at/pageBytes)
			ok, gone := f.reopens(t, what, b)
			if len(gone) > 0 && (at/pageBytes > 1 || !slices.Equal(gone, []string{f.last})) {
				t.Errorf("%s: %d records are gone without a word: %.3q", what, len(gone), gone)
			}
			served[ok]++
		}
		if served[true] == 0 || served[false] == 0 && name != "second half" {
			t.Errorf("%s: %d files were refused and %d served, want some of both", name, served[false], served[true])
		}
	}
}

// Some bytes here and there.
func TestOpenNoise(t *testing.T) {
	t.Parallel()
	f := sound(t, 30)
	random := rand.New(rand.NewPCG(1, 2))
	served := map[bool]int{}
	for round := range 150 {
		b := bytes.Clone(f.contents)
		for range 1 + random.IntN(40) {
			b[random.IntN(f.used)] ^= byte(1 + random.IntN(255))
		}
		ok, _ := f.reopens(t, fmt.Sprintf("round %d", round), b)
		served[ok]++
	}
	if served[false] == 0 || served[true] == 0 {
		t.Errorf("%d files were refused and %d served, want some of both", served[false], served[true])
	}
}

// use calls everything a store has. Each call returns, and what it cannot do
// is ErrCorrupt.
func (f soundFile) use(t *testing.T, what string, s *Store) {
	t.Helper()
	f.answers(t, what, s)
	_, open := s.Open(t.Context(), time.Now(), 10)
	_, owed := s.Owed(t.Context(), 10)
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

// damaged opens a sound file, which another program changes then, and uses it, n times
// side by side. It returns the trouble that was met.
func (f soundFile) damaged(t *testing.T, what string, n int, change func(path string) error) error {
	t.Helper()
	s := tryOpen(t, what, f.contents)
	if s == nil {
		t.Fatal("a sound file was refused")
	}
	must(t, change(s.path))
	var all sync.WaitGroup
	for range n {
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

// A page that is damaged while the store is open, and a file that is cut: reading the
// mapped memory past its end is SIGBUS. Nobody waits for ever for whoever met it first.
func TestDamageLater(t *testing.T) {
	t.Parallel()
	f := sound(t, 30)
	corrupt := 0
	for at := 0; at < f.used; at += pageBytes {
		err := f.damaged(t, fmt.Sprintf("page %d", at/pageBytes), 1, func(path string) error {
			b, err := os.OpenFile(path, os.O_WRONLY, 0)
			must(t, err)
			_, err = b.WriteAt(bytes.Repeat([]byte{0xff}, pageBytes), int64(at))
			return errors.Join(err, b.Close())
		})
		if err != nil {
			corrupt++
		}
	}
	if corrupt == 0 {
		t.Error("no damage was noticed")
	}
	f = sound(t, 60)
	for _, n := range []int{0, pageBytes, 4 * pageBytes, f.used / 2} {
		what := fmt.Sprintf("cut to %d bytes", n)
		if err := f.damaged(t, what, 8, func(path string) error { return os.Truncate(path, int64(n)) }); !errors.Is(err, ledger.ErrCorrupt) {
			t.Errorf("%s: %v, want ErrCorrupt", what, err)
		}
	}
}
