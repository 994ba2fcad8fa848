package testbed

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// anvilPackage holds the node's binary. It is for one platform and npm leaves
// it out on others, so there an anvil in PATH is taken.
const anvilPackage = "@foundry-rs/anvil-linux-amd64"

// peerFolder is where one of the programs is installed that tests talk to.
func peerFolder(tb testing.TB, name string) string {
	tb.Helper()
	return filepath.Join(Root(tb), "infra", "testbed", "testdata", name)
}

// installChain puts the pinned packages in place, unless they are there, and returns
// the node's binary.
func installChain(ctx context.Context, dir string) (anvil string, err error) {
	if err := NodePackages(ctx, dir); err != nil {
		return "", err
	}
	anvil = filepath.Join(dir, "node_modules", filepath.FromSlash(anvilPackage), "bin", "anvil")
	if _, err = os.Stat(anvil); err == nil {
		return anvil, nil
	}
	if anvil, err = exec.LookPath("anvil"); err != nil {
		return "", errors.New("npm has no anvil for this platform, and there is none in PATH")
	}
	return anvil, nil
}
