//go:build unix

package x402test

import (
	"os"
	"syscall"
)

// lock takes a file for this process until it is closed, and fails where another
// process has it.
func lock(f *os.File) error {
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}
