package simnet

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/hostfacts/hostfacts/infra/built"
	"github.com/hostfacts/hostfacts/infra/testbed"
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
		testbed.Parallel(48)
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

// again builds what the tests run, and runs this test binary with the same
// arguments in namespaces of its own. An error says that this machine cannot.
func again() (code int, err error) {
	dir, err := os.MkdirTemp("", "hostfacts-simnet-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	runner := filepath.Join(dir, "local")
	ctx, root := context.Background(), filepath.Join("..", "..")
	if err := errors.Join(built.Command(ctx, root, testbed.LocalRunner, runner), buildPeers(ctx, root, dir)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1, nil
	}
	return testbed.Isolated(runnerVar + "=" + runner)
}
