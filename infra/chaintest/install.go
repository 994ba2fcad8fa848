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

// install puts the pinned packages in place, unless they are there, and returns
// their folder and the node's binary.
func install(ctx context.Context) (dir, anvil string, err error) {
	root, err := built.Root()
	if err != nil {
		return "", "", err
	}
	dir = filepath.Join(root, "infra", "chaintest", "testdata", "node")
	if err := built.NodePackages(ctx, dir); err != nil {
		return "", "", err
	}
	anvil = filepath.Join(dir, "node_modules", filepath.FromSlash(anvilPackage), "bin", "anvil")
	if _, err = os.Stat(anvil); err == nil {
		return dir, anvil, nil
	}
	if anvil, err = exec.LookPath("anvil"); err != nil {
		return "", "", errors.New("npm has no anvil for this platform, and there is none in PATH")
	}
	return dir, anvil, nil
}
