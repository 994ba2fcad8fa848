package file

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
)

// otherFileNames returns the names of the files in the folder of a ledger, except the main
// file.
func otherFileNames(t *testing.T, path string) (names []string) {
	t.Helper()
	all, err := os.ReadDir(filepath.Dir(path))
	must(t, err)
	for _, f := range all {
		if f.Name() != filepath.Base(path) {
			names = append(names, f.Name())
		}
	}
	return names
}

// copyLedger copies the main file of a ledger, and the files beside it with the given endings.
// It returns the path of the copy.
func copyLedger(t *testing.T, path string, endings ...string) string {
	t.Helper()
	to := newPath(t)
	for _, ending := range append(endings, "") {
		b, err := os.ReadFile(path + ending)
		must(t, err)
		must(t, os.WriteFile(to+ending, b, 0o600))
	}
	return to
}

// runScript runs a script on a ledger, as another program would.
func runScript(t *testing.T, path, script string) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	must(t, err)
	_, err = db.ExecContext(t.Context(), script)
	must(t, errors.Join(err, db.Close()))
}

// checkIncomplete checks that Open refuses an incomplete ledger with the right error and
// changes nothing. It returns the word that accepts the ledger.
func checkIncomplete(t *testing.T, path string, options ...Option) (word string) {
	t.Helper()
	before, err := os.ReadFile(path)
	must(t, err)
	s, err := Open(path, options...)
	if !errors.Is(err, ErrIncomplete) {
		if err == nil {
			must(t, s.Close())
		}
		t.Fatalf("Open = %v, want ErrIncomplete", err)
	}
	for _, said := range []string{path, "a copy of the file alone", "was killed", "make backup", "LEDGER_ACCEPT=", "file.Accept("} {
		if !strings.Contains(err.Error(), said) {
			t.Errorf("%v\ndoes not say %q", err, said)
		}
	}
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(before, after) || len(otherFileNames(t, path)) > 0 {
		t.Errorf("a refused file is changed (%v), or %v were made", err, otherFileNames(t, path))
	}
	_, word, _ = strings.Cut(err.Error(), "LEDGER_ACCEPT=")
	word, _, _ = strings.Cut(word, ",")
	return word
}

// checkHolds checks that a ledger opens without an acceptance word, and that it contains
// records with the given keys.
func checkHolds(t *testing.T, path string, keys ...string) {
	t.Helper()
	s, err := Open(path)
	must(t, err)
	for _, key := range keys {
		if ledgertest.Payment(t, s, key) == nil {
			t.Errorf("%s is missing", key)
		}
	}
	must(t, s.Close())
}

func put(t *testing.T, s *Store, n int) (keys []string) {
	t.Helper()
	for i := range n {
		r := ledgertest.Full(fmt.Sprint("k", i))
		ledgertest.MustPut(t, s, r)
		keys = append(keys, r.Key)
	}
	return keys
}

// TestOnePiece checks that the last process to close a ledger leaves a single file, which can
// be copied.
func TestOnePiece(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	first, err := Open(path)
	must(t, err)
	second, err := Open(path)
	must(t, err)
	keys := put(t, first, 50)
	must(t, first.Close())
	if names := otherFileNames(t, path); !slices.Contains(names, "ledger.db-wal") {
		t.Errorf("beside the file that is still open are %q", names)
	}
	ledgertest.Holds(t, second, *ledgertest.Payment(t, second, keys[0]))
	must(t, second.Close())
	if names := otherFileNames(t, path); len(names) > 0 {
		t.Errorf("beside the closed file are %q", names)
	}
	if m, err := (location{path}).readMark(t.Context()); err != nil || !m.isWhole || m.usesWAL {
		t.Errorf("it says %+v, %v", m, err)
	}
	checkHolds(t, copyLedger(t, path), keys...)
	checkHolds(t, path, keys...)
}

// TestHalved checks that Open refuses a copy that has only the main file of an open ledger.
// The error names the two possible causes of a missing -wal, and an acceptance word. The word
// is the same for all copies of a ledger that has stayed open. Once Open has accepted a copy,
// the copy gets another word.
func TestHalved(t *testing.T) {
	t.Parallel()
	running := open(t, newPath(t))
	empty := copyLedger(t, running.location.path) // a copy from before anything was written
	word := checkIncomplete(t, empty)
	keys := put(t, running, 300) // SQLite moves some of these into the main file
	alone := copyLedger(t, running.location.path)
	if other := checkIncomplete(t, alone); other != word {
		t.Errorf("the words of two copies are %q and %q", word, other)
	}
	checkIncomplete(t, alone, Accept("another"))
	checkIncomplete(t, alone, Accept(""))
	s, err := Open(alone, Accept(word))
	must(t, err)
	if other := checkIncomplete(t, copyLedger(t, alone), Accept(word)); other == word {
		t.Error("a word is good for two files")
	}
	must(t, s.Close())
	checkHolds(t, alone, keys[0])
	checkHolds(t, copyLedger(t, running.location.path, "-wal"), keys...) // the files that a killed process leaves
}

// TestLookedAt checks that Open refuses a file that another program has opened and closed
// after the ledger's process was killed. The other program has moved the -wal into the file
// and removed it, without changing the marker. So the file is complete, but Open cannot know
// that.
func TestLookedAt(t *testing.T) {
	t.Parallel()
	running := open(t, newPath(t))
	keys := put(t, running, 30)
	killed := copyLedger(t, running.location.path, "-wal")
	runScript(t, killed, "SELECT count(*) FROM records")
	word := checkIncomplete(t, killed)
	s, err := Open(killed, Accept(word))
	must(t, err)
	must(t, s.Close())
	checkHolds(t, killed, keys...)
	runScript(t, killed, "SELECT count(*) FROM records") // a single file loses nothing when another program opens it
	checkHolds(t, killed, keys...)
}

// TestBetweenTheSteps checks that a process which is killed between the steps of opening or
// closing a ledger leaves a file that opens without an acceptance word.
func TestBetweenTheSteps(t *testing.T) {
	t.Parallel()
	running := open(t, newPath(t))
	keys := put(t, running, 30)
	// copyAndRun copies the ledger with its -wal, runs a script on the copy, and returns the
	// path of the copy. The statements in the scripts are among the last ones that Close runs.
	copyAndRun := func(script string) string {
		to := copyLedger(t, running.location.path, "-wal")
		db, err := (location{to}).connect(time.Second)
		must(t, err)
		_, err = db.ExecContext(t.Context(), script)
		must(t, errors.Join(err, db.Close()))
		return to
	}
	checkHolds(t, copyAndRun("PRAGMA wal_checkpoint(FULL)"), keys...)
	checkHolds(t, copyAndRun("PRAGMA wal_checkpoint(FULL); UPDATE marker SET whole = 1"), keys...)
	checkHolds(t, copyAndRun("PRAGMA wal_checkpoint(FULL); UPDATE marker SET whole = 1; PRAGMA wal_checkpoint(FULL)"), keys...)
	unmarked := copyAndRun("UPDATE marker SET whole = 1; PRAGMA wal_checkpoint(FULL)")
	must(t, os.Remove(unmarked+"-wal")) // the file's journal mode still says that there is a -wal
	again, err := Open(unmarked)
	must(t, err)
	checkIncomplete(t, copyLedger(t, unmarked)) // the copy lacks the -wal that Open has made, and is refused even though nothing was written
	must(t, again.Close())
	checkHolds(t, unmarked, keys...)
}

// TestEarlierRelease checks that Open accepts a file of an earlier release as it is, and gives
// it a marker.
func TestEarlierRelease(t *testing.T) {
	t.Parallel()
	s, err := Open(newPath(t))
	must(t, err)
	keys := put(t, s, 30)
	earlier := "DROP TABLE marker; PRAGMA journal_mode = WAL"
	alone := s.location.path
	running := copyLedger(t, alone, "-wal")
	must(t, s.Close())
	runScript(t, alone, earlier)
	if m, err := (location{alone}).readMark(t.Context()); m != nil || err != nil {
		t.Fatalf("an earlier release has written %+v, %v", m, err)
	}
	killed, err := (location{running}).connect(time.Second)
	must(t, err)
	_, err = killed.ExecContext(t.Context(), earlier)
	must(t, errors.Join(err, killed.Close()))
	for _, path := range []string{alone, running} {
		s, err := Open(path)
		must(t, err)
		checkIncomplete(t, copyLedger(t, path))
		must(t, s.Close())
		checkHolds(t, path, keys...)
	}
}

// TestBesideAnother checks that Open refuses a complete file if the -wal of another ledger is
// beside it.
func TestBesideAnother(t *testing.T) {
	t.Parallel()
	running := open(t, newPath(t))
	put(t, running, 30)
	old, err := Open(newPath(t))
	must(t, err)
	keys := put(t, old, 3)
	must(t, old.Close())
	wal, err := os.ReadFile(running.location.path + "-wal")
	must(t, err)
	must(t, os.WriteFile(old.location.path+"-wal", wal, 0o600))
	if _, err := Open(old.location.path); !errors.Is(err, ErrBeside) || !strings.Contains(err.Error(), old.location.path) {
		t.Errorf("Open = %v, want ErrBeside", err)
	}
	must(t, os.Remove(old.location.path+"-wal"))
	checkHolds(t, old.location.path, keys...)
}

// TestOldFile checks that Open refuses an old main file if a newer -wal of the same ledger is
// beside it.
func TestOldFile(t *testing.T) {
	t.Parallel()
	running := open(t, newPath(t))
	put(t, running, 60)
	old := copyLedger(t, running.location.path)
	for i := range 600 {
		ledgertest.MustPut(t, running, ledgertest.Full(fmt.Sprint("later", i)))
	}
	wal, err := os.ReadFile(running.location.path + "-wal")
	must(t, err)
	must(t, os.WriteFile(old+"-wal", wal, 0o600))
	if s, err := Open(old); !errors.Is(err, ErrUnreadable) {
		t.Errorf("Open = %v, want ErrUnreadable", err)
		if err == nil {
			must(t, s.Close())
		}
	}
}

// TestKilled starts two processes in each of 25 rounds. Both open, write and close the same
// ledger again and again, and each kills itself at a random moment. No acknowledged record may
// be lost, and the ledger must open without an acceptance word.
func TestKilled(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	var keys []string
	for round := range 25 {
		written := make(chan []string, 2)
		for n := range cap(written) {
			go func() { written <- runUntilKilled(t, path, fmt.Sprint("round ", round, " process ", n)) }()
		}
		for range cap(written) {
			keys = append(keys, <-written...)
		}
		if round%4 == 0 {
			checkHolds(t, path, keys...)
		}
	}
	if len(keys) == 0 {
		t.Error("nothing was written")
	}
	checkHolds(t, path, keys...)
}

// runUntilKilled runs a process until it kills itself, and returns the keys of the records
// that the process has written.
func runUntilKilled(t *testing.T, path, name string) (keys []string) {
	var said bytes.Buffer
	writer := exec.CommandContext(t.Context(), os.Args[0]) //nolint:gosec // the test binary itself
	writer.Env = append(os.Environ(), "LEDGER_WRITER="+path, "LEDGER_NAME="+name)
	writer.Stderr = &said
	out, err := writer.StdoutPipe()
	if err == nil {
		err = writer.Start()
	}
	if err != nil {
		t.Error(err)
		return nil
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if key, ok := strings.CutPrefix(lines.Text(), "wrote "); ok {
			keys = append(keys, key)
		}
	}
	if err := writer.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("%s ended with %v: %s", name, err, said.String())
	}
	return keys
}

// TestMain runs the tests. As a process that TestKilled has started, it instead opens, writes
// and closes a ledger until it kills itself.
func TestMain(m *testing.M) {
	path := os.Getenv("LEDGER_WRITER")
	if path == "" {
		os.Exit(m.Run())
	}
	name := os.Getenv("LEDGER_NAME")
	writesFirst := strings.HasSuffix(name, "process 1") // so that this process writes even on a busy machine
	if !writesFirst {
		killSoon()
	}
	for n := 0; ; n++ {
		if err := writeOnce(path, fmt.Sprint(name, " ", n)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		if writesFirst && n == 0 {
			killSoon()
		}
	}
}

// killSoon kills this process after a random time of at most 60 milliseconds.
func killSoon() {
	time.AfterFunc(rand.N(60*time.Millisecond), func() {
		self, err := os.FindProcess(os.Getpid())
		if err == nil {
			_ = self.Kill()
		}
	})
}

// writeOnce opens a ledger, writes three records, prints that they are written, and closes the
// ledger.
func writeOnce(path, name string) error {
	s, err := Open(path)
	if err != nil {
		return err
	}
	for i := range 3 {
		r := ledgertest.First(fmt.Sprint(name, " ", i))
		if _, err := s.Put(context.Background(), r); err != nil {
			return err
		}
		fmt.Println("wrote " + r.Key)
	}
	return s.Close()
}
