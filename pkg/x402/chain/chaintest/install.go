package chaintest

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/hostfacts/hostfacts/pkg/filelock"
)

// anvilPackage holds the node's binary. It is for one platform and npm leaves
// it out on others, so there an anvil in PATH is taken.
const anvilPackage = "@foundry-rs/anvil-linux-amd64"

// install puts the pinned packages in place, unless they are there, and returns
// the node's binary. Test binaries of several packages run at once, so it holds
// a lock.
func install(ctx context.Context, dir string) (anvil string, err error) {
	if anvil, err = installed(dir); err == nil {
		return anvil, nil
	}
	npm, noNPM := exec.LookPath("npm")
	if noNPM != nil {
		return "", fmt.Errorf("%w, and npm is not in PATH", err)
	}
	// Not inside node_modules, which npm ci removes.
	name := fmt.Sprintf("chaintest-%x.lock", sha256.Sum256([]byte(dir)))
	unlock, err := filelock.Lock(filepath.Join(os.TempDir(), name))
	if err != nil {
		return "", err
	}
	defer unlock()
	if anvil, err = installed(dir); err == nil {
		return anvil, nil // by whom we waited for
	}
	cmd := exec.CommandContext(ctx, npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("npm ci: %w: %.400s", err, strings.TrimSpace(string(out)))
	}
	return installed(dir)
}

// installed returns the node's binary, or says what is wrong with the packages.
func installed(dir string) (string, error) {
	var wanted struct{ OptionalDependencies map[string]string }
	var present struct{ Version string }
	modules := filepath.Join(dir, "node_modules")
	// npm writes the hidden lock file last: without it an installation was
	// cut short.
	if _, err := os.Stat(filepath.Join(modules, ".package-lock.json")); err != nil {
		return "", errors.New("node_modules is missing or incomplete")
	}
	at := filepath.Join(modules, filepath.FromSlash(anvilPackage))
	if _, err := os.Stat(at); err != nil {
		anvil, err := exec.LookPath("anvil")
		if err != nil {
			return "", errors.New("npm has no anvil for this platform, and there is none in PATH")
		}
		return anvil, nil
	}
	err := errors.Join(
		readJSON(filepath.Join(dir, "package.json"), &wanted),
		readJSON(filepath.Join(at, "package.json"), &present),
	)
	if want := wanted.OptionalDependencies[anvilPackage]; err == nil && present.Version != want {
		err = fmt.Errorf("node_modules has %s %q, not %q", anvilPackage, present.Version, want)
	}
	return filepath.Join(at, "bin", "anvil"), err
}

func readJSON(path string, v any) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, v)
}
