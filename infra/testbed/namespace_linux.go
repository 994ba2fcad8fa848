package testbed

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
)

// runIsolated runs this test binary again, with the same arguments and with additional
// environment variables, in new namespaces. There the test binary is root and has a separate
// network. runIsolated returns the exit code, or an error if this machine does not allow
// namespaces. It runs in TestMain.
func runIsolated(variables ...string) (code int, err error) {
	if _, err := exec.LookPath("ip"); err != nil {
		return 0, errors.New("the ip command (iproute2) is not installed")
	}
	// First try to set up the network of a new namespace. If that fails, the machine does not
	// allow namespaces.
	if out, err := Namespaced("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
		return 0, fmt.Errorf("this machine does not permit network namespaces: %w %s", err, out)
	}
	cmd := Namespaced(os.Args[0], os.Args[1:]...)
	cmd.Env = append(os.Environ(), variables...)
	cmd.Stdin = os.Stdin
	cmd.Stdout = os.Stdout
	cmd.Stderr = os.Stderr
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		return 0, err
	}
	return cmd.ProcessState.ExitCode(), nil
}

// Namespaced returns a command that runs as root in a new network namespace. When the thread
// that started the command ends, the kernel kills the command.
func Namespaced(name string, args ...string) *exec.Cmd {
	runtime.LockOSThread() // keeps this goroutine on its thread, so that the thread does not end before the command
	cmd := exec.Command(name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		Pdeathsig:   syscall.SIGKILL,
	}
	return cmd
}

// IP runs ip with a batch of commands, one on each line, in the network of the calling thread.
func IP(batch string) error {
	ip := exec.Command("ip", "-batch", "-")
	ip.Stdin = strings.NewReader(batch)
	if out, err := ip.CombinedOutput(); err != nil {
		return fmt.Errorf("ip: %w: %s", err, bytes.TrimSpace(out))
	}
	return nil
}
