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

// Install calls put to install what a list names, unless stamp is a copy of the list.
func Install(dir, list, stamp string, put func() error) error {
	// The lock is not in dir: an installation may remove what is there.
	name := fmt.Sprintf("installed-%x.lock", sha256.Sum256([]byte(dir)))
	unlock, err := lock(filepath.Join(os.TempDir(), name))
	if err != nil {
		return err
	}
	defer unlock()
	want, err := os.ReadFile(list)
	have, missing := os.ReadFile(stamp)
	if err != nil || missing == nil && bytes.Equal(want, have) {
		return err
	}
	if err := put(); err != nil {
		return err
	}
	return os.WriteFile(stamp, want, 0o600)
}

// lock waits until this process alone holds the file; the kernel releases it at its end.
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

// Find is the path of the first of some programs that this machine has. The
// test is skipped by name where there is none.
func Find(tb testing.TB, what string, names ...string) string {
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
	ctx, cancel := context.WithTimeout(tb.Context(), Patience)
	tb.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "NO_PROXY=127.0.0.1", "no_proxy=127.0.0.1")
	return cmd
}

// Node is the path of Node, with the packages of a folder installed as its lock
// file says. The test is skipped where that cannot be had.
func Node(tb testing.TB, dir string) string {
	node := Find(tb, "Node", "node")
	if err := installPackages(tb.Context(), dir); err != nil {
		tb.Skipf("needs npm packages in %s: %v", dir, err)
	}
	return node
}

// installPackages installs the packages of a folder as its lock file says. In the namespaces of
// Isolate this is impossible, because there is no network and the user is another one.
func installPackages(ctx context.Context, dir string) error {
	return Install(dir, filepath.Join(dir, "package-lock.json"), filepath.Join(dir, "node_modules", ".installed-lock"), func() error {
		if os.Getenv(isolatedVar) != "" {
			return errors.New("they could not be installed before the tests began: run make node-packages")
		}
		return programs.Succeed(exec.CommandContext(ctx, "npm", "ci", "--no-audit", "--no-fund"), dir) // as make node-packages does
	})
}

// Wheels is a folder with the files of a list for Python, from which pip can install them
// without PyPI. It is kept as the virtual environment of the list is.
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

// Python is the interpreter of a virtual environment with the packages of a list.
// pip holds every file to the hashes of the list, if it has any. The environment is
// kept beside the list, under its hash. The test is skipped where it
// cannot be had.
func Python(tb testing.TB, requirements string) (interpreter string) {
	system := Find(tb, "Python", "python3")
	sum := sha256.Sum256(append(Must(os.ReadFile(requirements)), system...))
	beside := filepath.Dir(Must(filepath.Abs(requirements)))
	kept := filepath.Join(beside, ".venv-"+hex.EncodeToString(sum[:6]))
	err := Install(kept, requirements, filepath.Join(kept, "installed"), func() error {
		// An incomplete installation is removed. Only the test's deadline applies, because a
		// busy machine takes long for a long list.
		const script = `rm -rf "$0" && "$1" -m venv "$0" &&
			"$0/bin/python" -m pip install --quiet --disable-pip-version-check --only-binary=:all: -r "$2"`
		return programs.Succeed(exec.CommandContext(tb.Context(), "sh", "-c", script, kept, system, requirements), "")
	})
	if err != nil {
		tb.Skipf("needs a virtual environment (Debian: python3-venv) with packages of PyPI: %v", err)
	}
	return filepath.Join(kept, "bin", "python")
}
