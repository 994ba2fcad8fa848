//go:build unix

package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
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
	cmd.Stdout = &out
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var notes strings.Builder
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		fmt.Fprintln(&notes, lines.Text())
		if strings.Contains(lines.Text(), "again in 59s") {
			if err := cmd.Process.Signal(os.Interrupt); err != nil {
				t.Fatal(err)
			}
		}
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("it ended with %v, want exit status 1", err)
	}
	says(t, "stderr", notes.String(), "again in 59s", "stopped before there was an answer\nmake pay AGAIN=1 goes on with this payment\n")
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

// A pipe is not a file with a key, and nobody waits for its writer.
func TestKeyFromPipe(t *testing.T) {
	t.Parallel()
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readKey(pipe); !errors.Is(err, errTyped) || !strings.Contains(err.Error(), "not a regular file") {
		t.Error(err)
	}
}
