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

// isolated runs this test binary with the same arguments, and some variables of its environment,
// in new namespaces, where it is root of a network. It returns an error if this machine does not
// allow that. TestMain calls it.
func isolated(variables ...string) (code int, err error) {
	if _, err := exec.LookPath("ip"); err != nil {
		return 0, errors.New("the ip command (iproute2) is not installed")
	}
	// The commands that set the network up.
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

// Namespaced prepares a command that is root in a new network. The kernel kills it when the
// thread that started it ends.
func Namespaced(name string, args ...string) *exec.Cmd {
	runtime.LockOSThread() // of TestMain, which waits for it
	cmd := exec.Command(name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		Pdeathsig:   syscall.SIGKILL,
	}
	return cmd
}

// IP runs commands of ip in the network of the calling thread, one a line.
func IP(batch string) error {
	ip := exec.Command("ip", "-batch", "-")
	ip.Stdin = strings.NewReader(batch)
	if out, err := ip.CombinedOutput(); err != nil {
		return fmt.Errorf("ip: %w: %s", err, bytes.TrimSpace(out))
	}
	return nil
}
