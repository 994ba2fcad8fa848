package simnet

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// buildPeers builds what the tests run beside the local runner, into the
// runner's folder: the functions as make build builds them, and the openrdap
// command at the version in go.mod. It needs the network where modules are
// missing, so it runs outside the namespace.
func buildPeers(dir string) error {
	if bench := flag.Lookup("test.bench"); *shell || bench != nil && bench.Value.String() != "" {
		return nil // neither needs them
	}
	binaries := filepath.Join(dir, "built")
	build := exec.Command("go", "build", "-buildvcs=false", "-trimpath", "-tags=lambda.norpc", "-ldflags=-s -w", "-o", binaries+string(filepath.Separator),
		"./functions/...", "github.com/openrdap/rdap/cmd/rdap")
	build.Dir = filepath.Join("..", "..")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("go build ./functions/... and the rdap command: %w\n%s", err, out)
	}
	slugs, err := os.ReadDir(filepath.Join("..", "..", "functions"))
	if err != nil {
		return err
	}
	for _, s := range slugs {
		to := filepath.Join(dir, "functions", s.Name())
		if err := os.MkdirAll(to, 0o700); err != nil {
			return err
		}
		if err := os.Rename(filepath.Join(binaries, s.Name()), filepath.Join(to, "bootstrap")); err != nil {
			return err
		}
	}
	return nil
}

// builtFunctions holds <slug>/bootstrap.
func builtFunctions() string { return filepath.Join(filepath.Dir(os.Getenv(runnerVar)), "functions") }

// builtRDAP is the openrdap command.
func builtRDAP() string { return filepath.Join(filepath.Dir(os.Getenv(runnerVar)), "built", "rdap") }
