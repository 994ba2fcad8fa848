//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package built

import (
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
)

// One holder at a time, also within one process.
func TestLock(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	var all sync.WaitGroup
	// Atomic, because the race detector does not know the kernel's locks.
	var held, n atomic.Int32
	for range 20 {
		all.Go(func() {
			unlock, err := lock(path)
			if err != nil {
				t.Error(err)
				return
			}
			defer unlock()
			if now := held.Add(1); now != 1 {
				t.Errorf("%d holders", now)
			}
			n.Add(1)
			held.Add(-1)
		})
	}
	all.Wait()
	if n.Load() != 20 {
		t.Errorf("%d of 20 held it", n.Load())
	}
	if _, err := lock(filepath.Join(path, "below a file")); err == nil {
		t.Error("a path that cannot be is locked")
	}
}
