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

func TestMain(m *testing.M) {
	if slices.Contains(os.Args, "-shell") { // somebody has typed RTT
		flag.Usage = func() { fmt.Fprintln(os.Stderr, "RTT is a duration, such as 50ms") }
	}
	flag.Parse()
	// The tables have no delay: where there is one, it is TestDelay's.
	if f := flag.Lookup("test.run"); *rtt > 0 && !*shell && f != nil && f.Value.String() == "" {
		_ = f.Value.Set("^TestDelay$")
	}
	os.Exit(testbed.Isolate(m, 48, build))
}

// build makes the local runner, and beside it the functions as make build builds
// them and the openrdap command at the version in go.mod.
func build(ctx context.Context, dir string) error {
	root := filepath.Join("..", "..")
	err := built.Command(ctx, root, testbed.LocalRunner, filepath.Join(dir, "local"))
	if *shell || *runs > 1 {
		return err // neither needs the others
	}
	return errors.Join(err,
		built.Functions(ctx, root, filepath.Join(dir, "functions")),
		built.Command(ctx, root, "github.com/openrdap/rdap/cmd/rdap", filepath.Join(dir, "rdap")),
	)
}

// builtIn is the path of something that was built.
func builtIn(name string) string { return filepath.Join(testbed.Built(), name) }
