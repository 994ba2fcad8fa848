// Makes a key for signed receipts: what make receipt-key runs. It prints the two
// settings of a deployment, and goes nowhere.
package main

import (
	"crypto/ed25519"
	"crypto/rand"
	"fmt"
	"io"
	"os"

	"github.com/hostfacts/hostfacts/pkg/x402/receipt"
)

func main() {
	if err := run(rand.Reader, os.Getenv("RECEIPT_PUBLIC_KEYS"), os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run prints the settings on out, and what they are for on notes. published are
// the public keys so far, which stay in the list.
func run(random io.Reader, published string, out, notes io.Writer) error {
	public, private, err := ed25519.GenerateKey(random)
	if err != nil {
		return fmt.Errorf("make a key: %w", err)
	}
	all := receipt.FormatPublic(public)
	if published != "" {
		all += "," + published
	}
	fmt.Fprintln(notes, `RECEIPT_KEY signs receipts: keep it as receipt_key in the secret of the facilitator's
credentials, or as the parameter ReceiptKey. RECEIPT_PUBLIC_KEYS is published in
/.well-known/did.json: the parameter ReceiptPublicKeys. With RECEIPT_PUBLIC_KEYS set to
the list so far, the new key is put before the old ones, whose receipts then still hold.`)
	_, err = fmt.Fprintf(out, "RECEIPT_KEY=%s\nRECEIPT_PUBLIC_KEYS=%s\n", receipt.FormatKey(private), all)
	return err
}
