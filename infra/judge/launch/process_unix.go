//go:build unix

package launch

import (
	"os/exec"
	"syscall"
)

// apart has a command and all that it starts be a group.
func apart(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// kill is kill -9 for the whole group.
func kill(cmd *exec.Cmd) { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) } // it may be gone
