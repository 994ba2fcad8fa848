//go:build unix

package purse

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// tryLock tries to lock an open file, and reports whether it succeeded. It does not wait if
// another process holds the lock.
func tryLock(f *os.File) (bool, error) {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, unix.EINTR) {
		return false, nil
	}
	return err == nil, err
}

// syncFolder makes sure that the names of the files in a folder are on the disk.
func syncFolder(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}
