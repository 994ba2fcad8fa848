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
	lost := onFirstReply("the reply is lost", loseReply)
	return []row{
		{
			name: "at-once", summary: "two requests come at once, with one signature or with two", ways: allWays(),
			facilitator: func(p *purchase, c *facilitatorCall, _ int) {
				p.holdFirstCall(c)
				c.answerHonestly(p)
			},
			reply: func(p *purchase, _ int, r reply) int {
				p.releaseFirstCall()
				return len(r.body)
			},
			play: playAtOnce,
		},
		{
			name: "stranger", summary: "a stranger copies the authorization from the chain while the payer has no answer", ways: repeating,
			reply: lost, play: playStranger,
		},
		{
			name: "stranger-in-doubt", summary: "the same, while the seller does not know whether the money has moved", ways: repeating,
			facilitator: moveAndAnswer("answers 500 without a word", func(_ *purchase, c *facilitatorCall, _ string) {
				c.w.WriteHeader(http.StatusInternalServerError)
			}),
			reply: lost, play: playStranger,
		},
		{
			name: "another-question", summary: "a payment that was answered is sent again, for something else", ways: repeating,
			play: playOtherQuestion, needsOther: true,
		},
	}
}

// holdFirstCall holds back the first call to the facilitator until there is a second call, or
// until one of the two requests of playAtOnce has its reply. It waits no longer than
// Config.Hold.
func (p *purchase) holdFirstCall(c *facilitatorCall) {
	p.mu.Lock()
	first := p.calls[stepVerify]+p.calls[stepSettle] == 1
	p.mu.Unlock()
	if !first {
		p.releaseFirstCall()
		return
	}
	close(p.firstCallHeld)
	late := time.NewTimer(p.stage.court.config.Hold)
	defer late.Stop()
	select {
	case <-p.firstCallReleased:
	case <-c.ctx.Done():
	case <-late.C:
	}
}

// releaseFirstCall ends the wait in holdFirstCall, so that the first call continues.
func (p *purchase) releaseFirstCall() { p.releaseOnce.Do(func() { close(p.firstCallReleased) }) }

// playAtOnce sends two requests at the same time. Each request is repeated until it has an
// answer.
func playAtOnce(ctx context.Context, p *purchase) {
	first, second := p.newErrand(), p.newErrand()
	if !p.stage.waitUntilUp(ctx) || !first.sign(ctx) {
		return
	}
	if second.lastSigned = first.lastSigned; !p.way.repeatsSignature() && !second.sign(ctx) {
		return
	}
	p.mu.Lock()
	p.errands = 2
	p.mu.Unlock()
	first.isUnsent, second.isUnsent = true, true
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		first.run(ctx)
	}()
	select {
	case <-p.firstCallHeld: // the first request has reached the facilitator, so the second cannot overtake it
	case <-ended:
	}
	second.run(ctx)
	<-ended
	p.mu.Lock()
	defer p.mu.Unlock()
	slices.Sort(p.steps) // which request is answered first is random, but the report must be the same in every run
	p.steps = slices.Compact(p.steps)
	slices.Sort(p.statements)
}

// playStranger lets the payer ask once. Then a stranger asks with the authorization that the
// chain has published, and after that the payer asks again.
func playStranger(ctx context.Context, p *purchase) {
	e := p.newErrand()
	e.try(ctx)
	p.askAsStranger(ctx)
	e.run(ctx)
}

// askAsStranger sends the request of a stranger. The stranger copies the authorization and its
// signature from the chain, and combines them with an offer that the seller gave to the
// stranger.
func (p *purchase) askAsStranger(ctx context.Context) {
	p.mu.Lock()
	published := p.publishedAuth
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
	copied, err := o.newPayment(*published, "")
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
		p.strangerAnswers++
	}
}

// playOtherQuestion buys, and then uses the same payment to ask for something else.
func playOtherQuestion(ctx context.Context, p *purchase) {
	e := p.newErrand()
	e.run(ctx)
	if e.lastSigned == nil || p.way.isTool() && p.buyer.goods.OtherArgs == "" {
		return
	}
	before := p.transferCount()
	r, err := p.buyer.send(ctx, attempt{payment: e.lastSigned, asksOther: true})
	if err != nil {
		p.note("the payer asks for something else, and gets no whole reply")
		return
	}
	p.note("the payer asks for something else with the same payment, and gets %s", r.statement().text)
	if r.kind() == kindAnswer && p.transferCount() == before {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.otherAnswers++
	}
}

// transferCount returns how many transfers the payer has made for the purchase so far.
func (p *purchase) transferCount() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.transfers)
}
