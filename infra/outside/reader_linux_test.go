package outside

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/infra/testbed/programs"
)

// What the suite reads.
const (
	readme  = "../../README.md"
	section = "Sell your own handler"
)

// asked is where a printed command asks the program.
var asked = regexp.MustCompile(`http://(127\.0\.0\.1:\d+|localhost:\d+)/`)

// localAddr is where a command has the service listen.
var localAddr = regexp.MustCompile(`^LOCAL_ADDR=(\S+) `)

// reader is somebody who does what is printed in a folder. A command that begins to listen
// where others ask is the program: it runs on, and the reader goes on in another terminal.
type reader struct {
	home        string   // the folder that the reader begins in
	kept        string   // a folder for what the reader's shell knows
	environment []string // besides that of goes
	server      *programs.Process
	at          string           // where the program is asked
	said        *programs.Output // of the last command, to its standard error
}

// newReader is one who begins in a folder, and asks where the first command does that asks.
func newReader(t *testing.T, home string, todo []step) *reader {
	if err := testbed.NoNamespaces(); err != nil {
		t.Skipf("README's program listens at an address that may be another's here: %v", err)
	}
	loopback()
	r := &reader{home: home, kept: t.TempDir(), at: askedAt(todo)}
	if r.at == "" {
		t.Fatalf("no command asks the program, as http://127.0.0.1:8080/... would: %q", todo)
	}
	return r
}

// TestReadme: the program of README is whole. It compiles as it is printed, in an empty
// folder, by the commands that are printed; it runs, and the printed command pays for an
// answer of it. The commands in the sentences about it can be typed there.
func TestReadme(t *testing.T) {
	text := string(testbed.Must(os.ReadFile(readme)))
	todo := steps(text, section)
	r := newReader(t, t.TempDir(), todo)
	programs, paid := 0, 0
	for _, s := range append(todo, saidCommands(text, section)...) {
		if s.program != "" {
			programs++
			testbed.Check(os.WriteFile(filepath.Join(r.folder(), "main.go"), []byte(s.program+"\n"), 0o600))
			continue
		}
		if r.asks(t, s) {
			paid++
			if said := r.said.String(); strings.Contains(said, "make ") {
				t.Errorf("%s wants make, which is not there:\n%s", s.command, said)
			}
		}
	}
	r.still(t)
	if programs != 1 || r.server == nil || paid == 0 {
		t.Errorf("%d programs, one that listened: %v, %d commands that asked it", programs, r.server != nil, paid)
	}
}

// asks types a command, and says whether it was one that asks the program. Such a command
// prints something.
func (r *reader) asks(t *testing.T, s step) bool {
	t.Helper()
	out, ended := r.types(t, s.command)
	if !ended || !asked.MatchString(s.command) {
		return false
	}
	if len(bytes.TrimSpace(out)) == 0 {
		t.Errorf("%s printed nothing", s.command)
	}
	return true
}

// still fails when the program has ended.
func (r *reader) still(t *testing.T) {
	t.Helper()
	if r.server == nil {
		return
	}
	select {
	case <-r.server.Gone():
		t.Errorf("README's program ended:\n%s", &r.server.Log)
	default:
	}
}

// askedAt is the address at which the first command that asks the program asks it.
func askedAt(todo []step) string {
	for _, s := range todo {
		if found := asked.FindStringSubmatch(s.command); found != nil {
			return found[1]
		}
	}
	return ""
}

// state is a script that brings back the variables and the folder of the reader's shell.
func (r *reader) state() string { return filepath.Join(r.kept, "state") }

// folder is where the reader is.
func (r *reader) folder() string {
	where, err := os.ReadFile(r.state() + ".folder")
	if err != nil {
		return r.home
	}
	return strings.TrimSpace(string(where))
}

// types runs a command as it is printed, until it ends or the program listens. It returns
// what it printed to its standard output.
func (r *reader) types(t *testing.T, line string) (out []byte, ended bool) {
	t.Helper()
	const script = `[ ! -f "$2" ] || . "$2"
{ eval "$1" || exit; } > "$3"
export -p > "$2"; pwd > "$2.folder"`
	stdout := filepath.Join(t.TempDir(), "stdout")
	cmd := exec.Command("sh", "-c", script, "sh", line, r.state(), stdout)
	cmd.Dir = r.folder()
	cmd.Env = append(goes(t, r.kept), r.environment...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	p, err := programs.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // go run, and what it runs
		<-p.Gone()
	})
	r.said = &p.Log
	listening := ""
	if r.server == nil {
		listening = r.at
	}
	if elsewhere := localAddr.FindStringSubmatch(line); elsewhere != nil {
		listening = elsewhere[1]
	}
	late := time.After(testbed.Patience)
	for {
		select {
		case <-late:
			t.Fatalf("README's command neither ended nor listened at %q:\n$ %s\n%s", listening, line, &p.Log)
		case <-p.Gone():
			if code := cmd.ProcessState.ExitCode(); code != 0 {
				t.Fatalf("README's command ended with %d:\n$ %s\n%s", code, line, &p.Log)
			}
			out = testbed.Must(os.ReadFile(stdout))
			t.Logf("$ %s\n%s%s", line, &p.Log, out)
			return out, true
		case <-time.After(10 * time.Millisecond):
		}
		if listening != "" && listens(listening) {
			if r.server == nil {
				r.server = p
			}
			return nil, false
		}
	}
}

// listens reports whether somebody listens at an address.
func listens(addr string) bool {
	conn, err := net.Dial("tcp", addr)
	return err == nil && conn.Close() == nil
}
