package gameday

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/hostfacts/hostfacts/infra/built"
	"github.com/hostfacts/hostfacts/infra/testbed"
)

// root is the module, seen from this package.
const root = "../.."

// builtVar tells the copy in the namespace where everything is that was built.
const builtVar = "HOSTFACTS_GAMEDAY_BUILT"

// noNamespace says why this machine cannot play the scenarios. Only TestMain
// writes it.
var noNamespace string

func TestMain(m *testing.M) {
	if os.Getenv(builtVar) != "" {
		testbed.Parallel(8)
		os.Exit(m.Run())
	}
	os.Exit(outside(m))
}

// outside builds what needs the network where modules are missing, and runs
// the tests in a namespace, or without one where there can be none.
func outside(m *testing.M) int {
	dir, err := os.MkdirTemp("", "hostfacts-gameday-")
	if err == nil {
		defer os.RemoveAll(dir)
		err = build(context.Background(), dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code, err := testbed.Isolated(builtVar + "=" + dir)
	if err != nil {
		noNamespace = err.Error()
		if err := os.Setenv(builtVar, dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return m.Run()
	}
	return code
}

// build makes the functions, the command of make owed, and the CDK app, below a
// folder.
func build(ctx context.Context, dir string) error {
	return errors.Join(
		built.Functions(ctx, root, functionsDir(dir)),
		built.Command(ctx, root, "./infra/local/operate", operateCommand(dir)),
		built.Command(ctx, root, "./infra", cdkApp(dir)),
	)
}

func functionsDir(dir string) string   { return filepath.Join(dir, "functions") }
func operateCommand(dir string) string { return filepath.Join(dir, "operate") }
func cdkApp(dir string) string         { return filepath.Join(dir, "cdk") }

// builtIn is where everything is that was built.
func builtIn() string { return os.Getenv(builtVar) }
