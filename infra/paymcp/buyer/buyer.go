package buyer

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/hostfacts/hostfacts/infra/local/bill"
	"github.com/hostfacts/hostfacts/infra/paymcp/purse"
	"github.com/hostfacts/hostfacts/pkg/mcp"
	"github.com/hostfacts/hostfacts/pkg/untrusted"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

const (
	// Window is a time that begins when an answer arrives. During this time, the same question
	// gets the stored answer.
	Window = 90 * time.Second
	// CallTime is the default time limit for a call. Hosts give up after 60 seconds.
	CallTime = 50 * time.Second
	// sendTime is the time limit for one request to the server.
	sendTime = 30 * time.Second
	// expiryMargin is a time that begins when a signature expires. During this time, the
	// signature may still be executed, because clocks differ and a block may be late.
	expiryMargin = 2 * time.Minute
)

// Upstream calls a tool of the server. It returns a *ServerError if the server answered with
// an error, and a *NotSent if the request was not sent. Any other error means that the request
// was sent and that its result is unknown.
type Upstream interface {
	Call(ctx context.Context, q Request) (Reply, error)
}

// Buyer buys from one server.
type Buyer struct {
	Server   string // the normalized URL of the server
	Upstream Upstream
	Purse    *purse.Purse
	// Terms and Wallet are called before each signature, so that a person's changes take effect
	// at once.
	Terms  func() (Terms, error)
	Wallet func() (*x402test.Wallet, error)
	// Chain returns a source that knows whether a signature has moved money. It returns nil if
	// there is no such source, as for play money. The server's own statement is then the only
	// information.
	Chain func(network, asset string) x402.Evidence
	// Receipt returns a warning if the receipt of an answer is invalid, and "" otherwise.
	Receipt func(ctx context.Context, b PaidAnswer) string
	Now     func() time.Time
	After   func(time.Duration) <-chan time.Time
	Wait    time.Duration // how long a call may take
	// HowToAllow is the command with which a person changes the limits. HowToForget returns the
	// command with which a person states that a purchase was not charged.
	HowToAllow  string
	HowToForget func(id string) string
}

// PaidAnswer is an answer that was paid for.
type PaidAnswer struct {
	Tool      string
	Arguments json.RawMessage
	Resource  string // the URL of the resource, as the offer names it
	Reply     Reply
}

// Result is the result of a call: the server's reply, notes of this program, or both.
type Result struct {
	Reply *Reply
	Notes []string
}

// messageResult returns a result without a reply, whose only note is a message of this program.
func messageResult(format string, args ...any) Result {
	return Result{Notes: []string{fmt.Sprintf(format, args...)}}
}

// Call calls a tool and pays for the answer.
func (b *Buyer) Call(ctx context.Context, tool string, arguments []byte) Result {
	canonical, err := Canonical(arguments)
	if err != nil {
		return messageResult("Nothing was asked: %s.", err)
	}
	ctx, cancel := context.WithTimeout(ctx, b.Wait)
	defer cancel()
	c, release, err := b.Purse.Hold(ctx, b.Server, tool, canonical)
	switch {
	case err != nil && ctx.Err() != nil:
		return messageResult("Another call is asking the same question and has not ended. Call %s again with the same arguments: it is one purchase, and charged once.", tool)
	case err != nil:
		return messageResult("Nothing was bought: %s.", err)
	}
	defer release()
	if c.Answer != nil && b.Now().Before(c.Answer.At.Add(Window)) {
		return b.storedAnswer(c)
	}
	if c.Answer != nil {
		c.Answer = nil
		c.Payment = nil
		c.Key = ""
	}
	if c.Payment != nil {
		return b.resume(ctx, c)
	}
	return b.askForPrice(ctx, c)
}

// storedAnswer returns the stored answer of a purchase.
func (b *Buyer) storedAnswer(c *purse.Purchase) Result {
	reply := &Reply{}
	if err := json.Unmarshal(c.Answer.Reply, reply); err != nil {
		return messageResult("The stored answer cannot be read. It was paid for; call again after %s for a new one.", formatTime(c.Answer.At.Add(Window)))
	}
	return Result{reply, []string{fmt.Sprintf("This answer is %d seconds old: the same question within %d seconds is one purchase, and was charged once.",
		int(b.Now().Sub(c.Answer.At).Seconds()), int(Window.Seconds()))}}
}

// askForPrice calls the tool without a payment to get the price.
func (b *Buyer) askForPrice(ctx context.Context, c *purse.Purchase) Result {
	limited, cancel := context.WithTimeout(ctx, sendTime)
	defer cancel()
	reply, err := b.Upstream.Call(limited, Request{
		Tool:      c.Tool,
		Arguments: c.Arguments,
		Meta:      map[string]any{},
	})
	o, asks := offerFrom(reply, err)
	switch {
	case asks:
		return b.buy(ctx, c, o)
	case err != nil:
		return messageResult("The server did not answer when it was asked for the price: %s. Nothing was signed or charged.", err)
	}
	return Result{Reply: &reply}
}

// Quote asks for the price of a call. It pays nothing.
func Quote(ctx context.Context, u Upstream, q Request) (bill.Offer, error) {
	limited, cancel := context.WithTimeout(ctx, sendTime)
	defer cancel()
	reply, err := u.Call(limited, q)
	if o, asks := offerFrom(reply, err); asks {
		return o, nil
	}
	if err != nil {
		return bill.Offer{}, err
	}
	return bill.Offer{}, fmt.Errorf("it asks for no payment: %s", quoteText(reply.Text()))
}

// offerFrom returns the offer in a server's reply or error, and reports whether there is one.
func offerFrom(reply Reply, err error) (bill.Offer, bool) {
	if e, is := errors.AsType[*ServerError](err); is {
		return e.offer()
	}
	if err != nil {
		return bill.Offer{}, false
	}
	return reply.offer()
}

// buy signs for an offer, records the signature in the book, saves the signature with the
// purchase, and then sends it.
func (b *Buyer) buy(ctx context.Context, c *purse.Purchase, o bill.Offer) Result {
	terms, err := b.Terms()
	if err != nil {
		return messageResult("Not bought: %s. Nothing was signed or charged.", err)
	}
	w, err := terms.firstAllowedWay(o)
	if err != nil {
		return messageResult("Not bought: %s. Nothing was signed or charged. Only a person can change this, in a terminal: %s", err, b.HowToAllow)
	}
	wallet, err := b.Wallet()
	if err != nil {
		return messageResult("Not bought: the key cannot be used: %s. Nothing was signed or charged.", err)
	}
	if c.Key == "" {
		c.Key = rand.Text()
	}
	c.Payment, err = signPayment(wallet, offerWithKey(o, c.Key), w, b.Now())
	if err != nil {
		return messageResult("Not bought: %s. Nothing was signed or charged.", err)
	}
	entry := purse.Entry{
		Nonce:   nonceOf(c.Payment),
		Tool:    c.Tool,
		Network: w.Network,
		Asset:   w.Asset,
		Amount:  w.Amount,
		At:      b.Now(),
	}
	if err := b.Purse.Reserve(ctx, entry, terms.PerDay); err != nil {
		return b.unreservedResult(terms, w, err)
	}
	return b.send(ctx, c, true)
}

// unreservedResult returns a message for a signature that the book did not record. It says that
// nothing was bought, and why.
func (b *Buyer) unreservedResult(terms Terms, w bill.Way, err error) Result {
	over, is := errors.AsType[*purse.OverBudget](err)
	if !is {
		return messageResult("Not bought: %s. Nothing was charged.", err)
	}
	until := ""
	if !over.RoomAt.IsZero() {
		until = fmt.Sprintf(" The budget has room for it again at %s.", formatTime(over.RoomAt))
	}
	return messageResult("Not bought: this costs %s, and %s of the budget of %s for any 24 hours is signed for already. Nothing was charged.%s "+
		"Do not try again before then. Only a person can raise the budget, in a terminal: %s",
		w.Price(), terms.formatIn(over.Spent, w), terms.formatIn(terms.PerDay, w), until, b.HowToAllow)
}

// resume continues a purchase whose signature was made by an earlier call.
func (b *Buyer) resume(ctx context.Context, c *purse.Purchase) Result {
	if c.Payment.Sending { // the process that sent the payment ended before it recorded the result
		c.Payment.Lost = true
	}
	return b.send(ctx, c, false)
}

// send sends the signature of a purchase until there is an answer or the call's time is over.
// The parameter fresh says whether this call has made the signature.
func (b *Buyer) send(ctx context.Context, c *purse.Purchase, fresh bool) Result {
	for try := 1; ; try++ {
		if early := c.Payment.NotBefore.Sub(b.Now()); early > 0 && !b.pause(ctx, early) {
			return b.pendingResult(c)
		}
		c.Payment.Sending = true
		if err := b.Purse.Keep(c); err != nil {
			return messageResult("Nothing was sent this time: %s. Without the saved signature, the payment could not be repeated.", err)
		}
		reply, err := b.sendOnce(ctx, c)
		c.Payment.Sending = false
		step := b.judge(c.Payment, reply, err)
		switch step.kind {
		case kindAnswered:
			return b.keepAnswer(ctx, c, reply)
		case kindPartial:
			return b.keepPartialAnswer(c, reply)
		case kindRefused:
			o, _ := offerFrom(reply, err)
			return b.handleRefusal(ctx, c, o, fresh)
		case kindUncharged:
			return b.dropUncharged(c, reply)
		case kindUnclear:
			return b.keepUnclear(c, reply, err)
		case kindRetry:
		}
		c.Payment.NotBefore = time.Time{}
		if step.wait > 0 {
			c.Payment.NotBefore = b.Now().Add(step.wait)
		}
		if err := b.Purse.Keep(c); err != nil {
			return messageResult("The payment was sent, and there is no answer yet: %s. Call %s again with the same arguments.", err, c.Tool)
		}
		if step.wait == 0 && !b.pause(ctx, backoff(try)) {
			return b.pendingResult(c)
		}
	}
}

// sendOnce sends the signature once.
func (b *Buyer) sendOnce(ctx context.Context, c *purse.Purchase) (Reply, error) {
	limited, cancel := context.WithTimeout(ctx, sendTime)
	defer cancel()
	meta := map[string]any{mcp.KeyPayment: c.Payment.Payload}
	if c.Payment.Keyed {
		meta[mcp.KeyPurchase] = c.Key
	}
	return b.Upstream.Call(limited, Request{Tool: c.Tool, Arguments: c.Arguments, Meta: meta})
}

// backoff returns the pause after a try, if the server did not say how long to wait. The first
// try has the number 1.
func backoff(try int) time.Duration { return time.Second << min(try-1, 4) }

// pause waits, and reports whether it did. It does not wait if the call would then have too
// little time for another request.
func (b *Buyer) pause(ctx context.Context, wait time.Duration) bool {
	const shortest = 5 * time.Second
	deadline, limited := ctx.Deadline() // this deadline is a time of the machine's clock, not of b.Now
	if limited && time.Until(deadline) < wait+shortest {
		return false
	}
	select {
	case <-ctx.Done():
		return false
	case <-b.After(wait):
		return true
	}
}

// formatTime formats a time for models and people.
func formatTime(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

// quoteText returns a third party's text, quoted for our message.
func quoteText(s string) string { return untrusted.Quote(s, mostWords) }
