package snippets

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// workshop is a folder in which a program can be saved and run.
type workshop struct {
	dir   string
	env   []string // on top of this process's
	payer string   // private key of whoever runs programs here
}

// nodeWorkshop has the npm packages of testdata/typescript, installed as their
// lock file says.
func nodeWorkshop(t *testing.T) workshop {
	t.Helper()
	packages := filepath.Join("testdata", "typescript")
	for _, tool := range []string{"node", "npm", "npx"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("needs Node for the TypeScript program: %s is not in PATH", tool)
		}
	}
	making.Lock()
	defer making.Unlock()
	if err := npmMissing(packages); err != nil {
		cmd := installer(t, "npm", "ci", "--no-audit", "--no-fund")
		cmd.Dir = packages
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Skipf("needs npm packages for the TypeScript program, and npm ci fails: %v: %.400s", err, out)
		}
		if err := npmMissing(packages); err != nil {
			t.Fatalf("after npm ci: %v", err)
		}
	}
	w := workshop{dir: t.TempDir(), payer: newPayer(), env: []string{"npm_config_offline=true", "npm_config_update_notifier=false"}}
	modules, err := filepath.Abs(filepath.Join(packages, "node_modules"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(modules, filepath.Join(w.dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	return w
}

// npmMissing compares what is installed with package.json.
func npmMissing(dir string) error {
	if _, err := os.Stat(filepath.Join(dir, "node_modules", ".package-lock.json")); err != nil {
		return errors.New("node_modules is missing or incomplete") // npm writes that file last
	}
	versions, err := npmVersions(dir)
	if err != nil {
		return err
	}
	for name, version := range versions {
		var present struct{ Version string }
		if err := readJSON(filepath.Join(dir, "node_modules", name, "package.json"), &present); err != nil {
			return err
		}
		if present.Version != version {
			return fmt.Errorf("node_modules has %s %s, not %s", name, present.Version, version)
		}
	}
	return nil
}

func npmVersions(dir string) (map[string]string, error) {
	var wanted struct{ Dependencies map[string]string }
	return wanted.Dependencies, readJSON(filepath.Join(dir, "package.json"), &wanted)
}

func readJSON(path string, v any) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, v)
}

// making is held by the test that installs packages; the others wait for it and
// do not install their own.
var making sync.Mutex

// pythonWorkshop has a virtual environment with the packages of
// testdata/python/requirements.txt, pythonWorkshopWith one with those of another
// list, every file of them named by its hash. It is kept beside the suite under the
// hash of that list.
func pythonWorkshop(t *testing.T) workshop { return pythonWorkshopWith(t, requirements) }

func pythonWorkshopWith(t *testing.T, requirements string) workshop {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("needs Python for the Python program: python3 is not in PATH")
	}
	list, err := os.ReadFile(requirements)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(append(list, python...))
	kept, err := filepath.Abs(".venv-" + hex.EncodeToString(sum[:6]))
	if err != nil {
		t.Fatal(err)
	}
	making.Lock()
	defer making.Unlock()
	ready := filepath.Join(kept, "installed")
	if _, err := os.Stat(ready); err != nil {
		makeVenv(t, python, requirements, kept)
	}
	bin := filepath.Join(kept, "bin")
	return workshop{dir: t.TempDir(), payer: newPayer(), env: []string{"PATH=" + bin + string(os.PathListSeparator) + os.Getenv("PATH"), "VIRTUAL_ENV=" + kept}}
}

const requirements = "testdata/python/requirements.txt"

// makeVenv makes an environment and gives it its lasting name when it is
// complete, unless another run was faster. It is used through its interpreter,
// which does not mind the move.
func makeVenv(t *testing.T, python, requirements, kept string) {
	t.Helper()
	fresh, err := os.MkdirTemp(".", ".venv-making-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(fresh) })
	if out, err := installer(t, python, "-m", "venv", fresh).CombinedOutput(); err != nil {
		t.Skipf("needs a virtual environment for the Python program (Debian: python3-venv): %v: %.400s", err, out)
	}
	pip := installer(t, filepath.Join(fresh, "bin", "python"), "-m", "pip", "install",
		"--quiet", "--disable-pip-version-check", "--require-hashes", "--only-binary=:all:", "-r", requirements)
	if out, err := pip.CombinedOutput(); err != nil {
		t.Skipf("needs PyPI packages for the Python program, and pip fails: %v: %.800s", err, out)
	}
	if err := os.WriteFile(filepath.Join(fresh, "installed"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(fresh, kept); err != nil {
		if _, other := os.Stat(filepath.Join(kept, "installed")); other != nil {
			t.Fatal(err)
		}
	}
}

// installer prepares a command that fetches packages. It ends in time for the
// test to say that it did not.
func installer(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	t.Cleanup(cancel)
	return exec.CommandContext(ctx, name, args...)
}

// goWorkshop has the module file of testdata/go.
func goWorkshop(t *testing.T) workshop {
	t.Helper()
	w := workshop{dir: t.TempDir(), payer: newPayer(), env: []string{"GOFLAGS=-mod=readonly", "GOWORK=off"}}
	for _, file := range []string{"go.mod", "go.sum"} {
		b, err := os.ReadFile(filepath.Join("testdata", "go", file))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(w.dir, file), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// shell prepares a command line in a workshop. Nothing on this machine is
// reached through a proxy.
func (w workshop) shell(t *testing.T, line string, env ...string) *exec.Cmd {
	t.Helper()
	return w.shellFor(t, patience, line, env...)
}

// shellFor is shell with a deadline of its own.
func (w workshop) shellFor(t *testing.T, limit time.Duration, line string, env ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, "sh", "-c", line)
	cmd.Dir = w.dir
	cmd.Env = append(os.Environ(), "NO_PROXY=127.0.0.1", "no_proxy=127.0.0.1", "PWD="+w.dir)
	cmd.Env = append(append(cmd.Env, w.env...), env...)
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// save writes a program as a reader does who copies it from the page.
func (w workshop) save(t *testing.T, name, program string) {
	t.Helper()
	if name == "" || strings.ContainsAny(name, "/\\ ") {
		t.Fatalf("%q is not the name of a file", name)
	}
	if err := os.WriteFile(filepath.Join(w.dir, name), []byte(program+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}
