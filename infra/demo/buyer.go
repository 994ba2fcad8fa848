package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// buyer behaves like most clients: if a request brings no answer, the buyer signs and sends a
// new payment. Only if the seller says that a payment is being processed (409) does the buyer
// send the same payment again.
type buyer struct {
	tell    func(tone, string)
	url     string
	client  *x402test.Client
	offer   x402.PaymentRequired // the offer for which every payment is signed; the first try requests it
	answers int

	mu     sync.Mutex
	nonces []string // the nonces of the buyer's payments
}

func newBuyer(url string, tell func(tone, string)) (*buyer, error) {
	wallet, err := x402test.NewWallet(rand.Reader)
	if err != nil {
		return nil, err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	return &buyer{tell: tell, url: url, client: &x402test.Client{HTTP: client, Wallet: wallet, Now: time.Now}}, nil
}

func (b *buyer) hasAnswer() bool { return b.answers > 0 }

// try signs a payment and sends it. As long as the reply is a 409, try sends the same payment
// again. After each reply, try waits as long as Retry-After says. If the buyer already has an
// answer, try does nothing.
func (b *buyer) try(ctx context.Context) error {
	if b.hasAnswer() {
		return nil
	}
	if b.offer.X402Version == 0 {
		offer, err := b.client.Challenge(ctx, b.url)
		if err != nil {
			return err
		}
		b.offer = offer
	}
	header, err := b.sign()
	if err != nil {
		return err
	}
	for resend := true; resend; {
		begun := time.Now()
		reply, err := b.client.Get(ctx, b.url, header)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		resend = b.handleReply(reply, err, time.Since(begun))
		if err := wait(ctx, reply.RetryAfter()); err != nil {
			return err
		}
	}
	return nil
}

// sign signs a new payment for the offer, and returns it as a header.
func (b *buyer) sign() (header string, err error) {
	draft, err := b.client.Wallet.Draft(b.offer, time.Now())
	if err != nil {
		return "", err
	}
	b.mu.Lock()
	b.nonces = append(b.nonces, draft.Payload.Payload.Authorization.Nonce)
	n := len(b.nonces)
	b.mu.Unlock()
	b.tell(plain, fmt.Sprintf("client signs payment %d", n))
	return b.client.Wallet.Seal(draft)
}

// paymentName returns the text with which the timeline names the payment in a call to the
// facilitator, such as "payment 1".
func (b *buyer) paymentName(call []byte) string {
	var q struct {
		PaymentPayload x402.Payload `json:"paymentPayload"`
	}
	_ = json.Unmarshal(call, &q) // if the call has no payment, no nonce matches
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, nonce := range b.nonces {
		if nonce == q.PaymentPayload.Payload.Authorization.Nonce {
			return fmt.Sprintf("payment %d", i+1)
		}
	}
	return "a payment of somebody else"
}

// handleReply prints a reply. If a reply without the answer took at least explainDelay, it
// also prints the time that the reply took. It returns true if the buyer must send the same
// payment again.
func (b *buyer) handleReply(r x402test.Reply, lost error, took time.Duration) (resend bool) {
	text := replyText(r)
	status := fmt.Sprint(r.Status)
	if took >= explainDelay {
		status += " after " + seconds(took)
	}
	switch {
	case lost != nil:
		b.tell(bad, "client gets no answer")
	case r.Status == http.StatusOK:
		b.answers++
		b.tell(good, "client has the answer: "+text)
	case r.RetryAfter() > 0:
		b.tell(plain, fmt.Sprintf("client is told %s: %s (waits %s)", status, text, seconds(r.RetryAfter())))
	default:
		b.tell(plain, fmt.Sprintf("client is told %s: %s", status, text))
	}
	return lost == nil && r.Status == http.StatusConflict
}

// replyText returns what the timeline shows of a reply: the MX host, the error message, or
// else the first line.
func replyText(r x402test.Reply) string {
	var body struct {
		Error struct{ Message string }
		// Only the answer of the service has Records.
		Records []struct{ Exchange string }
	}
	switch err := json.Unmarshal(r.Body, &body); {
	case err == nil && len(body.Records) > 0:
		return "MX " + body.Records[0].Exchange
	case err == nil && body.Error.Message != "":
		return body.Error.Message
	}
	line, _, _ := strings.Cut(string(r.Body), "\n")
	return line
}

// seconds returns a time in whole seconds, such as 8s.
func seconds(d time.Duration) string { return d.Round(time.Second).String() }

// wait waits for d, or until the context ends.
func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
