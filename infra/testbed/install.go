package testbed

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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

// nodePackages puts the npm packages in place that the package-lock.json of a folder
// pins, unless they are there. Their install scripts run, as by make node-packages:
// some fetch the program that the package is for. An optional one that is for
// another platform stays away.
func nodePackages(ctx context.Context, dir string) error {
	missing := func() error { return missingPackages(dir) }
	return Install(dir, missing, func() error {
		npm, err := exec.LookPath("npm")
		if err != nil {
			return fmt.Errorf("%w, and npm is not in PATH", missing())
		}
		return succeed(exec.CommandContext(ctx, npm, "ci", "--no-audit", "--no-fund"), dir)
	})
}

// missingPackages says what is wrong with the npm packages of a folder. npm writes the
// hidden lock file last: without it an installation was cut short.
func missingPackages(dir string) error {
	var wanted, present struct {
		Packages map[string]struct {
			Version  string
			Optional bool
		}
	}
	err := ReadJSON(filepath.Join(dir, "package-lock.json"), &wanted)
	if err := errors.Join(err, ReadJSON(filepath.Join(dir, "node_modules", ".package-lock.json"), &present)); err != nil {
		return err
	}
	delete(wanted.Packages, "") // the folder itself
	for path, want := range wanted.Packages {
		if have, there := present.Packages[path]; have.Version != want.Version && (there || !want.Optional) {
			return fmt.Errorf("%s has version %q, not %q", path, have.Version, want.Version)
		}
	}
	return nil
}
