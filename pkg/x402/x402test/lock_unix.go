//go:build unix

package x402test

import (
	"os"
	"syscall"
)

// lock locks a file for this process until the file is closed. It fails if another process has
// locked the file.
func lock(f *os.File) error {
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}
