//go:build unix

package main

import (
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

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/infra/testbed/programs"
)

// asCommand is the environment variable that makes this test binary behave as the command pay.
const asCommand = "PAY_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestInterrupt presses Ctrl-C while the command waits until it can send the signature again.
// The command must exit with status 1 and say how to continue. The signature must still be on
// disk.
func TestInterrupt(t *testing.T) {
	t.Parallel()
	s, dir := sell(t, func(w http.ResponseWriter, _ int) { answer{503, "59", errorJSON("settlement_uncertain")}.write(w) }), t.TempDir()
	self, err := os.Executable()
	must(t, err)
	cmd := exec.Command(self, "-dir", dir, s.URL)
	cmd.Env = append(os.Environ(), asCommand+"=1")
	var out bytes.Buffer
	cmd.Stdout = &out
	p, err := programs.Start(cmd)
	must(t, err)
	t.Cleanup(p.Kill)
	testbed.Until(t, "it waits", func() error {
		if !strings.Contains(p.Log.String(), "again in 59s") {
			return errors.New(p.Log.String())
		}
		return nil
	})
	must(t, cmd.Process.Signal(os.Interrupt))
	if err := p.Wait(); cmd.ProcessState.ExitCode() != 1 || out.Len() > 0 {
		t.Errorf("it ended with %v, want exit status 1; stdout %q", err, out.String())
	}
	path, err := folder(dir).latestPayment()
	must(t, err)
	if !strings.HasSuffix(p.Log.String(), "stopped before there was an answer\npay -again "+path+" continues with this payment\n") {
		t.Errorf("stderr:\n%s", &p.Log)
	}
	kept, err := readPayment(path)
	must(t, err)
	checkKept(t, []payment{kept}, s, s.URL)
}

// TestReadKey checks that a key is read only from a regular file that nobody but its owner can
// read or write. The file must contain one valid key and nothing else. No error may contain
// the key.
func TestReadKey(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	must(t, syscall.Mkfifo(pipe, 0o600))
	n := 0
	file := func(text string, mode os.FileMode) string {
		n++
		path := filepath.Join(dir, fmt.Sprint(n))
		must(t, os.WriteFile(path, []byte(text), 0o600), os.Chmod(path, mode))
		return path
	}
	for _, path := range []string{file(key1, 0o600), file(key1[2:]+"\n", 0o400), file("  "+key1+" \r\n", 0o600)} {
		if w, err := readKey(path); err != nil || w.Address().Checksum() != account1 {
			t.Errorf("%s: %v, %v", path, w, err)
		}
	}
	for _, c := range []struct{ path, says string }{
		{file(key1, 0o640), "chmod 600"},
		{file(key1, 0o604), "chmod 600"},
		{file(key1, 0o620), "mode 0620"},
		{file("", 0o600), "must hold a private key"},
		{file(key1[:64], 0o600), "must hold"},
		{file(key1+"00", 0o600), "must hold"},
		{file(key1+"\n"+key1, 0o600), "must hold"},
		{file("0X"+key1[2:], 0o600), "must hold"},
		{file(strings.Replace(key1, "1", "g", 1), 0o600), "must hold"},
		{file("0x"+strings.Repeat("0", 64), 0o600), "must hold"},
		{file("0x"+strings.Repeat("f", 64), 0o600), "must hold"},
		{file(key1+strings.Repeat(" ", 1<<20)+"x", 0o600), ""},
		{dir, "not a regular file"},
		{pipe, "not a regular file"}, // readKey must return without waiting for a writer
		{filepath.Join(dir, "none"), "no such file"},
	} {
		_, err := readKey(c.path)
		if c.says == "" {
			continue // the x at the end of the file is beyond the size limit, so it is not read
		}
		if !errors.Is(err, errUsage) || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), key1[40:]) {
			t.Errorf("%s: %v, want %q", c.path, err, c.says)
		}
	}
}
