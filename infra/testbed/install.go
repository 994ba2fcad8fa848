package testbed

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/hostfacts/hostfacts/infra/testbed/programs"
)

// Install calls the function install, which installs packages into the folder dir. The file at
// listPath names the packages. After a success, Install copies that file to copyPath. If both
// files are already equal, Install does nothing.
func Install(dir, listPath, copyPath string, install func() error) error {
	// The lock is not in dir, because an installation may remove the files in dir.
	name := fmt.Sprintf("installed-%x.lock", sha256.Sum256([]byte(dir)))
	unlock, err := lock(filepath.Join(os.TempDir(), name))
	if err != nil {
		return err
	}
	defer unlock()
	want, err := os.ReadFile(listPath)
	have, missing := os.ReadFile(copyPath)
	if err != nil || missing == nil && bytes.Equal(want, have) {
		return err
	}
	if err := install(); err != nil {
		return err
	}
	return os.WriteFile(copyPath, want, 0o600)
}

// lock waits until this process alone holds the lock on the file. The kernel releases the lock
// when the process ends.
func lock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for err = syscall.EINTR; errors.Is(err, syscall.EINTR); {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() { _ = f.Close() }, nil
}

// Find returns the path of the first of the named programs that exists in PATH. It skips the
// test if none exists.
func Find(tb testing.TB, what string, names ...string) string {
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	tb.Skipf("needs %s: %s is not in PATH", what, names[0])
	return ""
}

// Command returns a command that is killed after Patience, or when the test ends. The command
// reaches servers on 127.0.0.1 without a proxy.
func Command(tb testing.TB, name string, args ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(tb.Context(), Patience)
	tb.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "NO_PROXY=127.0.0.1", "no_proxy=127.0.0.1")
	return cmd
}

// Node installs the npm packages in the lock file of a folder, and returns the path of Node. It
// skips the test if Node is missing or the packages cannot be installed.
func Node(tb testing.TB, dir string) string {
	node := Find(tb, "Node", "node")
	if err := installPackages(tb.Context(), dir); err != nil {
		tb.Skipf("needs npm packages in %s: %v", dir, err)
	}
	return node
}

// installPackages installs the npm packages in the lock file of a folder. It returns an error
// in the namespaces of Isolate, where there is no network and the user is root.
func installPackages(ctx context.Context, dir string) error {
	return Install(dir, filepath.Join(dir, "package-lock.json"), filepath.Join(dir, "node_modules", ".installed-lock"), func() error {
		if os.Getenv(isolatedVar) != "" {
			return errors.New("they could not be installed before the tests began: run make node-packages")
		}
		return programs.Succeed(exec.CommandContext(ctx, "npm", "ci", "--no-audit", "--no-fund"), dir) // like make node-packages
	})
}

// Wheels returns a folder with the wheels of the packages in a requirements file. pip can
// install the packages from this folder without PyPI. The folder is in the virtual environment
// that the function Python makes for the same file. Wheels skips the test if the packages cannot
// be downloaded.
func Wheels(tb testing.TB, requirements string) string {
	python := Python(tb, requirements)
	wheels := filepath.Join(filepath.Dir(filepath.Dir(python)), "wheels")
	err := Install(wheels, requirements, filepath.Join(wheels, "downloaded"), func() error {
		const script = `rm -rf "$0" && "$1" -m pip download --quiet --disable-pip-version-check --only-binary=:all: -r "$2" -d "$0"`
		return programs.Succeed(exec.CommandContext(tb.Context(), "sh", "-c", script, wheels, python, requirements), "")
	})
	if err != nil {
		tb.Skipf("needs packages of PyPI: %v", err)
	}
	return wheels
}

// Python returns the interpreter of a virtual environment that has the packages in a
// requirements file. If that file has hashes, pip compares each package with its hash. The
// environment is kept beside the file, in a folder whose name contains a hash of the file's
// content. Python skips the test if the environment cannot be made.
func Python(tb testing.TB, requirements string) (interpreter string) {
	system := Find(tb, "Python", "python3")
	sum := sha256.Sum256(append(Must(os.ReadFile(requirements)), system...))
	parent := filepath.Dir(Must(filepath.Abs(requirements)))
	environment := filepath.Join(parent, ".venv-"+hex.EncodeToString(sum[:6]))
	err := Install(environment, requirements, filepath.Join(environment, "installed"), func() error {
		// An incomplete installation is removed. The only time limit is the test's deadline,
		// because a long list takes long on a busy machine.
		const script = `rm -rf "$0" && "$1" -m venv "$0" &&
			"$0/bin/python" -m pip install --quiet --disable-pip-version-check --only-binary=:all: -r "$2"`
		return programs.Succeed(exec.CommandContext(tb.Context(), "sh", "-c", script, environment, system, requirements), "")
	})
	if err != nil {
		tb.Skipf("needs a virtual environment (Debian: python3-venv) with packages of PyPI: %v", err)
	}
	return filepath.Join(environment, "bin", "python")
}
