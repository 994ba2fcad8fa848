package main

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/hostfacts/hostfacts/pkg/printable"
)

// payment is what it takes to send a signature again.
type payment struct {
	URL       string `json:"url"`
	Key       string `json:"idempotency_key,omitempty"`
	Signature string `json:"payment_signature"`
	Payer     string `json:"payer"`
}

// maxPayment is how much of a file is read, in bytes. A server's offer, which is
// part of a signature, came in a header.
const maxPayment = 4 << 20

// folder keeps payments, a file each, for nobody but their owner. The names of the
// files are in the order in which they were made.
type folder string

// keep writes a payment and returns its file, which is there whole or not at all.
func (f folder) keep(p payment, now time.Time) (path string, err error) {
	text, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return "", fmt.Errorf("keep the signature: %w", err)
	}
	if err := os.MkdirAll(string(f), 0o700); err != nil {
		return "", fmt.Errorf("keep the signature: %w", err)
	}
	if err := os.Chmod(string(f), 0o700); err != nil { // #nosec G302 -- a folder; it may have been there
		return "", fmt.Errorf("keep the signature: %w", err)
	}
	tmp, err := os.CreateTemp(string(f), "*.tmp") // 0600
	if err != nil {
		return "", fmt.Errorf("keep the signature: %w", err)
	}
	defer os.Remove(tmp.Name()) //nolint:errcheck // it has another name by then
	_, err = tmp.Write(append(text, '\n'))
	if err == nil {
		err = tmp.Sync()
	}
	if closing := tmp.Close(); err == nil {
		err = closing
	}
	path = filepath.Join(string(f), now.UTC().Format("20060102T150405.000000000Z")+"-"+rand.Text()[:8]+".json")
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return "", fmt.Errorf("keep the signature: %w", err)
	}
	return path, nil
}

// last is the file of the payment that was made last.
func (f folder) last() (string, error) {
	all, err := filepath.Glob(filepath.Join(string(f), "*.json"))
	if err != nil {
		return "", err
	}
	if len(all) == 0 {
		return "", fmt.Errorf("there is no payment in %s to send again. make pay makes one", f)
	}
	return slices.Max(all), nil
}

// readPayment reads a kept payment.
func readPayment(path string) (p payment, err error) {
	file, err := os.Open(path)
	if err != nil {
		return p, typed("AGAIN: %v. AGAIN=1 sends the last payment, AGAIN=<file> another one", err)
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxPayment))
	if err != nil {
		return p, typed("AGAIN: %v", err)
	}
	if err := json.Unmarshal(text, &p); err != nil {
		return p, typed("AGAIN: %s is no kept payment: %v", path, err)
	}
	if p.Signature == "" || !printable.ASCII(p.Signature) || !printable.ASCII(p.Key) {
		return p, typed("AGAIN: %s is no kept payment", path)
	}
	return p, nil
}
