package clients

import (
	"bufio"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/testbed"
)

// workshop is a folder in which a program can be saved and run.
type workshop struct {
	dir   string
	env   []string // on top of this process's
	payer string   // private key of whoever runs programs here
}

// nodeWorkshop has the npm packages of package.json, installed as its lock file says.
func nodeWorkshop(t *testing.T) workshop {
	t.Helper()
	testbed.Find(t, "Node for the TypeScript program", "npx")
	testbed.Node(t, ".")
	w := workshop{dir: t.TempDir(), payer: newPayer(), env: []string{"npm_config_offline=true", "npm_config_update_notifier=false"}}
	modules, err := filepath.Abs("node_modules")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(modules, filepath.Join(w.dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	return w
}

// pythonWorkshop has a virtual environment with the packages of requirements.
func pythonWorkshop(t *testing.T) workshop {
	t.Helper()
	bin := filepath.Dir(testbed.Python(t, requirements))
	return workshop{dir: t.TempDir(), payer: newPayer(), env: []string{"PATH=" + bin + string(os.PathListSeparator) + os.Getenv("PATH"), "VIRTUAL_ENV=" + filepath.Dir(bin)}}
}

const requirements = "testdata/requirements.txt"

// goWorkshop has the module file of testdata/go.
func goWorkshop(t *testing.T) workshop {
	t.Helper()
	w := workshop{dir: t.TempDir(), payer: newPayer(), env: []string{"GOFLAGS=-mod=readonly", "GOWORK=off"}}
	w.fill(t, "go")
	return w
}

// fill copies what there is in a folder of testdata.
func (w workshop) fill(t *testing.T, folder string) {
	t.Helper()
	if err := os.CopyFS(w.dir, os.DirFS(filepath.Join("testdata", folder))); err != nil {
		t.Fatal(err)
	}
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

// dialogue is a program that is spoken to by lines.
type dialogue struct {
	in    io.WriteCloser
	out   *bufio.Reader
	notes *strings.Builder // stderr; complete after wait
	wait  func() error
}

// begin starts a program to speak to.
func begin(t *testing.T, cmd *exec.Cmd) *dialogue {
	t.Helper()
	d := &dialogue{notes: &strings.Builder{}, wait: cmd.Wait}
	cmd.Stderr = d.notes
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	d.in, d.out = in, bufio.NewReader(out)
	return d
}
