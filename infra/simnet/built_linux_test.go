package simnet

import (
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"

	"github.com/hostfacts/hostfacts/infra/built"
)

// buildPeers builds what the tests run beside the local runner, into the
// runner's folder: the functions as make build builds them, and the openrdap
// command at the version in go.mod. It needs the network where modules are
// missing, so it runs outside the namespace.
func buildPeers(ctx context.Context, root, dir string) error {
	if bench := flag.Lookup("test.bench"); *shell || bench != nil && bench.Value.String() != "" {
		return nil // neither needs them
	}
	return errors.Join(
		built.Functions(ctx, root, filepath.Join(dir, "functions")),
		built.Command(ctx, root, "github.com/openrdap/rdap/cmd/rdap", filepath.Join(dir, "rdap")),
	)
}

// builtFunctions holds <slug>/bootstrap.
func builtFunctions() string { return filepath.Join(filepath.Dir(os.Getenv(runnerVar)), "functions") }

// builtRDAP is the openrdap command.
func builtRDAP() string { return filepath.Join(filepath.Dir(os.Getenv(runnerVar)), "rdap") }
