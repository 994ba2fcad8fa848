// Command keys handles the keys of a deployment: receipt-key creates a key that signs
// receipts, and sign-origin signs the deployment's origin with the key of its payee. It works
// offline. It is a separate program, so no process that calls AWS or the chain ever has the
// payee's key.
//
//	go run ./infra/local/keys receipt-key
//	go run ./infra/local/keys sign-origin -origin https://api.example.com [-pay-to 0x...] [-key-file FILE]
package main

import (
	"crypto/ed25519"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/hostfacts/hostfacts/infra/local/called"
	"github.com/hostfacts/hostfacts/pkg/x402/receipt"
)

// The exit statuses other than 0.
const (
	exitFailed = 1
	exitUsage  = 2
)

func main() {
	if version, asked := called.Version(os.Args); asked {
		fmt.Println(version)
		return
	}
	os.Exit(run(os.Args[1:], os.Getenv, os.Stdout, os.Stderr))
}

// run parses the command line, executes it, and returns the exit status.
func run(args []string, getenv func(string) string, out, notes io.Writer) int {
	flags := flag.NewFlagSet("keys", flag.ContinueOnError)
	flags.SetOutput(notes)
	origin := flags.String("origin", "", "origin of the deployment, such as https://api.example.com")
	payTo := flags.String("pay-to", "", "PAY_TO of the deployment, to compare the key's account with")
	file := flags.String("key-file", "", "file with the private key; default: ask at the terminal, or read standard input")
	flags.Usage = func() {
		fmt.Fprintln(notes, "usage: make receipt-key [RECEIPT_PUBLIC_KEYS=…]\n       make sign-origin ORIGIN=https://api.example.com [PAY_TO=0x…] [KEY_FILE=…]")
	}
	var err error
	if len(args) > 0 {
		err = flags.Parse(args[1:])
	}
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return exitUsage
	case len(args) == 1 && args[0] == "receipt-key":
		err = makeReceiptKey(getenv("RECEIPT_PUBLIC_KEYS"), out, notes)
	case len(args) > 0 && args[0] == "sign-origin" && *origin != "" && flags.NArg() == 0:
		err = signOrigin(*origin, *payTo, func() ([]byte, error) { return keyText(*file) }, out, notes)
	default:
		flags.Usage()
		return exitUsage
	}
	if err != nil {
		fmt.Fprintln(notes, err)
		return exitFailed
	}
	return 0
}

// makeReceiptKey creates a key for signed receipts. It prints the settings RECEIPT_KEY and
// RECEIPT_PUBLIC_KEYS to out, and an explanation to notes. The argument published has the
// existing public keys, separated by commas, or is empty. The new public key is put before
// them.
func makeReceiptKey(published string, out, notes io.Writer) error {
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		return fmt.Errorf("make a key: %w", err)
	}
	all := receipt.FormatPublic(public)
	if published != "" {
		all += "," + published
	}
	fmt.Fprintln(notes, `RECEIPT_KEY signs receipts: keep it as receipt_key in the secret of the facilitator's
credentials, or as the parameter ReceiptKey. RECEIPT_PUBLIC_KEYS is published in
/.well-known/did.json: the parameter ReceiptPublicKeys, a set. With RECEIPT_PUBLIC_KEYS
set to the keys so far, the new one is added to them, so that what they have signed stays valid.`)
	_, err = fmt.Fprintf(out, "RECEIPT_KEY=%s\nRECEIPT_PUBLIC_KEYS=%s\n", receipt.FormatKey(private), all)
	return err
}
