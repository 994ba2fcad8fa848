//go:build unix

package launch

import (
	"os/exec"
	"syscall"
)

// setProcessGroup puts a command, and every process that the command starts, into a new
// process group.
func setProcessGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// killGroup sends SIGKILL to the command's process group.
func killGroup(cmd *exec.Cmd) { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) } // an error means that all processes of the group have ended already
