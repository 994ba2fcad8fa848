package clients

import (
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"
)

// interruptible prepares a command for Ctrl-C, which a terminal sends to all
// processes of a group. Call it before the command is started, and the result
// while it runs.
func interruptible(t *testing.T, cmd *exec.Cmd) func() {
	t.Helper()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	// What runs tests in the background may have them ignore the signal, which
	// a child inherits. One that is caught is the default again in a child.
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, os.Interrupt)
	t.Cleanup(func() { signal.Stop(caught) })
	return func() {
		if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGINT); err != nil {
			t.Error(err)
		}
	}
}
