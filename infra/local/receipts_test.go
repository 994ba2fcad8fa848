package main

import (
	"crypto/ed25519"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/x402/receipt"
)

// TestReceiptKey checks that the key is created once, that only its owner can read it, and
// that a file is refused if it does not contain a key, or if others can access it.
func TestReceiptKey(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "local")
	first := testbed.Must(receiptKey(dir))
	again, err := receiptKey(dir)
	if err != nil || !again.Equal(first) {
		t.Errorf("another key after a restart, %v", err)
	}
	path := filepath.Join(dir, receiptFile)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	write := func(mode os.FileMode) func() error {
		return func() error {
			return errors.Join(os.WriteFile(path, []byte(receipt.FormatKey(first)), 0o600), os.Chmod(path, mode))
		}
	}
	kept := filepath.Join(dir, "kept")
	for name, c := range map[string]struct {
		put     func() error
		wantErr string
	}{
		"no key":              {func() error { return os.WriteFile(path, []byte("not a key"), 0o600) }, path},
		"others may read it":  {write(0o640), "chmod 600"},
		"others may write it": {write(0o602), "chmod 600"},
		"a link":              {func() error { return errors.Join(write(0o600)(), os.Rename(path, kept), os.Symlink(kept, path)) }, "not a regular file"},
		"a link to no file":   {func() error { return os.Symlink(filepath.Join(dir, "none"), path) }, "not a regular file"},
		"a folder":            {func() error { return os.Mkdir(path, 0o700) }, "not a regular file"},
	} {
		testbed.Check(errors.Join(os.RemoveAll(path), c.put()))
		if key, err := receiptKey(dir); key != nil || err == nil || !strings.Contains(err.Error(), c.wantErr) {
			t.Errorf("%s: %v", name, err)
		}
	}
	os.RemoveAll(path)
	// Calls at the same time, as by several processes, must all return the same key.
	keys := make([]ed25519.PrivateKey, 8)
	var all sync.WaitGroup
	for i := range keys {
		all.Go(func() { keys[i], _ = receiptKey(dir) })
	}
	all.Wait()
	for _, key := range keys {
		if key == nil || !key.Equal(keys[0]) {
			t.Error("two runners have two keys")
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, receiptFile+"-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
