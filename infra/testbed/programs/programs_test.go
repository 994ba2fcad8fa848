package programs

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
)

func shell(script string) *exec.Cmd { return exec.Command("sh", "-c", script) }

// TestProcess checks that a program is ready when it has printed its address, that Stop ends
// the program, that a second Stop does nothing, and that the output can be read.
func TestProcess(t *testing.T) {
	t.Parallel()
	p, err := StartWith(shell(`echo starting; echo "listening on http://127.0.0.1:1 "; exec sleep 600`), Options{Mark: "listening on "})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Kill()
	if err := p.Ready(); err != nil || p.URL != "http://127.0.0.1:1" {
		t.Errorf("it is ready on %q, %v", p.URL, err)
	}
	select {
	case <-p.Gone():
		t.Error("it has ended by itself")
	default:
	}
	if err := p.Stop(); err == nil || p.Wait() != err {
		t.Errorf("it was stopped by a signal, and ended with %v", err)
	}
	if got := p.Log.String(); !strings.HasPrefix(got, "starting\n") {
		t.Errorf("it printed %q", got)
	}
	if err := p.Stop(); err != nil {
		t.Errorf("it was stopped twice: %v", err)
	}
}

// TestProcessThatEnds checks that Ready and Listens return an error with the program's output
// if the program ends before it is ready.
func TestProcessThatEnds(t *testing.T) {
	t.Parallel()
	p, err := Start(shell("echo no such file >&2; exit 3"))
	if err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{"ready": p.Ready(), "listening": p.Listens("127.0.0.1:1")} {
		if err == nil || !strings.Contains(err.Error(), "no such file") || !strings.Contains(err.Error(), "exit status 3") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestOutputLimit checks that an Output with a limit drops the beginning of the output, but
// still finds an address there.
func TestOutputLimit(t *testing.T) {
	t.Parallel()
	o := Output{maxBytes: 10}
	for i := range 10 {
		fmt.Fprintf(&o, "line %d is ready on port %d\n", i, i)
	}
	if got := o.String(); got != "on port 9\n" {
		t.Errorf("%q is kept", got)
	}
	if got := <-o.Ready(); got != "port 0" {
		t.Errorf("it is ready on %q", got)
	}
}
