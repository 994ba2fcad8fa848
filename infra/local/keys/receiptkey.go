package main

import (
	"crypto/ed25519"
	"fmt"
	"io"

	"github.com/hostfacts/hostfacts/pkg/x402/receipt"
)

// makeReceiptKey makes a key for signed receipts. It prints the two settings of a
// deployment on out, and what they are for on notes. published are the public keys
// so far, which stay in the list.
func makeReceiptKey(random io.Reader, published string, out, notes io.Writer) error {
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
