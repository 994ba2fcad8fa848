package testbed

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Find is the path of the first of some programs that this machine has. The
// test is skipped by name where there is none.
func Find(tb testing.TB, what string, names ...string) string {
	tb.Helper()
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	tb.Skipf("needs %s: %s is not in PATH", what, names[0])
	return ""
}

// Command prepares a program that is to end, at the latest with the test. None
// of this machine is reached through a proxy.
func Command(tb testing.TB, name string, args ...string) *exec.Cmd {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), Patience)
	tb.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "NO_PROXY=127.0.0.1", "no_proxy=127.0.0.1")
	return cmd
}

// Node is the path of Node, with the packages of a folder installed as its lock
// file says. The test is skipped where that cannot be had.
func Node(tb testing.TB, dir string) string {
	tb.Helper()
	node := Find(tb, "Node", "node")
	if err := nodePackages(tb.Context(), dir); err != nil {
		tb.Skipf("needs npm packages in %s: %v", dir, err)
	}
	return node
}

// PackageVersions are the npm packages that package.json of a folder names, with
// their versions.
func PackageVersions(dir string) (map[string]string, error) {
	var wanted struct{ Dependencies map[string]string }
	err := ReadJSON(filepath.Join(dir, "package.json"), &wanted)
	return wanted.Dependencies, err
}

// ReadJSON decodes a file.
func ReadJSON(path string, v any) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// Python is the interpreter of a virtual environment with the packages of a list.
// pip holds every file to the hashes of the list, if it has any. The environment is
// kept beside the suite, under the hash of that list. The test is skipped where it
// cannot be had.
func Python(tb testing.TB, requirements string) (interpreter string) {
	tb.Helper()
	system := Find(tb, "Python", "python3")
	list, err := os.ReadFile(requirements)
	if err != nil {
		tb.Fatal(err)
	}
	sum := sha256.Sum256(append(list, system...))
	kept, err := filepath.Abs(".venv-" + hex.EncodeToString(sum[:6]))
	if err != nil {
		tb.Fatal(err)
	}
	whole := func() error { _, err := os.Stat(filepath.Join(kept, "installed")); return err }
	err = Install(kept, whole, func() error {
		// What was cut short goes. No deadline but the test's: a busy machine takes long
		// for a long list.
		python := filepath.Join(kept, "bin", "python")
		for _, command := range [][]string{
			{"rm", "-rf", kept}, {system, "-m", "venv", kept},
			{python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary=:all:", "-r", requirements},
		} {
			if err := succeed(exec.CommandContext(tb.Context(), command[0], command[1:]...), ""); err != nil {
				return err
			}
		}
		return os.WriteFile(filepath.Join(kept, "installed"), nil, 0o600)
	})
	if err != nil {
		tb.Skipf("needs a virtual environment (Debian: python3-venv) with packages of PyPI: %v", err)
	}
	return filepath.Join(kept, "bin", "python")
}
