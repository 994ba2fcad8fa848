//go:build unix

package x402test

import (
	"errors"
	"os"
	"syscall"
)

// lock locks a journal for this process until the file is closed. It returns ErrJournalInUse if
// another process has locked the journal.
func lock(f *os.File) error {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return ErrJournalInUse
	}
	return err
}
