package judge

import (
	"context"
	"net/http"
	"strings"
	"time"
)

// defaultMaxFailures is the number of failed requests after which a payer gives up, unless the
// row has its own number. If the seller answers a request with a time to wait, the request
// does not count as failed.
const defaultMaxFailures = 5

// errand asks for the answer of a purchase, again and again until it has the answer or gives
// up. A payer that sends two requests at once has two errands, one for each request.
type errand struct {
	p              *purchase
	lastSigned     *payment // the last signed payment; nil means that a new one must be signed
	repeatsPayment bool     // whether the payer only repeats lastSigned from now on, and signs nothing more
	isUnsent       bool     // whether lastSigned has not been sent yet
	paidRequests   int      // how many requests with a payment were sent
	failures       int      // how many requests failed, with or without a payment
	hasAnswer      bool
	isOver         bool
}

// newErrand returns an errand for the answer of the purchase.
func (p *purchase) newErrand() *errand { return &errand{p: p} }

// run asks until the payer has the answer or gives up.
func (e *errand) run(ctx context.Context) {
	for !e.isOver && ctx.Err() == nil {
		e.try(ctx)
	}
	if ctx.Err() != nil {
		e.p.note("the payer gives up after a long time; it was told last: %s", e.p.lastStatement())
	}
}

// try sends one request with a payment, which it signs first if necessary.
func (e *errand) try(ctx context.Context) {
	if !e.p.stage.waitUntilUp(ctx) {
		e.isOver = true
		return
	}
	if e.mustSign() && !e.sign(ctx) {
		return
	}
	e.isUnsent = false
	sent := e.lastSigned
	e.paidRequests++
	r, err := e.p.buyer.send(ctx, attempt{payment: sent, key: e.key()})
	if err != nil {
		e.p.note("the payer gets no whole reply")
		e.countFailure(ctx, 0)
		return
	}
	e.p.recordStatement(r, sent.payload.Authorization.Nonce)
	e.handleReply(ctx, r)
}

// mustSign reports whether the next request needs a new signature.
func (e *errand) mustSign() bool {
	switch {
	case e.lastSigned == nil:
		return true
	case e.isUnsent || e.repeatsPayment:
		return false
	default:
		return !e.p.way.repeatsSignature()
	}
}

// handleReply decides what the payer does after it has received a reply.
func (e *errand) handleReply(ctx context.Context, r reply) {
	if r.kind() == kindWait && e.paidRequests > 1 {
		// How often the payer is told to wait depends on the clock. So a reply that asks the
		// payer to wait is in the report only if it answers the first paid request. Later ones
		// are told only to Config.Watch.
		e.p.tell("the payer gets %s", r.statement().text)
	} else {
		e.p.note("the payer gets %s", r.statement().text)
	}
	switch r.kind() {
	case kindAnswer:
		e.recordAnswer()
	case kindWait:
		e.wait(ctx, r.pause())
	case kindConflict:
		if e.p.way == Identifier {
			// The seller has recorded the identifier with the first payment, so the payer
			// repeats the first payment.
			e.repeatsPayment, e.lastSigned = true, e.p.firstPayment()
		}
		e.countFailure(ctx, r.pause())
	case kindUnpaid:
		e.lastSigned = nil // the seller asks for a payment, so the payer signs a new one
		e.countFailure(ctx, 0)
	case kindError:
		if e.p.way.repeatsSignature() && r.status >= http.StatusBadRequest && r.status < http.StatusInternalServerError {
			e.isOver = true
			return
		}
		e.countFailure(ctx, r.pause())
	}
}

// sign asks for the price and signs a payment. It returns false if it has signed nothing. In
// that case the seller has answered without a payment, has asked the payer to wait, or has
// made no offer that the payer could sign.
func (e *errand) sign(ctx context.Context) bool {
	p := e.p
	r, err := p.buyer.send(ctx, attempt{key: e.key()})
	if err != nil {
		p.note("the payer cannot ask for the price")
		e.countFailure(ctx, leastPause)
		return false
	}
	switch r.kind() {
	case kindAnswer:
		p.note("the payer gets the answer without a payment")
		e.recordAnswer()
		return false
	case kindUnpaid:
	case kindWait:
		e.wait(ctx, r.pause())
		return false
	default:
		p.note("the payer asks for the price, and gets %s", r.statement().text)
		e.countFailure(ctx, leastPause)
		return false
	}
	signed, err := p.sign(r)
	if err != nil {
		p.note("the payer cannot sign the offer: %s", printable(err.Error()))
		e.isOver = true
		return false
	}
	e.lastSigned = &signed
	p.note("the payer signs %s", p.paymentName(signed.payload.Authorization.Nonce))
	return true
}

// sign signs a payment for the offer in a reply.
func (p *purchase) sign(r reply) (payment, error) {
	o, err := r.offer(p.stage.court.config.World.Network)
	if err != nil {
		return payment{}, err
	}
	id := ""
	if p.way == Identifier {
		id = p.name
	}
	// Two errands of a purchase can run at once, and they share its source of random bytes.
	p.mu.Lock()
	defer p.mu.Unlock()
	signed, err := o.sign(p.payer, id, time.Now())
	if err != nil {
		return payment{}, err
	}
	p.paymentNumbers[strings.ToLower(signed.payload.Authorization.Nonce)] = len(p.paymentNumbers) + 1
	if p.first == nil {
		p.first = &signed
	}
	return signed, nil
}

func (p *purchase) firstPayment() *payment {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.first
}

// key returns the Idempotency-Key of the purchase. It is empty if the payer does not use one.
func (e *errand) key() string {
	if e.p.way == Key {
		return e.p.name
	}
	return ""
}

// recordAnswer records that the payer has the answer.
func (e *errand) recordAnswer() {
	e.hasAnswer, e.isOver = true, true
	e.p.mu.Lock()
	defer e.p.mu.Unlock()
	e.p.answeredErrands++
}

// countFailure counts a failed request. The payer then waits, or gives up after too many
// failed requests.
func (e *errand) countFailure(ctx context.Context, pause time.Duration) {
	e.failures++
	if e.failures >= e.p.stage.row.failureLimit() {
		e.isOver = true
		return
	}
	e.wait(ctx, pause)
}

func (e *errand) wait(ctx context.Context, pause time.Duration) {
	if pause == 0 {
		return
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
