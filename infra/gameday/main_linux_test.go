package gameday

import (
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/hostfacts/hostfacts/infra/testbed"
	_ "github.com/hostfacts/hostfacts/pkg/operations" // what the programs are made of: the cache of go test sees imports only
)

// root is the module, seen from this package.
const root = "../.."

func TestMain(m *testing.M) {
	flag.Parse()
	if testing.Short() {
		os.Exit(m.Run()) // what judges alarms needs nothing that is built
	}
	os.Exit(testbed.Isolate(m, 8, build))
}

// build makes the functions, the command of make owed, and the CDK app.
func build(ctx context.Context, dir string) error {
	return errors.Join(
		testbed.BuildFunctions(ctx, root, filepath.Join(dir, "functions")),
		testbed.BuildCommand(ctx, root, "./infra/local/operate", filepath.Join(dir, "operate")),
		testbed.BuildCommand(ctx, root, "./infra", filepath.Join(dir, "cdk")),
	)
}

func builtIn(name string) string { return filepath.Join(testbed.Built(), name) }
