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

// receiptFile is where the key for receipts is kept, beside the ledger's file.
const receiptFile = "receipt.key"

// receiptKey reads the key that signs receipts on this machine, or makes it: what
// was signed before a restart holds afterwards. One that somebody else may know is
// refused, because the folder may be one that others write to.
func receiptKey(dir string) (ed25519.PrivateKey, error) {
	path := filepath.Join(dir, receiptFile)
	text, err := keyfile.Read(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err = newReceiptKey(path); err == nil {
			text, err = keyfile.Read(path)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("the receipt key: %w. If somebody else may have put it there, or read it, move it away for a new one", err)
	}
	key, err := receipt.ParseKey(strings.TrimSpace(string(text)))
	if err != nil {
		return nil, fmt.Errorf("the receipt key in %s %w; move the file away for a new key", path, err)
	}
	return key, nil
}

// newReceiptKey makes the file unless there is one. It is there as a whole or not at
// all, so that the first of several runners has made it.
func newReceiptKey(path string) error {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), receiptFile+"-*") // for its owner alone
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // its other name stays
	_, err = f.WriteString(receipt.FormatKey(key) + "\n")
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Link(f.Name(), path); !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}
