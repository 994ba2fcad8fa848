package chaintest

import (
	"os/exec"
	"syscall"
)

// dieWithParent has the kernel end the node when the test process ends without
// its cleanups, as it does on a time-out.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
