package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// asCommand makes this test binary the command.
const asCommand = "PAY_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// Ctrl-C while the real command waits: the signature is kept.
func TestInterrupt(t *testing.T) {
	t.Parallel()
	s := serve(t, answer{503, "59", failing("settlement_uncertain")})
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), self, "-dir", dir, s.URL)
	cmd.Env = append(os.Environ(), asCommand+"=1")
	var out bytes.Buffer
	notes := &until{text: "again in 59s", reached: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = &out, notes
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case <-notes.reached:
	case err := <-ended:
		t.Fatalf("it ended: %v\n%s", err, notes.b.String())
	case <-time.After(time.Minute):
		_ = cmd.Process.Kill()
		t.Fatal("it never waited")
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := <-ended; !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("it ended with %v, want exit status 1", err)
	}
	says(t, "stderr", notes.b.String(), "again in 59s", "stopped before there was an answer\nmake pay AGAIN=1 goes on with this payment\n")
	path, err := folder(dir).last()
	if err != nil {
		t.Fatal(err)
	}
	kept, err := readPayment(path)
	if err != nil {
		t.Fatal(err)
	}
	isKept(t, outcome{kept: []payment{kept}}, s, s.URL)
	if out.Len() > 0 {
		t.Errorf("stdout %q", out.String())
	}
}

// until collects what is written, and says when a text was.
type until struct {
	b       bytes.Buffer
	text    string
	reached chan struct{}
	once    sync.Once
}

func (u *until) Write(p []byte) (int, error) {
	n, err := u.b.Write(p)
	if strings.Contains(u.b.String(), u.text) {
		u.once.Do(func() { close(u.reached) })
	}
	return n, err
}
