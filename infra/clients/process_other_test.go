//go:build !linux

package clients

import (
	"os/exec"
	"testing"
)

func interruptible(t *testing.T, _ *exec.Cmd) func() {
	t.Skip("sends a signal to a group of processes, as Linux has them")
	return nil
}
