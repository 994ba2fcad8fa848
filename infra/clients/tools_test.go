package clients

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
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

// programLimit is how long a program may take. The slowest, which loop around the stock
// clients, take about a minute.
const programLimit = 30 * time.Minute

// shell prepares a command line in a workshop. Nothing on this machine is
// reached through a proxy.
func (w workshop) shell(t *testing.T, line string, env ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), programLimit)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, "sh", "-c", line)
	cmd.Dir = w.dir
	cmd.Env = append(os.Environ(), "NO_PROXY=127.0.0.1", "no_proxy=127.0.0.1", "PWD="+w.dir)
	cmd.Env = append(append(cmd.Env, w.env...), env...)
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// keyed prepares a command of the page with the payer's key in its place.
func (w workshop) keyed(t *testing.T, command string) *exec.Cmd {
	t.Helper()
	if !strings.HasPrefix(command, placeholder+" ") {
		t.Fatalf("the command %q has no place for the key", command)
	}
	return w.shell(t, strings.Replace(command, placeholder, "PRIVATE_KEY="+w.payer, 1))
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

// say writes a line of JSON.
func (d *dialogue) say(t *testing.T, v any) {
	t.Helper()
	if err := json.NewEncoder(d.in).Encode(v); err != nil {
		_ = d.wait()
		t.Fatalf("%v\n%s", err, d.notes)
	}
}

// next reads a line of JSON.
func (d *dialogue) next(t *testing.T, v any) {
	t.Helper()
	line, err := d.out.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, v)
	}
	if err != nil {
		_ = d.in.Close()
		_ = d.wait()
		t.Fatalf("%v in %q\n%s", err, line, d.notes)
	}
}

// end ends it, before the context of the test does. It must have said all.
func (d *dialogue) end(t *testing.T) {
	t.Helper()
	_ = d.in.Close() // it may have ended
	rest, err := io.ReadAll(d.out)
	if err = errors.Join(err, d.wait()); err != nil || len(rest) > 0 {
		t.Errorf("%v, and %q\n%s", err, rest, d.notes)
	}
}
