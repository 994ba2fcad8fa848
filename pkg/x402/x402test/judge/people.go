package judge

import (
	"context"
	"net/http"
	"slices"
	"time"
)

// peopleRows returns the rows about simultaneous requests, strangers, and payments that are
// reused.
func peopleRows() []row {
	repeating := []Way{Same, Tool}
	lost := firstReply("the reply is lost", none)
	return []row{
		{
			name: "at-once", what: "two requests come at once, with one signature or with two", ways: allWays(),
			facilitator: func(p *purchase, c *call, _ int) {
				p.pair(c)
				c.honest(p)
			},
			reply: func(p *purchase, _ int, r reply) int {
				p.release()
				return len(r.body)
			},
			play: playAtOnce,
		},
		{
			name: "stranger", what: "a stranger copies the authorization from the chain while the payer has no answer", ways: repeating,
			reply: lost, play: playStranger,
		},
		{
			name: "stranger-in-doubt", what: "the same, while the seller does not know whether the money has moved", ways: repeating,
			facilitator: movesAnd("answers 500 without a word", func(_ *purchase, c *call, _ string) {
				c.w.WriteHeader(http.StatusInternalServerError)
			}),
			reply: lost, play: playStranger,
		},
		{
			name: "another-question", what: "a payment that was answered is sent again, for something else", ways: repeating,
			play: playOther, needsOther: true,
		},
	}
}

// pair holds back the first call to the facilitator until there is a second call, or until one
// of the two requests of playAtOnce has its reply. pair waits no longer than Config.Hold.
func (p *purchase) pair(c *call) {
	p.mu.Lock()
	first := p.calls[verifies]+p.calls[settles] == 1
	p.mu.Unlock()
	if !first {
		p.release()
		return
	}
	close(p.holding)
	late := time.NewTimer(p.stage.court.config.Hold)
	defer late.Stop()
	select {
	case <-p.paired:
	case <-c.ctx.Done():
	case <-late.C:
	}
}

// release ends the wait in pair, so that the first call continues.
func (p *purchase) release() { p.pairs.Do(func() { close(p.paired) }) }

// playAtOnce sends two requests at the same time. Each request is repeated until it has an
// answer.
func playAtOnce(ctx context.Context, p *purchase) {
	first, second := p.errand(), p.errand()
	if !p.stage.untilUp(ctx) || !first.sign(ctx) {
		return
	}
	if second.payment = first.payment; !p.way.repeats() && !second.sign(ctx) {
		return
	}
	p.mu.Lock()
	p.requests = 2
	p.mu.Unlock()
	first.signed, second.signed = true, true
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		first.run(ctx)
	}()
	select {
	case <-p.holding: // the first request has reached the facilitator, so the second cannot overtake it
	case <-ended:
	}
	second.run(ctx)
	<-ended
	p.mu.Lock()
	defer p.mu.Unlock()
	slices.Sort(p.steps) // which request is answered first is random, but the report must be the same in every run
	p.steps = slices.Compact(p.steps)
	slices.Sort(p.words)
}

// playStranger lets the payer ask once. Then a stranger asks with the authorization that the
// chain has published, and after that the payer asks again.
func playStranger(ctx context.Context, p *purchase) {
	e := p.errand()
	e.try(ctx)
	p.visit(ctx)
	e.run(ctx)
}

// visit sends the request of a stranger. The stranger copies the authorization and its
// signature from the chain, and combines them with an offer that the seller gave to the
// stranger.
func (p *purchase) visit(ctx context.Context) {
	p.mu.Lock()
	published := p.published
	p.mu.Unlock()
	if published == nil {
		p.note("nothing has moved that a stranger could copy")
		return
	}
	stranger := &client{http: p.buyer.http, goods: p.buyer.goods, way: p.way, origin: p.stage.origin()}
	r, err := stranger.send(ctx, attempt{})
	if err != nil {
		return
	}
	o, err := r.offer(p.stage.court.config.World.Network)
	if err != nil {
		return
	}
	copied, err := o.carry(*published, "")
	if err != nil {
		return
	}
	r, err = stranger.send(ctx, attempt{payment: &copied})
	if err != nil {
		p.note("the stranger gets no whole reply")
		return
	}
	p.note("the stranger gets %s", r.statement().text)
	if r.kind() == kindAnswer {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.stranger++
	}
}

// playOther buys, and then uses the same payment to ask for something else.
func playOther(ctx context.Context, p *purchase) {
	e := p.errand()
	e.run(ctx)
	if e.payment == nil || p.way.isTool() && p.buyer.goods.OtherArgs == "" {
		return
	}
	before := p.charges()
	r, err := p.buyer.send(ctx, attempt{payment: e.payment, other: true})
	if err != nil {
		p.note("the payer asks for something else, and gets no whole reply")
		return
	}
	p.note("the payer asks for something else with the same payment, and gets %s", r.statement().text)
	if r.kind() == kindAnswer && p.charges() == before {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.another++
	}
}

// charges returns how many transfers the payer has made for the purchase so far.
func (p *purchase) charges() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.transfers)
}
