//go:build !unix

package launch

import "os/exec"

func apart(*exec.Cmd) {}

// kill kills the command. Processes that the command has started continue, because this system
// has no process groups.
func kill(cmd *exec.Cmd) { _ = cmd.Process.Kill() } // an error means that the command has ended already
