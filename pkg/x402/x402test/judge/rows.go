package judge

import (
	"context"
	"net/http"
	"slices"
	"time"
)

// row is one kind of failure.
type row struct {
	name, what string
	ways       []Way
	// facilitator answers the nth call of /verify or of /settle about the purchase, counted
	// from 1 for each path; nil means a correct facilitator.
	facilitator func(p *purchase, c *call, n int)
	// reply returns how many bytes of the nth reply to a payment reach the payer; nil means all.
	reply func(p *purchase, n int, r reply) int
	// play makes the payer's requests; nil means that the payer asks until it has the answer.
	play func(ctx context.Context, p *purchase)

	nothing       bool // no money moves, so a purchase without an answer is correct
	plain         bool // nothing fails, so the protocol itself promises an answer
	tries         int  // how many failed requests make a payer give up; 0 means mostTries
	needsUpstream bool // the upstream (see bank) fails, so the seller must depend on it
	needsPrice    bool // the price changes, so the seller must be able to start with another price
	needsOther    bool // a payer asks for something else, so the seller must sell something else
}

func (r row) mostTries() int {
	if r.tries > 0 {
		return r.tries
	}
	return mostTries
}

// unplayable returns why a row cannot be played with this seller. It is empty if the row can
// be played.
func (r row) unplayable(j *court, ways []Way) string {
	switch {
	case len(ways) == 0:
		return "there is nothing to buy in a way that this row is about"
	case r.needsPrice && (j.config.OtherPrice == "" || j.config.Price == ""):
		return "the seller cannot be started with another price: see {price}"
	case r.needsOther && !j.config.Goods.hasOther():
		return "there is nothing else to ask for"
	}
	return ""
}

// hasOther reports whether a payer can ask for something else.
func (g Goods) hasOther() bool {
	return g.OtherPath != "" || g.OtherBody != "" || g.OtherArgs != "" || g.Path != "" && g.Body == ""
}

// RowNames returns the names of all rows in their order.
func RowNames() []string {
	var all []string
	for _, r := range allRows() {
		all = append(all, r.name)
	}
	return all
}

func allRows() []row {
	return slices.Concat(lineRows(), facilitatorRows(), killRows(), peopleRows(), sellerRows())
}

// lineRows returns the rows in which something is lost between payer and seller.
func lineRows() []row {
	half := func(r reply) int { return len(r.body) / 2 }
	return []row{
		{name: "clean", what: "nothing fails", ways: allWays(), plain: true},
		{name: "reply-lost", what: "the reply to the first payment is lost", ways: allWays(), reply: firstReply("the reply is lost", none)},
		{name: "reply-cut", what: "the reply to the first payment is cut off", ways: allWays(), reply: firstReply("the reply is cut off in the middle", half)},
		{
			name: "reply-late", what: "the payer gives up while the facilitator settles", ways: allWays(),
			facilitator: firstSettle(func(p *purchase, c *call) {
				p.note("the payer gives up while the facilitator settles %s", p.named(c.payload.Payload.Authorization.Nonce))
				resume := p.line.giveUp()
				defer resume()
				c.honest(p)
			}),
		},
	}
}

// none returns -1: no byte of a reply reaches the payer, because the connection breaks.
func none(reply) int { return -1 }

// firstReply returns a function for row.reply that changes only the first reply to a payment.
// The function arriving decides how many bytes of that reply reach the payer. The given text
// describes the loss in the report.
func firstReply(what string, arriving func(reply) int) func(p *purchase, n int, r reply) int {
	return func(p *purchase, n int, r reply) int {
		if n > 1 {
			return len(r.body)
		}
		p.note("%s", what)
		return arriving(r)
	}
}

// firstSettle returns a function for row.facilitator. It lets the given function handle the
// first call of /settle about a purchase, and answers all other calls correctly.
func firstSettle(answer func(p *purchase, c *call)) func(p *purchase, c *call, n int) {
	return func(p *purchase, c *call, n int) {
		if c.step != settles || n > 1 {
			p.honest(c)
			return
		}
		answer(p, c)
	}
}

// movesAnd returns a function for row.facilitator. At the first call of /settle about a
// purchase, it moves the money and lets the given function write the answer. The given text
// describes this answer in the report.
func movesAnd(what string, says func(p *purchase, c *call, transaction string)) func(p *purchase, c *call, n int) {
	return firstSettle(func(p *purchase, c *call) {
		moved := c.move(p)
		p.note("the facilitator settles %s, and %s", p.named(c.payload.Payload.Authorization.Nonce), what)
		says(p, c, moved.Transaction)
	})
}

// facilitatorRows returns the rows in which the facilitator does something wrong.
func facilitatorRows() []row {
	return []row{
		{
			name: "settle-silent", what: "the facilitator settles, but never answers", ways: allWays(),
			facilitator: movesAnd("does not answer", func(p *purchase, c *call, _ string) { c.hold(p.stage.court.config.Hold) }),
		},
		{
			name: "settle-refused", what: "the facilitator settles, but says that the payer lacks the funds", ways: allWays(),
			facilitator: movesAnd("says that the payer lacks the funds", func(_ *purchase, c *call, _ string) {
				c.refuse(http.StatusOK, insufficient, "")
			}),
		},
		{
			name: "settle-later", what: "the facilitator refuses, but the money moves when the payer tries again", ways: allWays(),
			facilitator: firstSettle(func(p *purchase, c *call) {
				nonce := c.payload.Payload.Authorization.Nonce
				p.note("the facilitator refuses %s", p.named(nonce))
				p.later(func() {
					p.note("the money of %s moves all the same", p.named(nonce))
					c.move(p)
				})
				c.refuse(http.StatusOK, insufficient, "")
			}),
		},
		{
			name: "settle-500", what: "the facilitator settles, but answers 500 with the transaction", ways: allWays(),
			facilitator: movesAnd("answers 500 with the transaction", func(_ *purchase, c *call, transaction string) {
				c.refuse(http.StatusInternalServerError, "unexpected_settle_error", transaction)
			}),
		},
		{
			name: "settle-pending", what: "the facilitator settles, but says that the settlement is pending; when asked again, it confirms the settlement", ways: allWays(),
			facilitator: pending(),
		},
		{
			name: "settle-used", what: "the facilitator settles, but says that the nonce was used before", ways: allWays(),
			facilitator: movesAnd("says that the nonce was used before", func(_ *purchase, c *call, _ string) {
				c.refuse(http.StatusOK, nonceUsed, "")
			}),
		},
		{
			name: "down", what: "the facilitator is down for the first payment", ways: allWays(),
			facilitator: func(p *purchase, c *call, _ int) {
				if p.tries() > 1 {
					p.honest(c)
					return
				}
				p.note("the facilitator is asked to %s %s, and is down", c.step, p.named(c.payload.Payload.Authorization.Nonce))
				c.w.WriteHeader(http.StatusServiceUnavailable)
			},
		},
		{
			name: "slow", what: "the facilitator is slow", ways: allWays(),
			facilitator: firstSettle(func(p *purchase, c *call) {
				p.note("the facilitator is slow to settle %s", p.named(c.payload.Payload.Authorization.Nonce))
				c.pause(p.stage.court.config.Slow)
				c.honest(p)
			}),
		},
		{
			name: "refused", what: "the facilitator refuses, and nothing moves", ways: allWays(), nothing: true, tries: 2,
			facilitator: func(p *purchase, c *call, _ int) {
				if c.step == verifies {
					p.honest(c)
					return
				}
				p.note("the facilitator refuses %s", p.named(c.payload.Payload.Authorization.Nonce))
				c.refuse(http.StatusOK, insufficient, "")
			},
		},
	}
}

// pending returns a function for row.facilitator. The money moves at the first call of
// /settle, but the facilitator says that the settlement is pending. The facilitator confirms
// the settlement when the seller asks again.
func pending() func(p *purchase, c *call, n int) {
	says := movesAnd("says that it is pending", func(_ *purchase, c *call, transaction string) {
		c.refuse(http.StatusOK, "settlement_pending", transaction)
	})
	return func(p *purchase, c *call, n int) {
		nonce := c.payload.Payload.Authorization.Nonce
		transaction, known := p.transaction(nonce)
		if c.step != settles || n == 1 || !known {
			says(p, c, n)
			return
		}
		p.note("the facilitator is asked to settle %s again, and confirms it", p.named(nonce))
		c.succeed(transaction)
	}
}

// later registers a function that is to run when the line sees the next paid request.
func (p *purchase) later(does func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.onSend = does
}

// pause waits for the duration d, or until the seller closes the connection.
func (c *call) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-c.ctx.Done():
	case <-timer.C:
	}
}

// killRows returns the rows in which the seller is killed.
func killRows() []row {
	return []row{
		{
			name: "kill-before", what: "the seller is killed before the money moves", ways: allWays(),
			facilitator: func(p *purchase, c *call, n int) {
				if n > 1 || p.tries() > 1 {
					p.honest(c)
					return
				}
				p.note("the seller is killed when the facilitator is first asked")
				c.kill(p)
			},
		},
		{
			name: "kill-while", what: "the seller is killed after the money has moved, before it knows that", ways: allWays(),
			facilitator: firstSettle(func(p *purchase, c *call) {
				c.move(p)
				p.note("the facilitator settles %s, and the seller is killed before it hears of it", p.named(c.payload.Payload.Authorization.Nonce))
				c.kill(p)
			}),
		},
		{
			name: "kill-after", what: "the seller is killed after it has answered, and the reply is lost", ways: allWays(),
			reply: func(p *purchase, n int, r reply) int {
				if n > 1 {
					return len(r.body)
				}
				p.note("the seller is killed when it has replied, and the reply is lost")
				p.stage.meet(p, p.stage.restart)
				return -1
			},
		},
		{
			name: "evening", what: "the facilitator settles, but answers 500; then the first answer is lost, and the seller is killed", ways: allWays(),
			facilitator: movesAnd("answers 500 without a word", func(_ *purchase, c *call, _ string) {
				c.w.WriteHeader(http.StatusInternalServerError)
			}),
			reply: func(p *purchase, _ int, r reply) int {
				if r.kind() != kindAnswer || !p.isFirstAnswer() {
					return len(r.body)
				}
				p.note("the answer is lost, and the seller is killed")
				p.stage.meet(p, p.stage.restart)
				return -1
			},
		},
	}
}

// isFirstAnswer counts an answer, and reports whether it is the purchase's first one.
func (p *purchase) isFirstAnswer() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answers++
	return p.answers == 1
}

// kill kills the seller when all payers have reached this point. The seller's call gets no
// answer.
func (c *call) kill(p *purchase) {
	p.stage.meet(p, p.stage.restart)
	p.stage.untilOver(c.ctx)
	c.abort()
}

// sellerRows returns the rows in which something changes at the seller.
func sellerRows() []row {
	return []row{
		{
			name: "handler-fails", what: "a service that the seller depends on fails for a while", ways: allWays(), needsUpstream: true,
			play: func(ctx context.Context, p *purchase) {
				e := p.errand()
				e.try(ctx)
				p.note("what the seller depends on works again")
				p.stage.meet(p, p.stage.recover)
				e.run(ctx)
			},
		},
		{
			name: "price-changes", what: "the reply is lost, and the price has changed when the payer tries again", needsPrice: true,
			ways: allWays(),
			reply: func(p *purchase, n int, r reply) int {
				if n > 1 {
					return len(r.body)
				}
				p.note("the reply is lost, and the seller starts again with another price")
				p.stage.meet(p, p.stage.changePrice)
				return -1
			},
		},
	}
}

// recover ends the failure of the service that the seller depends on.
func (s *stage) recover() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calm = true
}

// changePrice restarts the seller with another price.
func (s *stage) changePrice() {
	s.mu.Lock()
	s.price = s.court.config.OtherPrice
	s.mu.Unlock()
	s.restart()
}
