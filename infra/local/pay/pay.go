package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/hostfacts/hostfacts/infra/local/called"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// payer pays for one URL.
type payer struct {
	client         *x402test.Client
	transport      http.RoundTripper
	after          func(time.Duration) <-chan time.Time
	now            func() time.Time
	url            *url.URL
	key            string // the value of the header Idempotency-Key; if empty, none is sent
	keyDescription string // a description of the wallet's key, for a person
	isRealKey      bool   // the key is from KEY_FILE, so it may have real money
	limit          *limit // the largest amount that may be signed; nil means no limit
	mustConfirm    bool   // a person must confirm the payment
	store          folder
	verbose        bool
	invocation     called.As
	in             io.Reader
	out            io.Writer
	notes          io.Writer

	savedFile   string // the file in which the payment is saved
	hintPrinted bool   // the method printHint has printed its advice, which it prints only once
	lastStatus  string // the text of the last status line that was printed in full
}

const (
	// maxTries limits how often one signature is sent. A signature is sent again if the answer
	// is a 409 or a 5xx and has a Retry-After, because the final answer is then still to come.
	maxTries = 8
	// maxWait is the longest pause before the next try while the payment is still being
	// processed.
	maxWait = time.Minute
	// patience limits the time for all tries together, because waiting longer does not help a
	// service that has no network. The limit does not apply while the payment is still being
	// processed.
	patience = 13 * time.Second
)

// errAnswered means that the answer was printed and is not a 200.
var errAnswered = errors.New("the answer is not a 200")

// resendCommand returns the command that resends this payment. The command names the file of
// the payment, so it resends this payment even when another payment is the latest.
func (p *payer) resendCommand() string {
	return p.invocation.Target("pay", called.Word{Name: "AGAIN", Flag: "-again", Value: p.savedFile})
}

// pay requests the price, signs a payment, saves the signature in a file, and then sends it.
// The order matters: once the service has the signature, it may charge the payer, and then
// only this signature can get the answer.
func (p *payer) pay(ctx context.Context) error {
	o, w, err := p.requestOffer(ctx)
	if err != nil {
		return err
	}
	from := p.client.Wallet.Address().Checksum()
	p.printNote("price:   %s to %s, for %s\npayer:   %s (%s)\n", w.Price(), w.PayTo, p.url, from, p.keyDescription)
	if err := p.confirmPayment(ctx, w); err != nil {
		return fmt.Errorf("%w\nNothing was signed", err)
	}
	signature, err := signPayment(p.client.Wallet, o, w, p.now())
	if err != nil {
		return newSafeError("%s", err)
	}
	p.savedFile, err = p.store.savePayment(payment{
		URL:       p.url.String(),
		Key:       p.key,
		Signature: signature,
		Payer:     from,
	}, p.now())
	if err != nil {
		return fmt.Errorf("save the signature: %w\nNothing was paid: without the saved signature, the payment could not be repeated", err)
	}
	last := p.invocation.Target("pay", called.Word{Name: "AGAIN", Flag: "-again", Value: "1"})
	p.printNote("kept:    %s (%s sends it again; it is never charged twice)\n", p.savedFile, last)
	return p.send(ctx, signature)
}

// resend resends a saved payment.
func (p *payer) resend(ctx context.Context, kept payment) error {
	p.printNote("again:   %s, for %s\npayer:   %s\n", p.savedFile, p.url, kept.Payer)
	return p.send(ctx, kept.Signature)
}

// send sends a signature until there is a final answer. It gives up after maxTries tries, or
// if waiting for the next try would take too long.
func (p *payer) send(ctx context.Context, signature string) error {
	begun := p.now()
	for try := 1; ; try++ {
		sent := p.now()
		r, err := p.client.Get(ctx, p.url.String(), signature)
		if err != nil {
			return p.errorWithoutAnswer(err)
		}
		p.printStatus(r)
		p.printHint(r)
		pause := r.RetryAfter()
		if pause == 0 || r.Status != http.StatusConflict && r.Status < 500 {
			p.printReceiptCheck(ctx, r)
			return p.printAnswer(r)
		}
		left := maxWait
		if !isStillProcessing(r) {
			took := p.now().Sub(sent)
			left = patience - p.now().Sub(begun) - took // this assumes that the next try takes as long as the last
		}
		switch {
		case pause > left:
			p.printNote("         No answer yet; the payment is kept. From %s on (in %s): %s\n", p.now().Add(pause).Format("15:04:05"), pause, p.resendCommand())
			return p.printAnswer(r)
		case try == maxTries:
			p.printNote("         No answer yet after %d tries; the payment is kept. To continue later: %s\n", try, p.resendCommand())
			return p.printAnswer(r)
		}
		p.printNote("         no answer yet; sending the same signature again in %s\n", pause)
		select {
		case <-ctx.Done():
			return errors.New("stopped before there was an answer\n" + p.resendCommand() + " continues with this payment")
		case <-p.after(pause):
		}
	}
}

// isStillProcessing reports whether the final answer is missing only because the payment is
// still being processed, which may take a while.
func isStillProcessing(r x402test.Reply) bool {
	code := parseBodyError(r.Body).Code
	return code == "settlement_uncertain" || code == "payment_in_progress"
}

// errorWithoutAnswer returns an error that says what to do after a request with a signature
// got no answer.
func (p *payer) errorWithoutAnswer(err error) error {
	switch {
	case errors.Is(err, context.Canceled):
		return errors.New("stopped before there was an answer\nThe payment may have been made. " + p.resendCommand() + " continues with it")
	case isUnconnected(err):
		return fmt.Errorf("%w\nNothing was sent this time, and the payment is kept. When the service can be reached again: %s", unreachableError(p.url, err), p.resendCommand())
	}
	return newSafeError("%s\nNo answer came, and the payment may have been made. %s continues with it", err, p.resendCommand())
}

// printAnswer prints the body of the last answer. If its status is not 200, printAnswer
// returns errAnswered.
func (p *payer) printAnswer(r x402test.Reply) error {
	fmt.Fprintln(p.out, formatBody(r.Body))
	if r.Status != http.StatusOK {
		return errAnswered
	}
	return nil
}

// printHint prints advice for the failures that newcomers meet most: no network, a network that
// blocks DNS, and a service that takes real money.
func (p *payer) printHint(r x402test.Reply) {
	code := parseBodyError(r.Body).Code
	switch {
	case p.hintPrinted:
		return
	case code == "dns_timeout", code == "upstream_unavailable":
		p.printNote("         The service gets no usable answer from its DNS resolvers: many networks block or change DNS.\n" +
			"         Start it with a resolver it can reach: DNS_RESOLVERS=192.0.2.53 make run\n")
	case code == "bootstrap_unavailable", code == "facilitator_unavailable", r.Status == http.StatusGatewayTimeout:
		p.printNote("         The service could not reach the servers it needs. Does its machine have a network?\n")
	case r.Status == http.StatusPaymentRequired && p.client.Wallet != nil && !p.isRealKey:
		p.printNote("         A throwaway key holds no money, so only play money (make run) accepts it. %s pays with a real key.\n",
			p.invocation.Text(called.Word{Name: "KEY_FILE", Flag: "-key-file", Value: "..."}))
	default:
		return
	}
	p.hintPrinted = true
}

// RoundTrip adds the Idempotency-Key to a request and sends the request. With V=1 it prints
// the request and the answer.
func (p *payer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context()) // a RoundTripper must not change the caller's request
	if p.key != "" {
		r.Header.Set(x402.HeaderKey, p.key)
	}
	p.printHeaders(r.Header, "→ %s %s\n", r.Method, p.url)
	res, err := p.transport.RoundTrip(r)
	if err == nil {
		p.printHeaders(res.Header, "← %d %s\n", res.StatusCode, http.StatusText(res.StatusCode))
	}
	return res, err
}
