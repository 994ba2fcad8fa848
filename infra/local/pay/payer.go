package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/hostfacts/hostfacts/pkg/printable"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// payer pays for one URL.
type payer struct {
	client *x402test.Client
	keys   http.RoundTripper // reads the keys of receipts
	wait   func(context.Context, time.Duration) error
	url    string
	key    string // Idempotency-Key; empty: none
	whose  string // what the wallet's key is, for a person
	real   bool   // the key may have money
	// agree decides whether a charge may be signed; nil: any may be.
	agree      func(context.Context, way) error
	store      folder
	verbose    bool
	out, notes io.Writer

	hinted bool // what is said once
}

const (
	// maxTries is how often one signature is sent while the server says that
	// it may be: 409 and 503 are not answers yet.
	maxTries = 8
	// maxWait is how long a person is kept waiting for the next try.
	maxWait = time.Minute
)

// errAnswered says that the answer, which was shown, is not a 200.
var errAnswered = errors.New("the answer is not a 200")

// howAgain is the command that sends the last signature again.
const howAgain = "make pay AGAIN=1"

// pay asks for the price, signs it, keeps the signature and sends it. The
// signature is in the file before it is sent: from then on it may be charged, and
// is the only way to the answer.
func (p *payer) pay(ctx context.Context) error {
	o, w, err := p.ask(ctx)
	if err != nil {
		return err
	}
	from := p.client.Wallet.Address().Checksum()
	fmt.Fprintf(p.notes, "price:   %s to %s, for %s\n", w.price(), printable.Text(w.PayTo), printable.Text(p.url))
	fmt.Fprintf(p.notes, "payer:   %s (%s)\n", from, printable.Text(p.whose))
	if p.agree != nil {
		if err := p.agree(ctx, w); err != nil {
			return fmt.Errorf("%w\nNothing was signed", err)
		}
	}
	signature, err := seal(p.client.Wallet, o, w, p.client.Now())
	if err != nil {
		return said(err)
	}
	path, err := p.store.keep(payment{URL: p.url, Key: p.key, Signature: signature, Payer: from}, p.client.Now())
	if err != nil {
		return fmt.Errorf("%w\nNothing was paid: a signature that is lost could not be sent again", err)
	}
	fmt.Fprintf(p.notes, "kept:    %s (%s sends it again; it is never charged twice)\n", printable.Text(path), howAgain)
	return p.send(ctx, signature)
}

// repeat sends a payment that is kept.
func (p *payer) repeat(ctx context.Context, kept payment, path string) error {
	fmt.Fprintf(p.notes, "again:   %s, for %s\npayer:   %s\n", printable.Text(path), printable.Text(p.url), printable.Text(kept.Payer))
	return p.send(ctx, kept.Signature)
}

// send sends a signature until there is an answer or waiting for it would take
// too long.
func (p *payer) send(ctx context.Context, signature string) error {
	for try := 1; ; try++ {
		p.showRequest(signature)
		r, err := p.client.Get(ctx, p.url, signature)
		if err != nil && unconnected(err) && !errors.Is(err, context.Canceled) {
			return fmt.Errorf("%w\nNothing was sent this time. When the service runs: %s", unreachable(p.url, err), howAgain)
		}
		if err != nil {
			return fmt.Errorf("%w\nThere was no answer, and the payment may have been made. %s goes on with it", stopped(err), howAgain)
		}
		p.show(r)
		p.status(r)
		p.hint(r)
		pause := r.RetryAfter()
		unanswered := (r.Status == http.StatusConflict || r.Status >= 500) && pause > 0
		switch {
		case unanswered && pause > maxWait:
			fmt.Fprintf(p.notes, "         Not an answer yet. Not before %s, which is in %s: %s\n", p.client.Now().Add(pause).Format("15:04:05"), pause, howAgain)
			return p.finish(r)
		case unanswered && try == maxTries:
			fmt.Fprintf(p.notes, "         Not an answer yet, after %d tries. Later: %s\n", try, howAgain)
			return p.finish(r)
		case !unanswered:
			p.receipt(ctx, r)
			return p.finish(r)
		}
		fmt.Fprintf(p.notes, "         not an answer yet; the same signature again in %s\n", pause)
		if err := p.wait(ctx, pause); err != nil {
			return fmt.Errorf("%w\n%s goes on with this payment", stopped(err), howAgain)
		}
	}
}

// finish prints the answer.
func (p *payer) finish(r x402test.Reply) error {
	fmt.Fprintln(p.out, readable(r.Body))
	if r.Status != http.StatusOK {
		return errAnswered
	}
	return nil
}

// hint says what helps against the failures that a newcomer is most likely to
// meet: a network that lets no DNS out, and a service that takes real money.
func (p *payer) hint(r x402test.Reply) {
	code := failure(r.Body).Code
	switch {
	case p.hinted:
		return
	case code == "dns_timeout", code == "upstream_unavailable":
		fmt.Fprint(p.notes, "         The service's DNS resolvers do not answer it; many networks block UDP port 53 to the outside.\n"+
			"         Start it with a resolver that it can reach: DNS_RESOLVERS=192.0.2.53 make run\n")
	case r.Status == http.StatusPaymentRequired && p.client.Wallet != nil && !p.real:
		fmt.Fprint(p.notes, "         A throw-away key has no money; make run takes it, as play money. KEY_FILE=... pays with a real key.\n")
	default:
		return
	}
	p.hinted = true
}

// stopped is why there was no answer. It has other words for what Ctrl-C did.
func stopped(err error) error {
	if errors.Is(err, context.Canceled) {
		return errors.New("stopped before there was an answer")
	}
	return said(err)
}

// said is an error that may quote the server, for a terminal.
func said(err error) error { return errors.New(printable.Text(err.Error())) }
