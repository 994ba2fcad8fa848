//go:build unix

package purse

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// take locks an open file and reports whether it did. It does not wait if another process
// holds the lock.
func take(f *os.File) (bool, error) {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, unix.EINTR) {
		return false, nil
	}
	return err == nil, err
}

// syncFolder flushes the names in a folder to the disk.
func syncFolder(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}
