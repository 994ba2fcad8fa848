//go:build !unix

package launch

import "os/exec"

func setProcessGroup(*exec.Cmd) {}

// killGroup kills only the command itself. Processes that the command has started continue,
// because this system has no process groups.
func killGroup(cmd *exec.Cmd) { _ = cmd.Process.Kill() } // an error means that the command has ended already
