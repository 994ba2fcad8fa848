package chaintest

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/hostfacts/hostfacts/infra/built"
)

// anvilPackage holds the node's binary. It is for one platform and npm leaves
// it out on others, so there an anvil in PATH is taken.
const anvilPackage = "@foundry-rs/anvil-linux-amd64"

// folder is where the node's package is installed.
func folder() (string, error) {
	root, err := built.Root()
	return filepath.Join(root, "infra", "chaintest", "testdata", "node"), err
}

// install puts the pinned packages in place, unless they are there, and returns
// the node's binary.
func install(ctx context.Context, dir string) (anvil string, err error) {
	if err := built.NodePackages(ctx, dir); err != nil {
		return "", err
	}
	at := filepath.Join(dir, "node_modules", filepath.FromSlash(anvilPackage))
	if _, err := os.Stat(at); err == nil {
		return filepath.Join(at, "bin", "anvil"), nil
	}
	if anvil, err = exec.LookPath("anvil"); err != nil {
		return "", errors.New("npm has no anvil for this platform, and there is none in PATH")
	}
	return anvil, nil
}
