package embedded

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// ErrDamaged says that the file is not what this package wrote.
var ErrDamaged = errors.New("the ledger file is damaged")

// advice is what Open adds to ErrDamaged: for whoever starts the runner.
const advice = `
Move it away and start again with a new, empty one, or name another one in LEDGER_FILE.
The new one knows nothing of earlier payments. Their signatures are refused and never charged
again, but stored answers are not repeated, and answers that are owed are forgotten: keep the
damaged file, and refund their payers by the list of transfers to PAY_TO.`

// damaged is the error of Open.
func damaged(path string, cause error) error {
	return fmt.Errorf("%w: %s (%w)%s", ErrDamaged, path, cause, advice)
}

// errPages is the cause when bbolt could not make sense of a page.
var errPages = errors.New("its pages cannot be read")

// guarded runs f, which uses bbolt: that panics on a page that is not what it
// has to be, and the memory that a file is mapped to faults where the file ends
// early. Both become errPages. (A bug of f does, too: nothing can tell.)
func guarded(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", errPages, p)
		}
	}()
	return f()
}

// examine looks at every page of an existing file, before bbolt trusts them.
// It holds the file's lock, shared, so that nobody writes meanwhile.
func examine(path string, timeout time.Duration) error {
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
		return nil //nolint:nilerr // to be made, or for bolt.Open to refuse
	}
	var file *os.File
	keep := func(path string, flag int, mode os.FileMode) (f *os.File, err error) {
		file, err = os.OpenFile(path, flag, mode)
		return file, err
	}
	db, err := bolt.Open(path, 0, &bolt.Options{ReadOnly: true, Timeout: timeout, OpenFile: keep})
	if err != nil {
		return err
	}
	info, err := file.Stat()
	if err == nil {
		err = inspect(file, info.Size(), int64(db.Info().PageSize))
	}
	return errors.Join(err, db.Close())
}

// explain names the path in what went wrong while the file was opened, and
// tells damage from a file that is in use or that the system does not give.
func explain(path string, err error) error {
	var refused syscall.Errno
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		return fmt.Errorf("%w: %s", ErrLocked, path)
	case errors.As(err, &refused):
		return fmt.Errorf("embedded: open %s: %w", path, err)
	}
	return damaged(path, err)
}

// trouble is whether a page of the open file turned out damaged.
type trouble struct {
	once  sync.Once
	found chan struct{} // closed then
	err   error         // set before
}

func (t *trouble) report(err error) {
	t.once.Do(func() {
		t.err = err
		close(t.found)
	})
}

// errIf is the error of every call once there is trouble.
func (t *trouble) errIf() error {
	select {
	case <-t.found:
		return t.err
	default:
		return nil
	}
}

// call runs f over the open file. Whoever panics within bbolt leaves its locks
// as they are, so that nothing is read or written after that, and a call that
// waits for such a lock returns although its goroutine stays behind. What f
// finds out is therefore its result, not a variable that it shares.
func call[T any](s *Store, f func(*bolt.DB) (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	if err := s.trouble.errIf(); err != nil {
		return result{}.value, err
	}
	done := make(chan result, 1)
	go func() {
		var r result
		r.err = guarded(func() (err error) {
			r.value, err = f(s.db)
			return err
		})
		if errors.Is(r.err, errPages) {
			s.trouble.report(fmt.Errorf("%w: %w: %s (%w)", ledger.ErrCorrupt, ErrDamaged, s.path, r.err))
			return
		}
		done <- r
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-s.trouble.found:
		return result{}.value, s.trouble.err
	}
}
