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
	"sync"
	"testing"
)

// installing is held by the test that makes a virtual environment; the others wait
// for it and do not make their own.
var installing sync.Mutex

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
	if err := NodePackages(tb.Context(), dir); err != nil {
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
	installing.Lock()
	defer installing.Unlock()
	if !whole(kept) {
		makeVenv(tb, system, requirements, kept)
	}
	return filepath.Join(kept, "bin", "python")
}

// whole says that an environment was not cut short.
func whole(venv string) bool {
	_, err := os.Stat(filepath.Join(venv, "installed"))
	return err == nil
}

// makeVenv makes an environment and gives it its lasting name when it is
// complete, unless another run was faster. It is used through its interpreter,
// which does not mind the move.
func makeVenv(tb testing.TB, python, requirements, kept string) {
	tb.Helper()
	fresh, err := os.MkdirTemp(".", ".venv-making-")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(fresh) })
	// No deadline but the test's: a busy machine takes long for a long list.
	if out, err := exec.CommandContext(tb.Context(), python, "-m", "venv", fresh).CombinedOutput(); err != nil {
		tb.Skipf("needs a virtual environment (Debian: python3-venv): %v: %.400s", err, out)
	}
	pip := exec.CommandContext(tb.Context(), filepath.Join(fresh, "bin", "python"), "-m", "pip", "install",
		"--quiet", "--disable-pip-version-check", "--only-binary=:all:", "-r", requirements)
	if out, err := pip.CombinedOutput(); err != nil {
		tb.Skipf("needs PyPI packages, and pip fails: %v: %.800s", err, out)
	}
	if err := os.WriteFile(filepath.Join(fresh, "installed"), nil, 0o600); err != nil {
		tb.Fatal(err)
	}
	if err := os.Rename(fresh, kept); err != nil && !whole(kept) {
		tb.Fatal(err)
	}
}
