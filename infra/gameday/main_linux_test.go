package gameday

import (
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/hostfacts/hostfacts/infra/built"
	"github.com/hostfacts/hostfacts/infra/testbed"
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
		built.Functions(ctx, root, filepath.Join(dir, "functions")),
		built.Command(ctx, root, "./infra/local/operate", filepath.Join(dir, "operate")),
		built.Command(ctx, root, "./infra", filepath.Join(dir, "cdk")),
	)
}

func builtIn(name string) string { return filepath.Join(testbed.Built(), name) }
