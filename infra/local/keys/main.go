// Command keys is what the operator of a deployment does with keys: receipt-key
// makes the key that signs receipts, sign-origin signs the deployment's origin with
// the key of its payee. It works offline, and is a program of its own so that the
// payee's key is in no process that has the clients of AWS and of the chain.
//
//	go run ./infra/local/keys receipt-key
//	go run ./infra/local/keys sign-origin -origin https://api.example.com [-pay-to 0x...] [-key-file FILE]
package main

import (
	"crypto/rand"
	"fmt"
	"io"
	"os"
)

// The exit statuses other than 0.
const (
	exitFailed = 1
	exitUsage  = 2
)

func main() { os.Exit(run(os.Args[1:], os.Getenv, os.Stdout, os.Stderr)) }

// run is the whole program; it returns the exit status.
func run(args []string, getenv func(string) string, out, notes io.Writer) int {
	if len(args) == 0 {
		args = []string{""}
	}
	switch args[0] {
	case "receipt-key":
		if err := makeReceiptKey(rand.Reader, getenv("RECEIPT_PUBLIC_KEYS"), out, notes); err != nil {
			fmt.Fprintln(notes, err)
			return exitFailed
		}
		return 0
	case "sign-origin":
		return runSignOrigin(args[1:], out, notes)
	}
	fmt.Fprintln(notes, "usage: keys receipt-key|sign-origin ...; make help lists what runs them")
	return exitUsage
}
