package agents

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// command prepares a program that runs in testdata.
func command(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = "testdata"
	cmd.Env = append(os.Environ(), "NO_PROXY=127.0.0.1", "no_proxy=127.0.0.1")
	return cmd
}

// output is what a program prints; what it says beside is shown when it fails.
func output(t *testing.T, cmd *exec.Cmd) []byte {
	t.Helper()
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			t.Fatalf("%s: %v\n%.4000s\n%.4000s", cmd, err, out, exit.Stderr)
		}
		t.Fatalf("%s: %v", cmd, err)
	}
	return out
}

// privateKey is a fresh account's.
func privateKey() string {
	b := make([]byte, 32)
	rand.Read(b) // never fails
	return "0x" + hex.EncodeToString(b)
}

// bin is the path of an installed npm program; node itself is one of them, because
// the conformance suite needs a newer one than many machines have.
func bin(t *testing.T, name string) string {
	t.Helper()
	var wanted struct{ Dependencies map[string]string }
	readJSON(t, "package.json", &wanted)
	for dependency, version := range wanted.Dependencies {
		var present struct{ Version string }
		b, err := os.ReadFile(filepath.Join("node_modules", dependency, "package.json"))
		if err == nil {
			err = json.Unmarshal(b, &present)
		}
		if err != nil || present.Version != version {
			t.Skipf("needs the npm package %s %s: run make node-packages (%v)", dependency, version, err)
		}
	}
	path, err := filepath.Abs(filepath.Join("node_modules", ".bin", name))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func readJSON(t *testing.T, path string, v any) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, v); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// python is the interpreter of a virtual environment with the packages of
// testdata/python/requirements.txt. It is kept under the hash of that list.
func python(t *testing.T) string {
	t.Helper()
	system, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("needs Python: python3 is not in PATH")
	}
	const requirements = "python/requirements.txt"
	list, err := os.ReadFile(filepath.Join("testdata", requirements))
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(append(list, system...))
	kept, err := filepath.Abs(".venv-" + hex.EncodeToString(sum[:6]))
	if err != nil {
		t.Fatal(err)
	}
	interpreter := filepath.Join(kept, "bin", "python")
	if _, err := os.Stat(filepath.Join(kept, "installed")); err == nil {
		return interpreter
	}
	_ = os.RemoveAll(kept) // what an earlier run did not finish
	if out, err := command(t, system, "-m", "venv", kept).CombinedOutput(); err != nil {
		t.Skipf("needs a virtual environment (Debian: python3-venv): %v: %.400s", err, out)
	}
	pip := command(t, interpreter, "-m", "pip", "install",
		"--quiet", "--disable-pip-version-check", "--require-hashes", "--only-binary=:all:", "-r", requirements)
	if out, err := pip.CombinedOutput(); err != nil {
		t.Skipf("needs PyPI packages, and pip fails: %v: %.800s", err, out)
	}
	if err := os.WriteFile(filepath.Join(kept, "installed"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return interpreter
}

// line is the i-th line of a program's output, decoded.
func line(t *testing.T, out []byte, i int, v any) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if i >= len(lines) {
		t.Fatalf("%d lines: %s", len(lines), out)
	}
	if err := json.Unmarshal([]byte(lines[i]), v); err != nil {
		t.Fatal(fmt.Errorf("%w in %s", err, lines[i]))
	}
}
