package purse

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// Purse is the folder with the files for one server.
type Purse struct {
	dir   string
	now   func() time.Time
	after func(time.Duration) <-chan time.Time
}

// Open returns the purse in a folder. It creates the folder if necessary and makes it
// accessible only to its owner.
func Open(dir string, now func() time.Time, after func(time.Duration) <-chan time.Time) (*Purse, error) {
	p := &Purse{dir: dir, now: now, after: after}
	if err := os.MkdirAll(p.purchases(), 0o700); err != nil {
		return nil, fmt.Errorf("make the folder for payments: %w", err)
	}
	if err := os.Chmod(dir, 0o700); err != nil { // #nosec G302 -- a folder needs the execute bit; it may have existed with another mode
		return nil, fmt.Errorf("close the folder for payments to others: %w", err)
	}
	return p, nil
}

func (p *Purse) purchases() string { return filepath.Join(p.dir, "purchases") }

// KeyFile returns the path of the throwaway key for play money.
func (p *Purse) KeyFile() string { return filepath.Join(p.dir, "play.key") }

// replaceFile atomically replaces a file by one that has v as JSON, and flushes it to the disk.
func replaceFile(path string, v any) error {
	// JSON of third parties must keep its exact text. For example, the name of a purchase
	// depends on the text of its arguments.
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err
	}
	folder := filepath.Dir(path)
	f, err := os.CreateTemp(folder, filepath.Base(path)+"-*"+unfinishedSuffix) // CreateTemp creates the file with mode 0600
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // this does nothing if the file was renamed
	_, err = f.Write(text.Bytes())
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return syncFolder(folder)
}

// unfinishedSuffix is the suffix of a file that is still being written. If the process is
// killed while it writes, the file stays behind.
const unfinishedSuffix = ".tmp"

// lockRetryDelay is how long to wait before a lock is tried again.
const lockRetryDelay = 20 * time.Millisecond

// lock locks a file. Among all processes, only one caller at a time has the lock. The function
// waits for the lock until ctx is done. A caller keeps the lock until it calls unlock, or
// until its process ends.
func (p *Purse) lock(ctx context.Context, path string) (unlock func(), err error) {
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return nil, err
		}
		taken, err := tryLock(f)
		if err == nil && taken && isAtPath(f, path) {
			return func() { f.Close() }, nil
		}
		f.Close()
		if err != nil {
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		if taken { // the previous holder has removed the file, so this lock is worthless
			continue
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-p.after(lockRetryDelay):
		}
	}
}

// isAtPath reports whether the path still leads to the open file.
func isAtPath(f *os.File, path string) bool {
	open, err := f.Stat()
	if err != nil {
		return false
	}
	named, err := os.Stat(path)
	return err == nil && os.SameFile(open, named)
}
