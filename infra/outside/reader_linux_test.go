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

// The path of README, and the title of its section about selling.
const (
	readme      = "../../README.md"
	sellSection = "Sell your own handler"
)

// localURL matches the URL of a server on this machine in a command that sends a request to it.
var localURL = regexp.MustCompile(`http://(127\.0\.0\.1:\d+|localhost:\d+)/`)

// localAddr matches the address on which a command makes the service listen.
var localAddr = regexp.MustCompile(`^LOCAL_ADDR=(\S+) `)

// reader is a simulated reader of README, who types the printed commands in a folder. If a
// command starts a program that listens at serverAddr, this program is the server. The server
// keeps running while the reader types further commands, as in another terminal.
type reader struct {
	home        string   // the folder in which the reader begins
	stateFolder string   // the folder that stores the variables and the current folder of the reader's shell
	environment []string // further variables of the environment (see readerEnvironment)
	server      *programs.Process
	serverAddr  string           // the address at which the server listens
	stderr      *programs.Output // the standard error of the last command
}

// newReader returns a reader who begins in the folder home. The reader expects the server at
// the address in the first URL that the commands in todo contain.
func newReader(t *testing.T, home string, todo []step) *reader {
	if err := testbed.NoNamespaces(); err != nil {
		t.Skipf("README's program listens at an address that may be another's here: %v", err)
	}
	loopback()
	r := &reader{home: home, stateFolder: t.TempDir(), serverAddr: firstLocalAddr(todo)}
	if r.serverAddr == "" {
		t.Fatalf("no command asks the program, as http://127.0.0.1:8080/... would: %q", todo)
	}
	return r
}

// TestReadme follows the section of README about selling, in an empty folder. The program in
// the section must compile and run with the commands in the section. At least one command must
// send a request to that program and print its answer. The commands within sentences of the
// section must succeed in the same folder. No command may tell the reader to use make, which
// needs a clone.
func TestReadme(t *testing.T) {
	text := string(testbed.Must(os.ReadFile(readme)))
	todo := steps(text, sellSection)
	r := newReader(t, t.TempDir(), todo)
	programs, paid := 0, 0
	for _, s := range append(todo, quotedCommands(text, sellSection)...) {
		if s.program != "" {
			programs++
			testbed.Check(os.WriteFile(filepath.Join(r.folder(), "main.go"), []byte(s.program+"\n"), 0o600))
			continue
		}
		if r.typeStep(t, s) {
			paid++
			if said := r.stderr.String(); strings.Contains(said, "make ") {
				t.Errorf("%s wants make, which is not there:\n%s", s.command, said)
			}
		}
	}
	r.checkServer(t)
	if programs != 1 || r.server == nil || paid == 0 {
		t.Errorf("%d programs, one that listened: %v, %d commands that asked it", programs, r.server != nil, paid)
	}
}

// typeStep types a command, and reports whether the command has sent a request to the server.
// A command that has sent a request must have printed something.
func (r *reader) typeStep(t *testing.T, s step) bool {
	t.Helper()
	out, ended := r.typeCommand(t, s.command)
	if !ended || !localURL.MatchString(s.command) {
		return false
	}
	if len(bytes.TrimSpace(out)) == 0 {
		t.Errorf("%s printed nothing", s.command)
	}
	return true
}

// checkServer fails the test if the server has ended.
func (r *reader) checkServer(t *testing.T) {
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

// firstLocalAddr returns the address in the first command that has the URL of a server on this
// machine.
func firstLocalAddr(todo []step) string {
	for _, s := range todo {
		if found := localURL.FindStringSubmatch(s.command); found != nil {
			return found[1]
		}
	}
	return ""
}

// stateFile returns the path of a script that restores the variables of the reader's shell.
// The file state.folder beside the script has the shell's current folder.
func (r *reader) stateFile() string { return filepath.Join(r.stateFolder, "state") }

// folder returns the current folder of the reader's shell.
func (r *reader) folder() string {
	where, err := os.ReadFile(r.stateFile() + ".folder")
	if err != nil {
		return r.home
	}
	return strings.TrimSpace(string(where))
}

// typeCommand runs a command as README prints it. It returns when the command has ended, or
// when the command listens as the server. It returns what the command printed to standard
// output, and whether the command has ended. If the command fails, the test fails.
func (r *reader) typeCommand(t *testing.T, line string) (out []byte, ended bool) {
	t.Helper()
	const script = `[ ! -f "$2" ] || . "$2"
{ eval "$1" || exit; } > "$3"
export -p > "$2"; pwd > "$2.folder"`
	stdout := filepath.Join(t.TempDir(), "stdout")
	cmd := exec.Command("sh", "-c", script, "sh", line, r.stateFile(), stdout)
	cmd.Dir = r.folder()
	cmd.Env = append(readerEnvironment(t, r.stateFolder), r.environment...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	p, err := programs.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // this kills "go run", and the program that "go run" has started
		<-p.Gone()
	})
	r.stderr = &p.Log
	listening := ""
	if r.server == nil {
		listening = r.serverAddr
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
		if listening != "" && isListening(listening) {
			if r.server == nil {
				r.server = p
			}
			return nil, false
		}
	}
}

// isListening reports whether a program listens at an address.
func isListening(addr string) bool {
	conn, err := net.Dial("tcp", addr)
	return err == nil && conn.Close() == nil
}
