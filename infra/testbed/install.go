package testbed

import (
	"bytes"
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

// current is an error unless a list is what was installed, of which stamp is a copy.
func current(list, stamp string) error {
	want, err := os.ReadFile(list)
	have, missing := os.ReadFile(stamp)
	if err == nil && missing == nil && !bytes.Equal(want, have) {
		missing = errors.New(list + " has changed since it was installed")
	}
	return errors.Join(err, missing)
}

// copied makes the stamp.
func copied(list, stamp string) error {
	text, err := os.ReadFile(list)
	if err != nil {
		return err
	}
	return os.WriteFile(stamp, text, 0o600)
}

// nodePackages puts the npm packages in place that the package-lock.json of a folder
// pins, as make node-packages does, unless they are there.
func nodePackages(ctx context.Context, dir string) error {
	list, stamp := filepath.Join(dir, "package-lock.json"), filepath.Join(dir, "node_modules", ".installed-lock")
	return Install(dir, func() error { return current(list, stamp) }, func() error {
		npm, err := exec.LookPath("npm")
		if err != nil {
			return err
		}
		if err := succeed(exec.CommandContext(ctx, npm, "ci", "--no-audit", "--no-fund"), dir); err != nil {
			return err
		}
		return copied(list, stamp)
	})
}
