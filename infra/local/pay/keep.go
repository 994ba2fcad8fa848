package main

import (
	"crypto/rand"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/hostfacts/hostfacts/infra/local/bill"
	"github.com/hostfacts/hostfacts/infra/local/keyfile"
	"github.com/hostfacts/hostfacts/pkg/untrusted"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// payment has everything that is needed to send a signature again.
type payment struct {
	URL       string `json:"url"`
	Key       string `json:"idempotency_key,omitempty"`
	Signature string `json:"payment_signature"`
	Payer     string `json:"payer"`
}

// maxPayment limits how much of a saved payment is read, in bytes. The longest part of a
// payment is the signature, which contains a copy of the server's offer.
const maxPayment = 4 << 20

// folder stores payments and a throwaway key, each in a file that only its owner can read. The
// name of a payment's file begins with the time of the payment. So in alphabetical order, the
// latest payment comes last.
type folder string

// throwawayKey is the name of the file of the throwaway key.
const throwawayKey = "throwaway.key"

// savePayment writes a payment to a file, completely or not at all, and returns the path of
// the file.
func (f folder) savePayment(p payment, now time.Time) (path string, err error) {
	text, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return "", err
	}
	if err := f.create(); err != nil {
		return "", err
	}
	path = filepath.Join(string(f), now.UTC().Format("20060102T150405.000000000Z")+"-"+rand.Text()[:8]+".json")
	return path, keyfile.Write(path, append(text, '\n'))
}

// create creates the folder, and makes an existing one private.
func (f folder) create() error {
	if err := os.MkdirAll(string(f), 0o700); err != nil {
		return err
	}
	return os.Chmod(string(f), 0o700) // #nosec G302 -- a folder needs the execute bit
}

// throwawayWallet returns a wallet for play money. The wallet's key is kept, because an
// Idempotency-Key belongs to a payer: with another wallet, the same KEY would name another
// purchase.
func (f folder) throwawayWallet() (*x402test.Wallet, error) {
	if err := f.create(); err != nil {
		return nil, err
	}
	return bill.ThrowawayWallet(filepath.Join(string(f), throwawayKey))
}

// latestPayment returns the path of the latest payment.
func (f folder) latestPayment() (string, error) {
	all, err := filepath.Glob(filepath.Join(string(f), "*.json"))
	if err == nil && len(all) == 0 {
		err = newSafeError("%s has no payment to send again. Pay for something first", string(f))
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
		return p, usageError("AGAIN: %v. AGAIN=1 resends the last payment, AGAIN=<file> another one", err)
	case json.Unmarshal(text, &p) != nil || p.Signature == "" || !untrusted.ASCII(p.Signature) || !untrusted.ASCII(p.Key):
		return p, usageError("AGAIN: %s is not a kept payment", path)
	}
	return p, nil
}
