package dynamotest

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

// install puts the pinned version of the Node package in place, unless it is
// there. Test binaries of several packages run at once, so it holds a lock.
func install(ctx context.Context, dir string) error {
	if installed(dir) == nil {
		return nil
	}
	npm, err := exec.LookPath("npm")
	if err != nil {
		return fmt.Errorf("%w, and npm is not in PATH", installed(dir))
	}
	// Not inside node_modules, which npm ci removes.
	name := fmt.Sprintf("dynamotest-%x.lock", sha256.Sum256([]byte(dir)))
	unlock, err := filelock.Lock(filepath.Join(os.TempDir(), name))
	if err != nil {
		return err
	}
	defer unlock()
	if installed(dir) == nil {
		return nil // by whom we waited for
	}
	cmd := exec.CommandContext(ctx, npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("npm ci: %w: %.400s", err, strings.TrimSpace(string(out)))
	}
	return installed(dir)
}

// installed says what is wrong with the Node package's installation.
func installed(dir string) error {
	var wanted struct{ Dependencies map[string]string }
	var present struct{ Version string }
	modules := filepath.Join(dir, "node_modules")
	// npm writes the hidden lock file last: without it an installation was
	// cut short.
	_, unfinished := os.Stat(filepath.Join(modules, ".package-lock.json"))
	if unfinished != nil {
		return errors.New("node_modules is missing or incomplete")
	}
	err := errors.Join(
		readJSON(filepath.Join(dir, "package.json"), &wanted),
		readJSON(filepath.Join(modules, "dynalite", "package.json"), &present),
	)
	if err == nil && present.Version != wanted.Dependencies["dynalite"] {
		err = fmt.Errorf("node_modules has dynalite %q, not %q", present.Version, wanted.Dependencies["dynalite"])
	}
	return err
}

func readJSON(path string, v any) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, v)
}
