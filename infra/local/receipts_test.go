package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The key is made once, for its owner alone, and a file that holds none is left.
func TestReceiptKey(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "local")
	first, err := receiptKey(dir)
	if err != nil {
		t.Fatal(err)
	}
	again, err := receiptKey(dir)
	if err != nil || !again.Equal(first) {
		t.Errorf("another key after a restart, %v", err)
	}
	path := filepath.Join(dir, receiptFile)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if err := os.WriteFile(path, []byte("not a key"), 0o600); err != nil {
		t.Fatal(err)
	}
	if key, err := receiptKey(dir); key != nil || err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("a broken file: %v", err)
	}
}
