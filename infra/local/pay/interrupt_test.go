//go:build unix

package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net/http"
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
	s, dir := sell(t, func(w http.ResponseWriter, _ int) { answer{503, "59", failing("settlement_uncertain")}.write(w) }), t.TempDir()
	self, err := os.Executable()
	must(t, err)
	cmd := exec.CommandContext(t.Context(), self, "-dir", dir, s.URL)
	cmd.Env = append(os.Environ(), asCommand+"=1")
	var out bytes.Buffer
	cmd.Stdout = &out
	stderr, err := cmd.StderrPipe()
	must(t, err, cmd.Start())
	var notes strings.Builder
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		fmt.Fprintln(&notes, lines.Text())
		if strings.Contains(lines.Text(), "again in 59s") {
			must(t, cmd.Process.Signal(os.Interrupt))
		}
	}
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 1 || out.Len() > 0 {
		t.Errorf("it ended with %v, want exit status 1; stdout %q", err, out.String())
	}
	if !strings.HasSuffix(notes.String(), "stopped before there was an answer\nmake pay AGAIN=1 goes on with this payment\n") {
		t.Errorf("stderr:\n%s", &notes)
	}
	path, err := folder(dir).last()
	must(t, err)
	kept, err := readPayment(path)
	must(t, err)
	isKept(t, []payment{kept}, s, s.URL)
}

// A pipe is not a file with a key, and nobody waits for its writer.
func TestKeyFromPipe(t *testing.T) {
	t.Parallel()
	pipe := filepath.Join(t.TempDir(), "pipe")
	must(t, syscall.Mkfifo(pipe, 0o600))
	if _, err := readKey(pipe); !errors.Is(err, errTyped) || !strings.Contains(err.Error(), "not a regular file") {
		t.Error(err)
	}
}
