// A paying client with a throw-away key: what make pay URL=… runs. It shows
// the decoded handshake on stderr and only the JSON answer on stdout, and
// exits with 0 only for a 200.
package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	flags := flag.NewFlagSet("pay", flag.ExitOnError)
	signature := flags.String("signature", "", "send this PAYMENT-SIGNATURE again instead of signing a new one")
	flags.Usage = func() {
		fmt.Fprintln(os.Stderr, "usage: make pay URL='http://127.0.0.1:8402/v1/tools/dns?domain=example.com' [SIGNATURE=…]")
	}
	_ = flags.Parse(os.Args[1:]) // ExitOnError
	if flags.NArg() != 1 {
		flags.Usage()
		os.Exit(2)
	}
	if err := pay(ctx, flags.Arg(0), *signature, os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "\n"+err.Error())
		os.Exit(1)
	}
}

// maxTries is how often one signature is sent while the server says that it
// may be: 409 and 503 are not answers yet.
const maxTries = 8

func pay(ctx context.Context, url, signature string, out, notes io.Writer) error {
	wallet, err := x402test.NewWallet(rand.Reader)
	if err != nil {
		return err
	}
	c := &x402test.Client{HTTP: &http.Client{Timeout: 60 * time.Second}, Wallet: wallet, Now: time.Now}
	if signature == "" {
		if signature, err = sign(ctx, c, url, notes); err != nil {
			return err
		}
	}
	for try := 1; ; try++ {
		fmt.Fprintf(notes, "→ GET %s\n  PAYMENT-SIGNATURE: %.24s… (%d bytes)\n", url, signature, len(signature))
		r, err := c.Get(ctx, url, signature)
		if err != nil {
			return fmt.Errorf("%w\nThe payment may have been made. Send the same signature again, it is never charged twice:\n  %s", err, repeat(url, signature))
		}
		show(notes, r)
		wait := r.RetryAfter()
		again := (r.Status == http.StatusConflict || r.Status >= 500) && wait > 0 && try < maxTries
		if !again {
			fmt.Fprintf(notes, "The same signature again, which is never charged twice:\n  %s\n\n", repeat(url, signature))
			return finish(out, r)
		}
		fmt.Fprintf(notes, "  not an answer yet; the same signature again in %s\n\n", wait)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
}

func repeat(url, signature string) string {
	return fmt.Sprintf("make pay URL='%s' SIGNATURE='%s'", url, signature)
}

func sign(ctx context.Context, c *x402test.Client, url string, notes io.Writer) (string, error) {
	fmt.Fprintf(notes, "→ GET %s\n", url)
	r, err := c.Get(ctx, url, "")
	if err != nil {
		return "", fmt.Errorf("%w\nIs the service running? Start it with: make run", err)
	}
	if r.Status != http.StatusPaymentRequired {
		return "", fmt.Errorf("expected 402 Payment Required, got %d:\n%s", r.Status, r.Body)
	}
	show(notes, r)
	required, err := r.Required()
	if err != nil {
		return "", err
	}
	header, err := c.Wallet.Pay(required, c.Now())
	if err != nil {
		return "", err
	}
	fmt.Fprintf(notes, "✎ signed by %s (a throw-away key)\n%s\n\n", c.Wallet.Address().Checksum(), decoded(header))
	return header, nil
}

// show prints an answer's status and its payment headers, decoded.
func show(notes io.Writer, r x402test.Reply) {
	fmt.Fprintf(notes, "← %d %s\n", r.Status, http.StatusText(r.Status))
	for _, name := range []string{"Idempotent-Replayed", "Retry-After", "X-Request-Id"} {
		if v := r.Header.Get(name); v != "" {
			fmt.Fprintf(notes, "  %s: %s\n", name, v)
		}
	}
	for _, name := range []string{"PAYMENT-REQUIRED", "PAYMENT-RESPONSE"} {
		if v := r.Header.Get(name); v != "" {
			fmt.Fprintf(notes, "  %s, decoded:\n%s\n", name, decoded(v))
		}
	}
	fmt.Fprintln(notes)
}

func decoded(header string) string {
	raw, err := base64.StdEncoding.DecodeString(header)
	if err != nil {
		return "    (not base64)"
	}
	var b bytes.Buffer
	if err := json.Indent(&b, raw, "    ", "  "); err != nil {
		return "    (not JSON)"
	}
	return "    " + b.String()
}

func finish(out io.Writer, r x402test.Reply) error {
	var b bytes.Buffer
	if err := json.Indent(&b, r.Body, "", "  "); err != nil {
		b.Reset()
		b.Write(r.Body)
	}
	fmt.Fprintln(out, b.String())
	if r.Status != http.StatusOK {
		return fmt.Errorf("the answer is %d %s", r.Status, http.StatusText(r.Status))
	}
	return nil
}
