// A paying client: what make pay runs. It pays with a throw-away key, or with
// the key in KEY_FILE after it asked. On stderr it says in five lines what is
// paid, by whom, where the signature is kept, what was answered and what the
// receipt comes to; on stdout is the JSON answer alone. It exits with 0 only for
// a 200.
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/term"

	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// options are what a person typed.
type options struct {
	url     string
	key     string // Idempotency-Key
	keyFile string // private key
	max     string
	again   string // a file, or "1" for the last payment
	dir     string // where payments are kept
	verbose bool
	yes     bool
}

const usage = "usage: make pay [URL='http://127.0.0.1:8402/v1/tools/dns?domain=example.com'] [KEY=...] [V=1]\n" +
	"       make pay AGAIN=1 [URL=...]\n" +
	"       make pay KEY_FILE=... URL=... [MAX=0.10] [YES=1]"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the next one ends the process
	err := run(ctx, parse(os.Args[1:]))
	if err != nil && !errors.Is(err, errAnswered) {
		fmt.Fprintln(os.Stderr, err.Error())
	}
	switch {
	case errors.Is(err, errTyped):
		os.Exit(2)
	case err != nil:
		os.Exit(1)
	}
}

// parse reads the command line, and ends the process when it cannot be read.
func parse(args []string) (o options) {
	flags := flag.NewFlagSet("pay", flag.ExitOnError)
	flags.StringVar(&o.key, "key", "", "send this Idempotency-Key; a new signature without one gets a random one")
	flags.StringVar(&o.keyFile, "key-file", "", "pay with the private key in this file, 32 bytes of hex; default: a throw-away key")
	flags.StringVar(&o.max, "max", "", "sign no more than this, in units of the token, or 5000atomic in atomic units; default "+defaultMax+" with -key-file")
	flags.StringVar(&o.again, "again", "", "send a kept signature again: 1 for the last one, or its file")
	flags.StringVar(&o.dir, "dir", filepath.Join(".local", "payments"), "keep signatures in this folder")
	flags.BoolVar(&o.verbose, "v", false, "show the decoded handshake")
	flags.BoolVar(&o.yes, "yes", false, "pay with the key in -key-file without asking")
	flags.Usage = func() { fmt.Fprintln(os.Stderr, usage); flags.PrintDefaults() }
	_ = flags.Parse(args) // ExitOnError
	if flags.NArg() > 1 {
		flags.Usage()
		os.Exit(2)
	}
	o.url = flags.Arg(0)
	return o
}

// errTyped marks what is wrong with what a person typed.
var errTyped = errors.New("")

// typed is an error in what a person typed.
func typed(format string, args ...any) error {
	return fmt.Errorf("%w"+format, append([]any{errTyped}, args...)...)
}

func run(ctx context.Context, o options) error {
	if looksPrivate(o.key) {
		return typed("KEY is the name of a purchase, which goes to the service; this one looks like a private key.\nA private key is read from a file: KEY_FILE=...")
	}
	p := &payer{
		keys: http.DefaultTransport, wait: wait, store: folder(o.dir), key: o.key,
		verbose: o.verbose, out: os.Stdout, notes: os.Stderr,
	}
	if o.again != "" {
		return again(ctx, p, o)
	}
	if o.url == "" {
		local, err := localPing(os.Getenv("LOCAL_ADDR"))
		if err != nil {
			return err
		}
		o.url = local
	}
	var err error
	if p.url, err = target(o.url); err != nil {
		return err
	}
	if p.key == "" {
		p.key = rand.Text()
	}
	wallet, err := p.wallet(o)
	if err != nil {
		return err
	}
	p.client = client(wallet, p.key)
	return p.pay(ctx)
}

// again sends a payment that is kept: to the same address and under the same key,
// unless others are typed.
func again(ctx context.Context, p *payer, o options) error {
	if o.keyFile != "" {
		return typed("AGAIN sends what is signed already and needs no KEY_FILE")
	}
	path := o.again
	if path == "1" {
		var err error
		if path, err = p.store.last(); err != nil {
			return err
		}
	}
	kept, err := readPayment(path)
	if err != nil {
		return err
	}
	if o.url != "" {
		kept.URL = o.url
	}
	if p.url, err = target(kept.URL); err != nil {
		return err
	}
	if p.key == "" {
		p.key = kept.Key
	}
	p.client = client(nil, p.key)
	return p.repeat(ctx, kept, path)
}

// wallet is the one to pay with. With a real key it also sets what is asked
// before the payment is signed.
func (p *payer) wallet(o options) (*x402test.Wallet, error) {
	if o.keyFile == "" {
		p.whose = "a throw-away key"
		if o.max != "" {
			most, err := parseLimit(o.max)
			if err != nil {
				return nil, err
			}
			p.agree = consent{most: most, yes: true, notes: p.notes}.agree
		}
		return x402test.NewWallet(rand.Reader)
	}
	if !private(p.url) {
		return nil, typed("with a real key the service has to be asked over https: over http anybody on the way could name another payee")
	}
	if o.max == "" {
		o.max = defaultMax
	}
	most, err := parseLimit(o.max)
	if err != nil {
		return nil, err
	}
	p.agree = consent{most: most, yes: o.yes, real: true, terminal: term.IsTerminal(int(os.Stdin.Fd())), in: os.Stdin, notes: p.notes}.agree
	p.whose, p.real = "the key in "+o.keyFile, true
	return readKey(o.keyFile)
}

// client follows no redirect: what was signed is for the address that was asked.
func client(wallet *x402test.Wallet, key string) *x402test.Client {
	return &x402test.Client{Wallet: wallet, Now: time.Now, HTTP: &http.Client{
		Timeout:       60 * time.Second,
		Transport:     keyed{http.DefaultTransport, key},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
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
