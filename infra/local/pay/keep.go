package main

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/hostfacts/hostfacts/infra/local/keyfile"
	"github.com/hostfacts/hostfacts/pkg/untrusted"
)

// payment has everything that is needed to send a signature again.
type payment struct {
	URL       string `json:"url"`
	Key       string `json:"idempotency_key,omitempty"`
	Signature string `json:"payment_signature"`
	Payer     string `json:"payer"`
}

// maxPayment limits how much of a file is read, in bytes. A signature contains the server's
// offer, which fitted into a header.
const maxPayment = 4 << 20

// folder stores payments, one file each, which only the owner can read. The names of the files
// sort by time.
type folder string

// keep writes a payment to a file, completely or not at all, and returns its name.
func (f folder) keep(p payment, now time.Time) (path string, err error) {
	text, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return "", err
	}
	err = errors.Join(os.MkdirAll(string(f), 0o700), os.Chmod(string(f), 0o700)) // #nosec G302 -- a folder; it may have been there
	if err != nil {
		return "", err
	}
	path = filepath.Join(string(f), now.UTC().Format("20060102T150405.000000000Z")+"-"+rand.Text()[:8]+".json")
	return path, keyfile.Write(path, append(text, '\n'))
}

// last returns the file of the latest payment.
func (f folder) last() (string, error) {
	all, err := filepath.Glob(filepath.Join(string(f), "*.json"))
	if err == nil && len(all) == 0 {
		err = explain("%s has no payment to send again. Pay for something first", string(f))
	}
	if err != nil {
		return "", err
	}
	return slices.Max(all), nil
}

// readPayment reads a kept payment.
func readPayment(path string) (p payment, err error) {
	var text []byte
	file, err := os.Open(path)
	if err == nil {
		defer file.Close()
		text, err = io.ReadAll(io.LimitReader(file, maxPayment))
	}
	switch {
	case err != nil:
		return p, typed("AGAIN: %v. AGAIN=1 resends the last payment, AGAIN=<file> another one", err)
	case json.Unmarshal(text, &p) != nil || p.Signature == "" || !untrusted.ASCII(p.Signature) || !untrusted.ASCII(p.Key):
		return p, typed("AGAIN: %s is not a kept payment", path)
	}
	return p, nil
}
