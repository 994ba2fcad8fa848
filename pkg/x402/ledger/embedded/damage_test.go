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

// sound is a ledger file with some records, one of them with an answer of
// several pages, and freed pages in between.
func sound(t testing.TB, n int) (contents []byte, want map[string]ledger.Record, last string) {
	t.Helper()
	path := file(t)
	s := open(t, path, Options{})
	want = map[string]ledger.Record{}
	for i := range n {
		r := ledgertest.Full(fmt.Sprintf("eip155:8453|token|payer|%04d", i))
		if i == n/3 {
			r.Answer.Body = bytes.Repeat([]byte{1}, 20<<10)
		}
		ledgertest.MustCreate(t, s, r)
		want[r.Key], last = r, r.Key
	}
	must(t, s.Close())
	contents, err := os.ReadFile(path)
	must(t, err)
	return contents, want, last
}

// early is a time at which nothing has expired.
func early() time.Time { return time.Unix(0, 0) }

// patience is for a lock that another test's process holds between its fork and
// its exec.
const patience = 30 * time.Second

// answers holds an open store to what was written: every record is as it was,
// or ErrCorrupt. It returns how many are gone without a word.
func answers(t *testing.T, what string, s *Store, want map[string]ledger.Record) (gone []string) {
	t.Helper()
	for _, key := range slices.Sorted(maps.Keys(want)) {
		got, err := s.Fetch(t.Context(), key)
		switch r := want[key]; {
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

// tryOpen opens a file that may be damaged. The error must tell its reader
// what to do, and the file must not be held nor changed after it.
func tryOpen(t *testing.T, what string, contents []byte) *Store {
	t.Helper()
	path := file(t)
	must(t, os.WriteFile(path, contents, 0o600))
	s, err := Open(path, Options{Now: early, LockTimeout: patience})
	if err == nil {
		return s
	}
	for _, part := range []string{path, "is damaged", "Move it away", "LEDGER_FILE", "owed"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%s: Open = %v, which does not say %q", what, err, part)
		}
	}
	if !errors.Is(err, ErrDamaged) {
		t.Errorf("%s: Open = %v, want ErrDamaged", what, err)
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

func TestOpenCutFile(t *testing.T) {
	t.Parallel()
	contents, _, _ := sound(t, 200)
	end := used(t, contents)
	for _, n := range []int{1, 100, pageBytes - 1, pageBytes, 2*pageBytes - 1, 2 * pageBytes, 3 * pageBytes, len(contents) / 2, end - pageBytes, end - 1} {
		if s := tryOpen(t, fmt.Sprintf("cut to %d of %d bytes", n, len(contents)), contents[:n]); s != nil {
			t.Errorf("cut to %d of %d bytes: Open succeeded", n, len(contents))
			_ = s.Close()
		}
	}
}

// openSound is tryOpen for a file that has no damage yet.
func openSound(t *testing.T, what string, contents []byte) *Store {
	t.Helper()
	s := tryOpen(t, what, contents)
	if s == nil {
		t.Fatal("a sound file was refused")
	}
	return s
}

func closes(t *testing.T, what string, s *Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Errorf("%s: Close = %v", what, err)
	}
}

// pageBytes is bbolt's default.
var pageBytes = os.Getpagesize()

// pageHeader is how many bytes of a page come before its entries.
const pageHeader = 16

// used is where the pages of a sound file end that mean something.
func used(t testing.TB, contents []byte) int {
	t.Helper()
	path := file(t)
	must(t, os.WriteFile(path, contents, 0o600))
	db, err := bolt.Open(path, 0, &bolt.Options{ReadOnly: true, PreLoadFreelist: true})
	must(t, err)
	n := 0
	err = db.View(func(tx *bolt.Tx) error {
		for ; ; n++ {
			if p, err := tx.Page(n); p == nil || err != nil {
				return err
			}
		}
	})
	must(t, errors.Join(err, db.Close()))
	return n * pageBytes
}

// Whatever page is lost, Open says so, or the store answers. What can be lost
// without a word is the last write: bbolt takes a damaged meta page for one that
// was being written when the power went.
func TestOpenDamagedPage(t *testing.T) {
	t.Parallel()
	contents, want, last := sound(t, 40)
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
		t.Run(name, func(t *testing.T) {
			random := rand.NewChaCha8(sha256.Sum256([]byte(name)))
			refused, served := 0, 0
			for at := 0; at < len(contents); at += pageBytes {
				what := fmt.Sprintf("page %d", at/pageBytes)
				b := bytes.Clone(contents)
				spoil(b[at:at+pageBytes], random)
				s := tryOpen(t, what, b)
				if s == nil {
					refused++
					continue
				}
				served++
				gone := answers(t, what, s, want)
				if len(gone) > 0 && (at/pageBytes > 1 || !slices.Equal(gone, []string{last})) {
					t.Errorf("%s: %d records are gone without a word: %.3q", what, len(gone), gone)
				}
				closes(t, what, s)
			}
			if served == 0 || refused == 0 && name != "second half" {
				t.Errorf("%d files were refused and %d served, want some of both", refused, served)
			}
			t.Logf("%d files were refused, %d served", refused, served)
		})
	}
}

// fill is every byte of b.
func fill(b []byte, with byte) {
	for i := range b {
		b[i] = with
	}
}

// Some bytes here and there.
func TestOpenNoise(t *testing.T) {
	t.Parallel()
	contents, want, _ := sound(t, 30)
	random := rand.New(rand.NewPCG(1, 2))
	const rounds = 150
	end, refused := used(t, contents), 0
	for round := range rounds {
		b := bytes.Clone(contents)
		for range 1 + random.IntN(40) {
			b[random.IntN(end)] ^= byte(1 + random.IntN(255))
		}
		what := fmt.Sprintf("round %d", round)
		s := tryOpen(t, what, b)
		if s == nil {
			refused++
			continue
		}
		for _, key := range slices.Sorted(maps.Keys(want)) {
			got, err := s.Fetch(t.Context(), key)
			if err != nil && !errors.Is(err, ledger.ErrCorrupt) || got != nil && got.Key != key {
				t.Errorf("%s: Fetch = %v, %v", what, got, err)
			}
		}
		closes(t, what, s)
	}
	if refused == 0 || refused == rounds {
		t.Errorf("%d of %d files were refused", refused, rounds)
	}
}

// spoil writes over an open ledger's file, as another program might.
func spoil(t *testing.T, path string, b []byte, at int) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	must(t, err)
	_, err = f.WriteAt(b, int64(at))
	must(t, errors.Join(err, f.Close()))
}

// use calls everything a store has. Each call returns, and what it cannot do
// is ErrCorrupt.
func use(t *testing.T, what string, s *Store, want map[string]ledger.Record) {
	t.Helper()
	check := func(call string, err error) {
		t.Helper()
		if err != nil && !errors.Is(err, ledger.ErrCorrupt) {
			t.Errorf("%s: %s = %v, want ErrCorrupt", what, call, err)
		}
	}
	answers(t, what, s, want)
	_, err := s.Open(t.Context(), time.Now(), 10)
	check("Open", err)
	_, err = s.Owed(t.Context(), 10)
	check("Owed", err)
	_, err = s.Create(t.Context(), ledgertest.First("new"))
	check("Create", err)
	for _, r := range want {
		// Damage can hide a record, so that there is none to replace. Nothing is
		// written then.
		if err := s.Replace(t.Context(), ledgertest.Next(r)); !errors.Is(err, ledger.ErrConflict) {
			check("Replace", err)
		}
		break
	}
}

// A page that is damaged while the store is open.
func TestDamageLater(t *testing.T) {
	t.Parallel()
	contents, want, _ := sound(t, 30)
	corrupt := 0
	for at := 0; at < used(t, contents); at += pageBytes {
		what := fmt.Sprintf("page %d", at/pageBytes)
		s := openSound(t, what, contents)
		spoil(t, s.path, bytes.Repeat([]byte{0xff}, pageBytes), at)
		use(t, what, s, want)
		if err := s.trouble.errIf(); err != nil {
			corrupt++
			if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), s.path) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s: %v; want one line with the path", what, err)
			}
		}
		closes(t, what, s)
	}
	if corrupt == 0 {
		t.Error("no damage was noticed")
	}
}

// A file that another program cuts: reading the mapped memory past its end is
// SIGBUS. Nobody waits for ever for whoever met it first.
func TestCutLater(t *testing.T) {
	t.Parallel()
	contents, want, _ := sound(t, 60)
	for _, n := range []int{0, pageBytes, 4 * pageBytes, used(t, contents) / 2} {
		what := fmt.Sprintf("cut to %d bytes", n)
		s := openSound(t, what, contents)
		must(t, os.Truncate(s.path, int64(n)))
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() { use(t, what, s, want) })
		}
		all.Wait()
		if _, err := s.Fetch(t.Context(), slices.Sorted(maps.Keys(want))[0]); !errors.Is(err, ledger.ErrCorrupt) {
			t.Errorf("%s: Fetch = %v, want ErrCorrupt", what, err)
		}
		closes(t, what, s)
	}
}

// What bbolt writes passes, also after many changes, with many pages.
func TestExamineSound(t *testing.T) {
	t.Parallel()
	path := file(t)
	random := rand.New(rand.NewPCG(3, 4))
	held := map[string]ledger.Record{}
	for range 40 {
		s := open(t, path, Options{LockTimeout: patience})
		for range 8 {
			r := ledgertest.Full(fmt.Sprintf("%d|%s", random.IntN(60), strings.Repeat("k", random.IntN(900))))
			r.Answer.Body = make([]byte, random.IntN(30)<<random.IntN(10))
			if old, ok := held[r.Key]; ok {
				r.Version = old.Version + 1
				ledgertest.MustReplace(t, s, r)
			} else if _, err := s.Create(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			held[r.Key] = r
		}
		must(t, s.Close())
		if err := examine(path, patience); err != nil {
			t.Fatalf("after %d records: %v", len(held), err)
		}
	}
}

func BenchmarkOpen(b *testing.B) {
	contents, _, _ := sound(b, 2000)
	path := file(b)
	if err := os.WriteFile(path, contents, 0o600); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(used(b, contents)))
	for b.Loop() {
		s, err := Open(path, Options{Now: early})
		if err != nil {
			b.Fatal(err)
		}
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
