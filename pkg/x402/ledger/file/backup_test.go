package file

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
)

// TestBackup checks that a backup is the complete ledger at one moment, even while another
// goroutine writes to the ledger. The backup opens without an acceptance word, and Backup
// overwrites no file.
func TestBackup(t *testing.T) {
	t.Parallel()
	running := open(t, newPath(t))
	keys := put(t, running, 100)
	to := newPath(t)
	var writing sync.WaitGroup
	done := make(chan struct{})
	writing.Go(func() {
		for r := ledgertest.First("written meanwhile"); ; r = ledgertest.Next(r) {
			if _, err := running.Put(t.Context(), r); err != nil {
				t.Error(err)
				return
			}
			select {
			case <-done:
				return
			default:
			}
		}
	})
	n, err := running.Backup(t.Context(), to)
	close(done)
	writing.Wait()
	if err != nil || n != len(keys) && n != len(keys)+1 {
		t.Fatalf("Backup = %d, %v", n, err)
	}
	if names := otherFileNames(t, to); len(names) > 0 {
		t.Errorf("beside the copy are %q", names)
	}
	if info, err := os.Stat(to); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the copy is %v, %v", info.Mode(), err)
	}
	checkHolds(t, copyLedger(t, to), keys...)
	checkHolds(t, to, keys...)
	before, err := os.ReadFile(to)
	must(t, err)
	if _, err := running.Backup(t.Context(), to); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a backup over another one: %v", err)
	}
	if after, err := os.ReadFile(to); err != nil || string(after) != string(before) {
		t.Errorf("it was overwritten (%v)", err)
	}
	if _, err := running.Backup(t.Context(), filepath.Join(to, "below")); err == nil {
		t.Error("a backup below a file")
	}
}
