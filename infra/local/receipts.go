package main

import (
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/hostfacts/hostfacts/infra/local/keyfile"
	"github.com/hostfacts/hostfacts/pkg/x402/receipt"
)

// receiptFile is the name of the file with the receipt key, in the folder of the ledger's
// file.
const receiptFile = "receipt.key"

// receiptKey returns the key that signs receipts on this machine. It reads the key from its
// file, or creates it. The key is kept so that old signatures stay valid after a restart.
// Because others may be able to write to the folder, receiptKey refuses a file that somebody
// else could have read or replaced.
func receiptKey(dir string) (ed25519.PrivateKey, error) {
	path := filepath.Join(dir, receiptFile)
	text, err := keyfile.Read(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err = newReceiptKey(path); err == nil {
			text, err = keyfile.Read(path)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("the receipt key: %w. If somebody else could have read or replaced it, move it away to get a new one", err)
	}
	key, err := receipt.ParseKey(strings.TrimSpace(string(text)))
	if err != nil {
		return nil, fmt.Errorf("the receipt key in %s %w; move the file away to get a new key", path, err)
	}
	return key, nil
}

// newReceiptKey creates the key file. If another process has just created the file,
// newReceiptKey leaves it unchanged and returns no error.
func newReceiptKey(path string) error {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o700)
	}
	if err == nil {
		err = keyfile.Write(path, []byte(receipt.FormatKey(key)+"\n"))
	}
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}
