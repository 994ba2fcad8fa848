package purse

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// take locks an open file and reports whether it did. It does not wait if another process
// holds the lock.
func take(f *os.File) (bool, error) {
	err := windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, &windows.Overlapped{})
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return false, nil
	}
	return err == nil, err
}

// syncFolder does nothing, because Windows cannot open a folder for writing, as a flush
// requires.
func syncFolder(string) error { return nil }
