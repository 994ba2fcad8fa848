package gameday

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
)

// network gives every address of IPv4 to this machine.
const network = `link set lo up
route add local 0.0.0.0/0 dev lo table local
`

// isolated runs this test binary with the same arguments in namespaces of its
// own. An error says that this machine cannot.
func isolated() (int, error) {
	if _, err := exec.LookPath("ip"); err != nil {
		return 0, errors.New("the ip command (iproute2) is not installed")
	}
	if out, err := namespaced("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
		return 0, fmt.Errorf("this machine does not permit network namespaces: %w %s", err, out)
	}
	cmd := namespaced(os.Args[0], os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		return 0, err
	}
	return cmd.ProcessState.ExitCode(), nil
}

// namespaced is a command that is root in a network of its own. The kernel
// ends it when the thread that started it ends.
func namespaced(name string, args ...string) *exec.Cmd {
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

// joinUp sets the namespace's network up.
func joinUp() error {
	ip := exec.Command("ip", "-batch", "-")
	ip.Stdin = strings.NewReader(network)
	if out, err := ip.CombinedOutput(); err != nil {
		return fmt.Errorf("ip: %w: %s", err, out)
	}
	return nil
}
