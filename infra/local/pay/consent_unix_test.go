//go:build unix

package main

import (
	"errors"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A pipe is no file with a key, and nobody waits for its writer.
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
