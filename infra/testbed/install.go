package testbed

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Install has install put something into the folder dir, unless missing, which
// says what is wrong with what is there, finds nothing wrong.
func Install(dir string, missing, install func() error) error {
	if missing() == nil {
		return nil
	}
	// The lock is not in dir: an installation may remove what is there.
	unlock, err := lock(filepath.Join(os.TempDir(), fmt.Sprintf("installed-%x.lock", sha256.Sum256([]byte(dir)))))
	if err != nil {
		return err
	}
	defer unlock()
	if missing() == nil {
		return nil // it was installed by the one that this one waited for
	}
	if err := install(); err != nil {
		return err
	}
	return missing()
}

// NodePackages puts the npm packages in place that the package.json of a folder
// pins, unless they are there. Their install scripts run, as by make node-packages:
// some fetch the program that the package is for. An optional one that is for
// another platform stays away.
func NodePackages(ctx context.Context, dir string) error {
	missing := func() error { return missingPackages(dir) }
	return Install(dir, missing, func() error {
		npm, err := exec.LookPath("npm")
		if err != nil {
			return fmt.Errorf("%w, and npm is not in PATH", missing())
		}
		cmd := exec.CommandContext(ctx, npm, "ci", "--no-audit", "--no-fund")
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("npm ci: %w: %.400s", err, strings.TrimSpace(string(out)))
		}
		return nil
	})
}

// missingPackages says what is wrong with the npm packages of a folder.
func missingPackages(dir string) error {
	var wanted struct{ Dependencies, OptionalDependencies map[string]string }
	modules := filepath.Join(dir, "node_modules")
	// npm writes the hidden lock file last: without it an installation was cut short.
	if _, err := os.Stat(filepath.Join(modules, ".package-lock.json")); err != nil {
		return errors.New("node_modules is missing or incomplete")
	}
	if err := ReadJSON(filepath.Join(dir, "package.json"), &wanted); err != nil {
		return err
	}
	for name, version := range wanted.Dependencies {
		if err := checkPackage(modules, name, version); err != nil {
			return err
		}
	}
	for name, version := range wanted.OptionalDependencies {
		if err := checkPackage(modules, name, version); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

func checkPackage(modules, name, version string) error {
	var present struct{ Version string }
	err := ReadJSON(filepath.Join(modules, filepath.FromSlash(name), "package.json"), &present)
	if err == nil && present.Version != version {
		err = fmt.Errorf("node_modules has %s %q, not %q", name, present.Version, version)
	}
	return err
}
