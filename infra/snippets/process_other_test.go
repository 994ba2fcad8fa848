//go:build !linux

package snippets

import (
	"os/exec"
	"syscall"
	"testing"
)

// dieWithUs does nothing where the kernel cannot tie one process to another.
func dieWithUs() *syscall.SysProcAttr { return nil }

func interruptible(t *testing.T, _ *exec.Cmd) func() {
	t.Skip("sends a signal to a group of processes, as Linux has them")
	return nil
}
