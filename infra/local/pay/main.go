// A paying client with a throw-away key: what make pay URL=… runs. It shows
// the decoded handshake on stderr, with a line on what the receipt of the answer
// comes to, and only the JSON answer on stdout. It exits with 0 only for a 200.
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/hostfacts/hostfacts/pkg/printable"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	flags := flag.NewFlagSet("pay", flag.ExitOnError)
	signature := flags.String("signature", "", "send this PAYMENT-SIGNATURE again instead of signing a new one")
	key := flags.String("key", "", "send this Idempotency-Key; a new signature without one gets a random one")
	flags.Usage = func() {
		fmt.Fprintln(os.Stderr, "usage: make pay URL='http://127.0.0.1:8402/v1/tools/dns?domain=example.com' [KEY=…] [SIGNATURE=…]")
	}
	_ = flags.Parse(os.Args[1:]) // ExitOnError
	if flags.NArg() != 1 {
		flags.Usage()
		os.Exit(2)
	}
	wallet, err := x402test.NewWallet(rand.Reader)
	if err == nil {
		if *key == "" && *signature == "" {
			*key = rand.Text()
		}
		c := &x402test.Client{HTTP: &http.Client{Timeout: 60 * time.Second, Transport: keyed{http.DefaultTransport, *key}}, Wallet: wallet, Now: time.Now}
		// A space ends the URL on the wire; a person who types one means %20.
		p := &payer{client: c, keys: http.DefaultTransport, wait: wait, url: strings.ReplaceAll(flags.Arg(0), " ", "%20"), key: *key, out: os.Stdout, notes: os.Stderr}
		err = p.pay(ctx, *signature)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "\n"+err.Error())
		os.Exit(1)
	}
}

// keyed names the purchase in every request; no key is none.
type keyed struct {
	next http.RoundTripper
	key  string
}

func (k keyed) RoundTrip(r *http.Request) (*http.Response, error) {
	if k.key != "" {
		r = r.Clone(r.Context()) // whose it is stays as it was
		r.Header.Set("Idempotency-Key", k.key)
	}
	return k.next.RoundTrip(r)
}

// wait returns after a time, or when ctx ends.
func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// payer pays for one URL.
type payer struct {
	client     *x402test.Client
	keys       http.RoundTripper // reads the keys of receipts
	wait       func(context.Context, time.Duration) error
	url        string
	key        string // Idempotency-Key; empty: none
	out, notes io.Writer

	told, hinted bool // what is said once
}

const (
	// maxTries is how often one signature is sent while the server says that
	// it may be: 409 and 503 are not answers yet.
	maxTries = 8
	// maxWait is how long a person is kept waiting for the next try.
	maxWait = time.Minute
)

// pay sends the signature, or a new one, until there is an answer or waiting
// for it would take too long. What it says before it ends is enough to go on.
func (p *payer) pay(ctx context.Context, signature string) error {
	if signature == "" {
		var err error
		if signature, err = p.sign(ctx); err != nil {
			return err
		}
	}
	for try := 1; ; try++ {
		fmt.Fprintf(p.notes, "→ GET %s\n  PAYMENT-SIGNATURE: %.24s… (%d bytes)\n", p.url, signature, len(signature))
		if p.key != "" {
			fmt.Fprintf(p.notes, "  Idempotency-Key: %s\n", printable.Text(p.key))
		}
		r, err := p.client.Get(ctx, p.url, signature)
		if err != nil {
			p.repeat(signature, "The payment may have been made.")
			return stopped(err)
		}
		p.show(r)
		p.hint(r)
		pause := r.RetryAfter()
		owed := (r.Status == http.StatusConflict || r.Status >= 500) && pause > 0
		switch {
		case owed && pause > maxWait:
			p.repeat(signature, fmt.Sprintf("Not an answer yet. Not before %s, which is in %s:", p.client.Now().Add(pause).Format("15:04:05"), pause))
			return p.finish(r)
		case !owed || try == maxTries:
			p.receipt(ctx, r)
			p.repeat(signature, "")
			return p.finish(r)
		}
		if !p.told {
			p.repeat(signature, "Not an answer yet. Should this be stopped before there is one:")
		}
		fmt.Fprintf(p.notes, "  not an answer yet; the same signature again in %s\n\n", pause)
		if err := p.wait(ctx, pause); err != nil {
			p.repeat(signature, "There was no answer yet.")
			return stopped(err)
		}
	}
}

// stopped is why there was no answer. It says what Ctrl-C did in words of its
// own.
func stopped(err error) error {
	if errors.Is(err, context.Canceled) {
		return errors.New("stopped before there was an answer")
	}
	return said(err)
}

// said is an error that may quote the server, for a terminal.
func said(err error) error { return errors.New(printable.Text(err.Error())) }

// repeat prints the line that sends the signature again, whole: it is the only
// copy of what the payer has.
func (p *payer) repeat(signature, when string) {
	p.told = true
	if when != "" {
		fmt.Fprintln(p.notes, when)
	}
	key := ""
	if p.key != "" {
		key = " KEY=" + quoted(p.key)
	}
	fmt.Fprintf(p.notes, "The same signature again, which is never charged twice:\n  make pay URL=%s%s SIGNATURE=%s\n\n", quoted(p.url), key, quoted(signature))
}

// quoted is a word for a shell.
func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// hint says what helps against the failure that a newcomer is most likely to
// meet: a network that lets no DNS out.
func (p *payer) hint(r x402test.Reply) {
	code := failure(r.Body).Code
	if p.hinted || code != "dns_timeout" && code != "upstream_unavailable" {
		return
	}
	p.hinted = true
	fmt.Fprint(p.notes, "  The service's DNS resolvers do not answer it; many networks block UDP port 53 to the outside.\n"+
		"  Start it with a resolver that it can reach:  DNS_RESOLVERS=192.0.2.53 make run\n\n")
}

func (p *payer) sign(ctx context.Context) (string, error) {
	fmt.Fprintf(p.notes, "→ GET %s\n", p.url)
	r, err := p.client.Get(ctx, p.url, "")
	if err != nil {
		return "", fmt.Errorf("%w\nIs the service running? Start it with: make run", said(err))
	}
	p.show(r)
	if r.Status != http.StatusPaymentRequired {
		return "", fmt.Errorf("expected 402 Payment Required, got %d:\n%s", r.Status, readable(r.Body))
	}
	required, err := r.Required()
	if err != nil {
		return "", said(err)
	}
	header, err := p.client.Wallet.Pay(required, p.client.Now())
	if err != nil {
		return "", said(err)
	}
	fmt.Fprintf(p.notes, "✎ signed by %s (a throw-away key)\n%s\n\n", p.client.Wallet.Address().Checksum(), decoded(header))
	return header, nil
}

func (p *payer) finish(r x402test.Reply) error {
	fmt.Fprintln(p.out, readable(r.Body))
	if r.Status != http.StatusOK {
		return fmt.Errorf("the answer is %d %s", r.Status, http.StatusText(r.Status))
	}
	return nil
}
