package simnet

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"testing"

	"github.com/hostfacts/hostfacts/infra/built"

	// The cache of go test sees what a test imports, not what it builds: this
	// is what the runner is made of.
	_ "github.com/hostfacts/hostfacts/pkg/operations"
)

// runnerVar tells the copy in the namespace where the built runner is.
const runnerVar = "HOSTFACTS_SIMNET_RUNNER"

// noNamespace says why this machine cannot run the tests. Only TestMain
// writes it.
var noNamespace string

func TestMain(m *testing.M) {
	if slices.Contains(os.Args, "-shell") { // somebody has typed RTT
		flag.Usage = func() { fmt.Fprintln(os.Stderr, "RTT is a duration, such as 50ms") }
	}
	flag.Parse()
	if *rtt > 0 && !*shell {
		runOnly("^TestDelay$") // the tables have no delay
	}
	if os.Getenv(runnerVar) != "" {
		// Most cases wait for something and compute little.
		if f := flag.Lookup("test.parallel"); f != nil && f.Value.String() == f.DefValue {
			_ = f.Value.Set("48")
		}
		os.Exit(m.Run())
	}
	code, err := again()
	if err != nil {
		noNamespace = err.Error()
		code = m.Run()
	}
	os.Exit(code)
}

// runOnly runs no other tests, if nobody has said which to run.
func runOnly(tests string) {
	if f := flag.Lookup("test.run"); f != nil && f.Value.String() == "" {
		_ = f.Value.Set(tests)
	}
}

// again runs this test binary with the same arguments in namespaces of its
// own. An error says that this machine cannot.
func again() (code int, err error) {
	if _, err := exec.LookPath("ip"); err != nil {
		return 0, errors.New("the ip command (iproute2) is not installed")
	}
	if err := probe(); err != nil {
		return 0, fmt.Errorf("this machine does not permit network namespaces: %w", err)
	}
	dir, err := os.MkdirTemp("", "hostfacts-simnet-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	runner := filepath.Join(dir, "local")
	ctx, root := context.Background(), filepath.Join("..", "..")
	if err := errors.Join(built.Command(ctx, root, "./infra/local", runner), buildPeers(ctx, root, dir)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1, nil
	}
	cmd := namespaced(os.Args[0], os.Args[1:]...)
	cmd.Env = append(os.Environ(), runnerVar+"="+runner)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		return 0, err
	}
	return cmd.ProcessState.ExitCode(), nil
}

// probe does in a namespace what setting the network up begins with.
func probe() error {
	cmd := namespaced("ip", "link", "set", "lo", "up")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w %s", err, out)
	}
	return nil
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
