package judge

import (
	"context"
	"net/http"
	"strings"
	"time"
)

// mostTries is the number of failed requests after which a payer gives up. A request that the
// seller answers with a time to wait is not a failed one.
const mostTries = 5

// errand asks for the answer of a purchase, again and again until it has the answer or gives
// up. A payer that sends two requests at once has two errands, one for each request.
type errand struct {
	p        *purchase
	payment  *payment // the last signed payment; nil means that a new one must be signed
	repeats  bool     // whether payment is repeated from now on, and nothing more is signed
	signed   bool     // whether payment is new and has not been sent
	sends    int      // how many requests with a payment were sent
	vain     int      // how many requests failed, with or without a payment
	answered bool
	over     bool
}

func (p *purchase) errand() *errand { return &errand{p: p} }

// run asks until the payer has the answer or gives up.
func (e *errand) run(ctx context.Context) {
	for !e.over && ctx.Err() == nil {
		e.try(ctx)
	}
	if ctx.Err() != nil {
		e.p.note("the payer gives up after a long time; it was told last: %s", e.p.said())
	}
}

// try sends one request with a payment, which it signs first if necessary.
func (e *errand) try(ctx context.Context) {
	if !e.p.stage.untilUp(ctx) {
		e.over = true
		return
	}
	if e.mustSign() && !e.sign(ctx) {
		return
	}
	e.signed = false
	sent := e.payment
	e.sends++
	r, err := e.p.buyer.send(ctx, attempt{payment: sent, key: e.key()})
	if err != nil {
		e.p.note("the payer gets no whole reply")
		e.inVain(ctx, 0)
		return
	}
	e.p.heard(r, sent.signed.Authorization.Nonce)
	e.read(ctx, r)
}

// mustSign reports whether the next request needs a new signature.
func (e *errand) mustSign() bool {
	switch {
	case e.payment == nil:
		return true
	case e.signed || e.repeats:
		return false
	default:
		return !e.p.way.repeats()
	}
}

// read decides what the payer does after it has received a reply.
func (e *errand) read(ctx context.Context, r reply) {
	if r.kind() == kindWait && e.sends > 1 {
		// How often the payer is told to wait depends on the clock. So a reply that asks the
		// payer to wait is in the report only if it answers the first paid request. Later ones
		// are told only to Config.Watch.
		e.p.tell("the payer gets %s", r.statement().text)
	} else {
		e.p.note("the payer gets %s", r.statement().text)
	}
	switch r.kind() {
	case kindAnswer:
		e.answer()
	case kindWait:
		e.wait(ctx, r.pause())
	case kindConflict:
		if e.p.way == Identifier {
			// The seller has recorded the identifier with the first payment, so the payer
			// repeats the first payment.
			e.repeats, e.payment = true, e.p.firstPayment()
		}
		e.inVain(ctx, r.pause())
	case kindUnpaid:
		e.payment = nil // the seller asks for a payment, so the payer signs a new one
		e.inVain(ctx, 0)
	case kindError:
		if e.p.way.repeats() && r.status >= http.StatusBadRequest && r.status < http.StatusInternalServerError {
			e.over = true
			return
		}
		e.inVain(ctx, r.pause())
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
		e.inVain(ctx, leastPause)
		return false
	}
	switch r.kind() {
	case kindAnswer:
		p.note("the payer gets the answer without a payment")
		e.answer()
		return false
	case kindUnpaid:
	case kindWait:
		e.wait(ctx, r.pause())
		return false
	default:
		p.note("the payer asks for the price, and gets %s", r.statement().text)
		e.inVain(ctx, leastPause)
		return false
	}
	signed, err := p.sign(r)
	if err != nil {
		p.note("the payer cannot sign the offer: %s", printable(err.Error()))
		e.over = true
		return false
	}
	e.payment = &signed
	p.note("the payer signs %s", p.named(signed.signed.Authorization.Nonce))
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
	p.number[strings.ToLower(signed.signed.Authorization.Nonce)] = len(p.number) + 1
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

// answer records that the payer has the answer.
func (e *errand) answer() {
	e.answered, e.over = true, true
	e.p.mu.Lock()
	defer e.p.mu.Unlock()
	e.p.answered++
}

// inVain counts a failed request. The payer then waits, or gives up after too many failed
// requests.
func (e *errand) inVain(ctx context.Context, pause time.Duration) {
	e.vain++
	if e.vain >= e.p.stage.row.mostTries() {
		e.over = true
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
