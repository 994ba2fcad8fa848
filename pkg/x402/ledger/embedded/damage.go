package embedded

import (
	"bytes"
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

// ErrVersion says that another version of this package wrote the file. Open has not
// changed it.
var ErrVersion = errors.New("the ledger file is of another version of this program, and was left as it is")

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

// examine has bbolt judge an existing file before it is written to. It holds the
// file's lock, shared, so that nobody writes meanwhile. A panic of bbolt is the
// caller's to recover; the file is closed all the same, which ends the lock.
func examine(path string, timeout time.Duration) error {
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
		return nil //nolint:nilerr // to be made, or for bolt.Open to refuse
	}
	var file *os.File
	keep := func(path string, flag int, mode os.FileMode) (f *os.File, err error) {
		file, err = os.OpenFile(path, flag, mode)
		return file, err
	}
	whole := false
	defer func() {
		if !whole && file != nil {
			_ = file.Close() // what is wrong has been said
		}
	}()
	db, err := bolt.Open(path, 0, &bolt.Options{ReadOnly: true, PreLoadFreelist: true, Timeout: timeout, OpenFile: keep})
	if err != nil {
		return err
	}
	tx, err := db.Begin(false)
	if err != nil {
		return err
	}
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if info.Size() < tx.Size() {
		return fmt.Errorf("it has %d bytes, its contents take %d", info.Size(), tx.Size())
	}
	if err := judge(tx); err != nil {
		return err // bbolt's check may still use the transaction: only the file is closed
	}
	whole = true
	return errors.Join(tx.Rollback(), db.Close())
}

// judge asks bbolt whether a file is in order. bbolt's check runs in a goroutine
// of its own, where a memory fault cannot be recovered, and it counts through
// however many pages a page says it takes. So two passes in this goroutine come
// first: whether each page ends inside the file, and whether every row can be read,
// and found by its key, which compares every key of the pages on the way.
// References that lead around in a circle, which no accident makes because each
// page carries its own number, are not survived.
func judge(tx *bolt.Tx) error {
	if err := measure(tx); err != nil {
		return err
	}
	if err := reach(tx); err != nil {
		return err
	}
	// The first fault is enough. The check waits with the next one, if there is
	// one, for the end of the process.
	return <-tx.Check(bolt.WithKVStringer(lengths{}))
}

// lengths describes what bbolt's check complains of without reading it: a damaged
// page can say that a key is longer than the file.
type lengths struct{}

func (lengths) KeyToString(key []byte) string     { return fmt.Sprintf("(%d bytes)", len(key)) }
func (lengths) ValueToString(value []byte) string { return fmt.Sprintf("(%d bytes)", len(value)) }

// measure looks at the length of every page.
func measure(tx *bolt.Tx) error {
	var flowsTo int // the page behind the contents of the last one
	for id := 0; ; id++ {
		page, err := tx.Page(id)
		switch {
		case err != nil:
			return err
		case page == nil && id < flowsTo:
			return fmt.Errorf("a page flows over the end at page %d", id)
		case page == nil:
			return nil
		case id < flowsTo || page.Type == "free":
			continue
		}
		flowsTo = id + page.OverflowCount + 1
	}
}

// reach reads every key and every value, and finds every row by its key.
func reach(tx *bolt.Tx) error {
	var sum byte
	return tx.ForEach(func(_ []byte, b *bolt.Bucket) error {
		search := b.Cursor()
		return b.ForEach(func(key, value []byte) error {
			if value == nil {
				// bbolt's check would follow it to whatever page it names.
				return errors.New("a row says that it is a table of rows")
			}
			for _, part := range [][]byte{key, value} {
				for _, c := range part {
					sum ^= c
				}
			}
			if found, _ := search.Seek(key); !bytes.Equal(found, key) {
				return errors.New("a row is not where its key is looked for")
			}
			return nil
		})
	})
}

// explain names the path in what went wrong while the file was opened, and
// tells damage from a file that is in use or that the system does not give.
func explain(path string, err error) error {
	var refused syscall.Errno
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		return fmt.Errorf("%w: %s", ErrLocked, path)
	case errors.Is(err, ErrVersion):
		return fmt.Errorf("%w: %s\nRun that version with it, or move it away, or name another one in LEDGER_FILE", ErrVersion, path)
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
