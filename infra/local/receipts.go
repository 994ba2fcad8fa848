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

	"github.com/hostfacts/hostfacts/pkg/x402/receipt"
)

// receiptFile is where the key for receipts is kept, beside the ledger's file.
const receiptFile = "receipt.key"

// receiptKey reads the key that signs receipts on this machine, or makes it: what
// was signed before a restart holds afterwards.
func receiptKey(dir string) (ed25519.PrivateKey, error) {
	path := filepath.Join(dir, receiptFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return newReceiptKey(path)
	}
	if err != nil {
		return nil, fmt.Errorf("read the receipt key: %w", err)
	}
	key, err := receipt.ParseKey(strings.TrimSpace(string(text)))
	if err != nil {
		return nil, fmt.Errorf("the receipt key in %s %w; move the file away for a new key", path, err)
	}
	return key, nil
}

func newReceiptKey(path string) (ed25519.PrivateKey, error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a receipt key: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("keep the receipt key: %w", err)
	}
	if err := os.WriteFile(path, []byte(receipt.FormatKey(key)+"\n"), 0o600); err != nil {
		return nil, fmt.Errorf("keep the receipt key: %w", err)
	}
	return key, nil
}
