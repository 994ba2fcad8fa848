package buyer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/infra/local/bill"
	"github.com/hostfacts/hostfacts/infra/paymcp/purse"
)

// verdictKind says what a reply to a payment means.
type verdictKind int

const (
	kindAnswered  verdictKind = iota // the answer, which can be an error that was charged
	kindPartial                      // an incomplete answer; the server still owes the rest
	kindRefused                      // the server refuses the payment and asks for another one
	kindUncharged                    // an error that was not charged; sending the payment again would not help
	kindUnclear                      // an error that does not say whether the payment was charged
	kindRetry                        // no answer yet: send the payment again
)

// verdict says what a reply means and, for kindRetry, how long to wait before the next try.
type verdict struct {
	kind verdictKind
	wait time.Duration // how long the server asks us to wait
}

// judge decides what a reply to a payment means, and records what the server states about the
// charge.
func (b *Buyer) judge(p *purse.Payment, reply Reply, err error) verdict {
	if err != nil {
		return judgeError(p, err)
	}
	recordCharge(p, reply.statedCharge())
	if !reply.IsError {
		p.Said = ""
		if parts := reply.owedParts(); len(parts) > 0 {
			p.Said = "owed: " + quoteText(strings.Join(parts, ", "))
			return verdict{kind: kindPartial}
		}
		return verdict{kind: kindAnswered}
	}
	p.Said = reply.errorText()
	if _, asks := reply.offer(); asks {
		if reply.settleWasTried() {
			p.Lost = true // the settlement may have been made although it was reported as failed
		}
		return verdict{kind: kindRefused}
	}
	retryable := reply.failure().Retryable
	switch {
	case retryable != nil && *retryable:
		return verdict{kindRetry, reply.retryDelay()}
	case p.Charged != nil && *p.Charged:
		return verdict{kind: kindAnswered}
	case retryable != nil && p.Charged != nil:
		return verdict{kind: kindUncharged}
	}
	return verdict{kind: kindUnclear}
}

// recordCharge records what the server says about the charge. Once the server has said that it
// charged, a later reply that does not mention the charge leaves the record unchanged.
func recordCharge(p *purse.Payment, charged *bool) {
	if charged == nil && p.Charged != nil && *p.Charged {
		return
	}
	p.Charged = charged
}

// judgeError decides what to do next after an error that came in place of a reply.
func judgeError(p *purse.Payment, err error) verdict {
	p.Said = err.Error()
	if _, is := errors.AsType[*NotSent](err); is {
		return verdict{kind: kindRetry}
	}
	recordCharge(p, nil)
	e, is := errors.AsType[*ServerError](err)
	if !is {
		p.Lost = true
		return verdict{kind: kindRetry}
	}
	if _, asks := e.offer(); asks {
		return verdict{kind: kindRefused}
	}
	p.Lost = true
	return verdict{kind: kindUnclear}
}

// keepAnswer stores an answer and returns it. If the receipt is invalid, or if the answer
// cannot be stored, the result also has a note that says that.
func (b *Buyer) keepAnswer(ctx context.Context, c *purse.Purchase, reply Reply) Result {
	r := Result{Reply: &reply}
	raw, err := json.Marshal(reply)
	if err == nil {
		c.Answer = &purse.Answer{At: b.Now(), Reply: raw}
		err = b.Purse.Keep(c)
	}
	if err != nil {
		r.Notes = append(r.Notes, fmt.Sprintf("This answer could not be kept: %s.", err))
	}
	if warning := b.Receipt(ctx, PaidAnswer{c.Tool, c.Arguments, resourceOf(c.Payment), reply}); warning != "" {
		r.Notes = append(r.Notes, "Warning: "+warning)
	}
	return r
}

// keepPartialAnswer returns an incomplete answer. The purchase stays open, so that a later
// call can get the rest.
func (b *Buyer) keepPartialAnswer(c *purse.Purchase, reply Reply) Result {
	r := Result{Reply: &reply, Notes: []string{fmt.Sprintf("Parts of this answer are still owed (%s). They are paid for: call %s again later with the same arguments, which charges nothing more.",
		quoteText(strings.Join(reply.owedParts(), ", ")), c.Tool)}}
	if err := b.Purse.Keep(c); err != nil {
		r.Notes = append(r.Notes, err.Error())
	}
	return r
}

// dropUncharged ends a purchase that the server did not charge and will never answer.
func (b *Buyer) dropUncharged(c *purse.Purchase, reply Reply) Result {
	r := Result{Reply: &reply, Notes: []string{"The server says that this was not charged."}}
	if err := b.Purse.Drop(c); err != nil {
		r.Notes = append(r.Notes, err.Error())
	}
	return r
}

// keepUnclear returns a server's error that does not say whether the payment was charged. The
// purchase stays open, and the next call sends the same signature again.
func (b *Buyer) keepUnclear(c *purse.Purchase, reply Reply, err error) Result {
	r := Result{Reply: &reply}
	if err != nil {
		r = messageResult("The server answered the payment with an error: %s.", c.Payment.Said)
	}
	r.Notes = append(r.Notes, fmt.Sprintf("It does not say whether the payment of %s was charged. If you call %s again with the same arguments, the same payment is sent again: it is not charged twice.",
		c.Payment.Price, c.Tool))
	if err := b.Purse.Keep(c); err != nil {
		r.Notes = append(r.Notes, err.Error())
	}
	return r
}

// pendingResult returns a message which says that the payment was signed and has no answer yet.
func (b *Buyer) pendingResult(c *purse.Purchase) Result {
	when := "again"
	if c.Payment.NotBefore.After(b.Now()) {
		when = fmt.Sprintf("again, not before %s,", formatTime(c.Payment.NotBefore))
	}
	charged := "It may have been charged"
	switch p := c.Payment; {
	case p.Charged != nil && *p.Charged:
		charged = "It was charged, and the answer is owed"
	case p.Charged != nil:
		charged = "The server says that it is not charged so far"
	}
	return messageResult("There is no answer yet. A payment of %s was signed. %s. The last reply was: %s. Call %s %s with exactly the same arguments: the same payment is sent again, and nothing more is charged. Other arguments would be another purchase.",
		c.Payment.Price, charged, c.Payment.Said, c.Tool, when)
}

// handleRefusal decides what to do when the server refuses the payment and asks for another
// one. It buys with a new signature only if an earlier call made the refused signature, and
// the fate of that signature is fateDead. If this call made the refused signature (fresh), the
// server would refuse a new one as well.
func (b *Buyer) handleRefusal(ctx context.Context, c *purse.Purchase, o bill.Offer, fresh bool) Result {
	p := c.Payment
	fate := b.fateOf(ctx, p)
	if fate.kind != fateDead {
		return b.refusedResult(c, fate)
	}
	if err := b.Purse.Drop(c); err != nil {
		return messageResult("Not bought: %s. The server refused the payment.", err)
	}
	if !fresh {
		c.Payment = nil
		return b.buy(ctx, c, o)
	}
	return messageResult("Not bought: the server refused the payment of %s, and it was not charged. Its reason: %s. The signature still counts toward the budget for 24 hours. "+
		"Often the wallet %s holds too little of the token; a person must check it.", p.Price, p.Said, p.Payer)
}

// refusedResult returns a message that a refused payment may still be charged, or was charged.
func (b *Buyer) refusedResult(c *purse.Purchase, f fate) Result {
	p := c.Payment
	if err := b.Purse.Keep(c); err != nil {
		return messageResult("The server refused the payment of %s, and it could not be written down: %s.", p.Price, err)
	}
	said := fmt.Sprintf("Its reason: %s. ", p.Said)
	const same = "Another call with the same arguments resends the same payment and charges nothing more."
	switch f.kind {
	case fateMoved:
		return messageResult("Charged, and not answered: the payment of %s was made%s, and the server refuses it now. %s"+
			"It owes the answer or a refund; a person must ask its operator. Nothing else is signed for this question unless a person allows it in a terminal: %s",
			p.Price, f.transactionPhrase, said, b.HowToForget(c.ID()))
	case fateStuck:
		return messageResult("Not bought again: a payment of %s for this question was sent, and may have been charged; the server refuses it now. %s"+
			"Nothing else is signed for this question, because that could be charged twice. A person who knows that it was not charged can say so in a terminal: %s",
			p.Price, said, b.HowToForget(c.ID()))
	case fateOpen, fateDead:
	}
	return messageResult("Not bought so far: the server refused the payment of %s. %sUntil %s it could still be charged, so nothing else is signed for this question before then. "+same,
		p.Price, said, formatTime(p.ValidBefore.Add(expiryMargin)))
}
