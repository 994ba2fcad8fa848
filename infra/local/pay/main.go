// Command pay is a paying client. "make pay" runs it. Without a clone:
//
//	go run github.com/hostfacts/hostfacts/infra/local/pay@latest URL
//
// It pays with a throwaway key, or with the key in KEY_FILE. Before it pays with the key in
// KEY_FILE, it asks a person to confirm the payment, unless YES=1 is set. It prints five lines
// on stderr: the price, the payer, where the signature is saved, the status, and whether the
// receipt is valid. Only the JSON answer goes to stdout. The exit status is 0 only if the answer
// has the HTTP status 200.
package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"syscall"
	"time"

	"github.com/hostfacts/hostfacts/infra/local/bill"
	"github.com/hostfacts/hostfacts/infra/local/called"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// options are the parsed command line.
type options struct {
	url     string
	key     string // the value of the header Idempotency-Key; if empty, a new purchase gets a random key
	keyFile string // the file with the private key
	max     string
	again   string // the file of a saved payment, or "1" for the last one
	dir     string // the folder in which payments are saved
	local   string // the value of LOCAL_ADDR, the address that "make run" listens on
	verbose bool
	yes     bool
}

// usage is the usage message if make runs the command. It names the variables of "make pay".
const usage = "usage: make pay [URL='http://127.0.0.1:8402/v1/tools/dns?domain=example.com'] [KEY=...] [V=1]\n" +
	"       make pay AGAIN=1 [URL=...]\n" +
	"       make pay KEY_FILE=... URL=... [MAX=0.10] [YES=1]"

func main() {
	if version, asked := called.Version(os.Args); asked {
		fmt.Println(version)
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the next signal ends the process
	as := called.Here(os.Getenv, os.Args[0])
	p := &payer{
		invocation: as,
		transport:  newTransport(new(net.Dialer).DialContext),
		after:      time.After,
		now:        time.Now,
		in:         os.Stdin,
		out:        os.Stdout,
		notes:      os.Stderr,
	}
	err := p.run(ctx, parse(os.Args[1:], as))
	if err != nil && !errors.Is(err, errAnswered) {
		fmt.Fprintln(os.Stderr, err.Error())
	}
	switch {
	case errors.Is(err, errUsage):
		os.Exit(2)
	case err != nil:
		os.Exit(1)
	}
}

// parse parses the command line, and ends the process when it is wrong.
func parse(args []string, invocation called.As) (o options) {
	flags := flag.NewFlagSet("pay", flag.ExitOnError)
	flags.StringVar(&o.key, "key", "", "the Idempotency-Key to send; default: random")
	flags.StringVar(&o.keyFile, "key-file", "", "pay with the private key in this file, 32 bytes of hex; default: a throwaway key, kept in -dir")
	flags.StringVar(&o.max, "max", "", "never pay more than this, in units of the token (0.10) or in atomic units (5000atomic); default "+defaultMax+" with -key-file")
	flags.StringVar(&o.again, "again", "", "resend a kept signature: 1 for the last one, or its file")
	flags.StringVar(&o.dir, "dir", filepath.Join(".local", "payments"), "keep signatures and the throwaway key in this folder")
	flags.BoolVar(&o.verbose, "v", false, "also show the payment headers, decoded")
	flags.BoolVar(&o.yes, "yes", false, "pay with the key in -key-file without asking")
	flags.Usage = func() {
		if invocation.ByMake() {
			fmt.Fprintln(os.Stderr, usage)
		} else {
			fmt.Fprintf(os.Stderr, "usage: %[1]s [flags] URL\n       %[1]s -version\n", invocation.Program(""))
		}
		flags.PrintDefaults()
	}
	_ = flags.Parse(args) // on an error this ends the process (ExitOnError)
	if flags.NArg() > 1 {
		flags.Usage()
		os.Exit(2)
	}
	o.url = flags.Arg(0)
	o.local = os.Getenv("LOCAL_ADDR")
	return o
}

// errUsage marks errors that say what is wrong with the command line.
var errUsage = errors.New("")

// usageError returns an error that says what is wrong with the command line. It wraps errUsage.
func usageError(format string, args ...any) error {
	return fmt.Errorf("%w%s", errUsage, formatSafe(format, args...))
}

func (p *payer) run(ctx context.Context, o options) (err error) {
	if regexp.MustCompile(`^\s*(0x)?[0-9a-fA-F]{64}\s*$`).MatchString(o.key) {
		return usageError("KEY is the Idempotency-Key, which is sent to the service, and this one looks like a private key.\nTo pay with a private key, put it in a file: KEY_FILE=...")
	}
	if o.key != "" && !x402.ValidKey(o.key) {
		return usageError("KEY must be at most 255 visible ASCII characters, without spaces")
	}
	p.store = folder(o.dir)
	p.key = o.key
	p.verbose = o.verbose
	if o.again != "" {
		return p.resendSaved(ctx, o)
	}
	if o.url == "" {
		if o.url, err = localPing(o.local); err != nil {
			return err
		}
	}
	if p.url, err = parseTarget(o.url); err != nil {
		return err
	}
	wallet, err := p.wallet(o)
	if err != nil {
		return err
	}
	p.key = cmp.Or(p.key, rand.Text())
	p.client = bill.Client(wallet, p)
	return p.pay(ctx)
}

// resendSaved resends a saved payment. The Idempotency-Key and the address of the service may
// differ from the saved ones. The request may not differ, because the signature pays for one
// request.
func (p *payer) resendSaved(ctx context.Context, o options) (err error) {
	if o.keyFile != "" {
		return usageError("AGAIN resends a payment that is signed already: leave out KEY_FILE")
	}
	path := o.again
	if path == "1" {
		if path, err = p.store.latestPayment(); err != nil {
			return err
		}
	}
	kept, err := readPayment(path)
	if err != nil {
		return err
	}
	if p.url, err = parseTarget(kept.URL); err != nil {
		return usageError("AGAIN: %s is not a kept payment: its url is %q", path, kept.URL)
	}
	if o.url != "" {
		signed := *p.url
		if p.url, err = parseTarget(o.url); err != nil {
			return err
		}
		if !sameQuestion(signed, *p.url) {
			return usageError("AGAIN resends the payment for %s, but URL asks for something else. Leave out URL to resend it, or AGAIN to pay for that URL", signed.String())
		}
	}
	p.key = cmp.Or(p.key, kept.Key)
	p.savedFile = path
	p.client = bill.Client(nil, p)
	return p.resend(ctx, kept)
}

// sameQuestion reports whether two URLs make the same request. The two URLs may name different
// services.
func sameQuestion(a, b url.URL) bool {
	a.Scheme, a.Host = b.Scheme, b.Host
	return bill.Question(&a) == bill.Question(&b)
}

// wallet returns the wallet to pay with. It also sets the conditions under which the payer
// signs.
func (p *payer) wallet(o options) (*x402test.Wallet, error) {
	p.keyDescription = "a throwaway key, which can pay with play money only"
	p.isRealKey = o.keyFile != ""
	p.mustConfirm = !o.yes && o.keyFile != ""
	if p.isRealKey {
		p.keyDescription = "the key in " + o.keyFile
		o.max = cmp.Or(o.max, defaultMax)
		if p.url.Scheme != "https" && !bill.IsLoopback(p.url) {
			return nil, usageError("a real key pays over https only: over http, anybody on the path could name another payee")
		}
	}
	if o.max != "" {
		most, err := parseLimit(o.max)
		if err != nil {
			return nil, err
		}
		p.limit = &most
	}
	if p.isRealKey {
		return readKey(o.keyFile)
	}
	wallet, err := p.store.throwawayWallet()
	if err != nil {
		return nil, fmt.Errorf("keep the throwaway key: %w\nNothing was paid", err)
	}
	return wallet, nil
}
