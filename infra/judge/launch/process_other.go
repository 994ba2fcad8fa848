//go:build !unix

package launch

import "os/exec"

func apart(*exec.Cmd) {}

// kill ends the command; what it has started goes on where the system has no groups.
func kill(cmd *exec.Cmd) { _ = cmd.Process.Kill() } // it may be gone
