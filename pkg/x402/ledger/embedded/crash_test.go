package embedded

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
)

// crashFile makes this test binary write to the ledger it names until killed.
const crashFile = "EMBEDDED_CRASH_FILE"

func TestMain(m *testing.M) {
	if path := os.Getenv(crashFile); path != "" {
		if err := writeUntilKilled(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// writeUntilKilled creates and replaces records, and prints key, version and
// write id of each write once the store has acknowledged it.
func writeUntilKilled(path string) error {
	s, err := Open(path, Options{})
	if err != nil {
		return err
	}
	for n := 0; ; n++ {
		r := ledgertest.Full("")
		r.Key = fmt.Sprintf("crash|%d|%s", n%7, r.WriteID)
		r.Answer.Body = make([]byte, n%50<<10)
		if existing, err := s.Create(context.Background(), r); existing != nil || err != nil {
			return fmt.Errorf("create = %v, %w", existing, err)
		}
		fmt.Println(r.Key, r.Version, r.WriteID)
		for range n % 4 {
			r = ledgertest.Next(r)
			if err := s.Replace(context.Background(), r); err != nil {
				return err
			}
			fmt.Println(r.Key, r.Version, r.WriteID)
		}
	}
}

type acknowledged struct {
	version int64
	writeID string
}

// Every acknowledged write is there after the writer was killed, round after
// round on the same file. (The kernel survives, so what this proves is the order
// of the writes; that they reach the disk is bbolt's fsync.)
func TestKill(t *testing.T) {
	t.Parallel()
	path := file(t)
	wrote := map[string]acknowledged{}
	const rounds = 8
	for round := range rounds {
		maps.Copy(wrote, killAfter(t, path, 10+rand.IntN(60)))
		s, err := Open(path, Options{})
		if err != nil {
			t.Fatalf("round %d: open after the kill: %v", round, err)
		}
		all := keys(t, s)
		ahead := 0 // rows that the writer was killed before it could acknowledge
		for _, key := range all {
			r, err := s.Fetch(t.Context(), key)
			must(t, err)
			a := wrote[key] // version 0 if it was not acknowledged
			switch {
			case r.Version == a.version+1:
				ahead++
				wrote[key] = acknowledged{r.Version, r.WriteID}
			case r.Version != a.version || r.WriteID != a.writeID:
				t.Errorf("round %d: %q is version %d, acknowledged was %d", round, key, r.Version, a.version)
			}
		}
		if len(all) != len(wrote) || ahead > 1 {
			t.Errorf("round %d: %d records, %d were acknowledged; %d writes beyond those, at most the last can be", round, len(all), len(wrote), ahead)
		}
		must(t, s.Close())
	}
}

// killAfter lets another process write, kills it after n acknowledgements at
// the earliest, and returns all that it gave.
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
		got[key] = a
		if lines != n {
			continue
		}
		if _, err := Open(path, Options{LockTimeout: time.Millisecond}); !errors.Is(err, ErrLocked) {
			t.Errorf("Open beside another process = %v, want ErrLocked", err)
		}
		must(t, cmd.Process.Kill())
	}
	if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() != -1 || lines < n {
		t.Fatalf("the writer ended by itself, after %d acknowledgements: %v: %s", lines, err, complaints.String())
	}
	return got
}
