package judge

import (
	"context"
	"net/http"
	"slices"
	"time"
)

// row is one kind of failure.
type row struct {
	name, summary string
	ways          []Way
	// facilitator answers the nth call of /verify or of /settle about the purchase, counted
	// from 1 for each path; nil means a correct facilitator.
	facilitator func(p *purchase, c *facilitatorCall, n int)
	// reply returns how many bytes of the nth reply to a payment reach the payer; nil means all.
	reply func(p *purchase, n int, r reply) int
	// play makes the payer's requests; nil means that the payer asks until it has the answer.
	play func(ctx context.Context, p *purchase)

	movesNoMoney  bool // no money moves, so a purchase without an answer is correct
	isFaultless   bool // nothing fails, so the protocol itself promises an answer
	maxFailures   int  // how many failed requests make a payer give up; 0 means defaultMaxFailures
	needsUpstream bool // the upstream (see bank) fails; the row is only for sellers that call the upstream
	needsPrice    bool // the price changes; the row is only for sellers that can start with another price
	needsOther    bool // a payer also asks for something else; the row is only for sellers that sell something else
}

func (r row) failureLimit() int {
	if r.maxFailures > 0 {
		return r.maxFailures
	}
	return defaultMaxFailures
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

// lineRows returns the row in which nothing fails, and the rows in which the payer does not get
// the whole reply from the seller.
func lineRows() []row {
	half := func(r reply) int { return len(r.body) / 2 }
	return []row{
		{name: "clean", summary: "nothing fails", ways: allWays(), isFaultless: true},
		{name: "reply-lost", summary: "the reply to the first payment is lost", ways: allWays(), reply: onFirstReply("the reply is lost", loseReply)},
		{name: "reply-cut", summary: "the reply to the first payment is cut off", ways: allWays(), reply: onFirstReply("the reply is cut off in the middle", half)},
		{
			name: "reply-late", summary: "the payer gives up while the facilitator settles", ways: allWays(),
			facilitator: onFirstSettle(func(p *purchase, c *facilitatorCall) {
				p.note("the payer gives up while the facilitator settles %s", p.paymentName(c.payload.Payload.Authorization.Nonce))
				resume := p.line.giveUp()
				defer resume()
				c.answerHonestly(p)
			}),
		},
	}
}

// loseReply returns -1: no byte of a reply reaches the payer, because the connection breaks.
func loseReply(reply) int { return -1 }

// onFirstReply returns a function for row.reply that changes only the first reply to a
// payment. The function countArriving returns how many bytes of that reply reach the payer. In
// the report, the loss is described by the parameter loss.
func onFirstReply(loss string, countArriving func(reply) int) func(p *purchase, n int, r reply) int {
	return func(p *purchase, n int, r reply) int {
		if n > 1 {
			return len(r.body)
		}
		p.note("%s", loss)
		return countArriving(r)
	}
}

// onFirstSettle returns a function for row.facilitator. It lets the given function handle the
// first call of /settle about a purchase, and answers all other calls correctly.
func onFirstSettle(answer func(p *purchase, c *facilitatorCall)) func(p *purchase, c *facilitatorCall, n int) {
	return func(p *purchase, c *facilitatorCall, n int) {
		if c.step != stepSettle || n > 1 {
			p.answerHonestly(c)
			return
		}
		answer(p, c)
	}
}

// moveAndAnswer returns a function for row.facilitator. At the first call of /settle about a
// purchase, this function moves the money, and then calls answer to write the reply to the
// seller. In the report, the reply is described by the parameter summary.
func moveAndAnswer(summary string, answer func(p *purchase, c *facilitatorCall, transaction string)) func(p *purchase, c *facilitatorCall, n int) {
	return onFirstSettle(func(p *purchase, c *facilitatorCall) {
		moved := c.move(p)
		p.note("the facilitator settles %s, and %s", p.paymentName(c.payload.Payload.Authorization.Nonce), summary)
		answer(p, c, moved.Transaction)
	})
}

// facilitatorRows returns the rows in which the facilitator does something wrong.
func facilitatorRows() []row {
	return []row{
		{
			name: "settle-silent", summary: "the facilitator settles, but never answers", ways: allWays(),
			facilitator: moveAndAnswer("does not answer", func(p *purchase, c *facilitatorCall, _ string) { c.hold(p.stage.court.config.Hold) }),
		},
		{
			name: "settle-refused", summary: "the facilitator settles, but says that the payer lacks the funds", ways: allWays(),
			facilitator: moveAndAnswer("says that the payer lacks the funds", func(_ *purchase, c *facilitatorCall, _ string) {
				c.refuse(http.StatusOK, insufficient, "")
			}),
		},
		{
			name: "settle-later", summary: "the facilitator refuses, but the money moves when the payer tries again", ways: allWays(),
			facilitator: onFirstSettle(func(p *purchase, c *facilitatorCall) {
				nonce := c.payload.Payload.Authorization.Nonce
				p.note("the facilitator refuses %s", p.paymentName(nonce))
				p.runOnNextSend(func() {
					p.note("the money of %s moves all the same", p.paymentName(nonce))
					c.move(p)
				})
				c.refuse(http.StatusOK, insufficient, "")
			}),
		},
		{
			name: "settle-500", summary: "the facilitator settles, but answers 500 with the transaction", ways: allWays(),
			facilitator: moveAndAnswer("answers 500 with the transaction", func(_ *purchase, c *facilitatorCall, transaction string) {
				c.refuse(http.StatusInternalServerError, "unexpected_settle_error", transaction)
			}),
		},
		{
			name: "settle-pending", summary: "the facilitator settles, but says that the settlement is pending; when asked again, it confirms the settlement", ways: allWays(),
			facilitator: pendingThenConfirmed(),
		},
		{
			name: "settle-used", summary: "the facilitator settles, but says that the nonce was used before", ways: allWays(),
			facilitator: moveAndAnswer("says that the nonce was used before", func(_ *purchase, c *facilitatorCall, _ string) {
				c.refuse(http.StatusOK, nonceUsed, "")
			}),
		},
		{
			name: "down", summary: "the facilitator is down for the first payment", ways: allWays(),
			facilitator: func(p *purchase, c *facilitatorCall, _ int) {
				if p.paidRequestCount() > 1 {
					p.answerHonestly(c)
					return
				}
				p.note("the facilitator is asked to %s %s, and is down", c.step, p.paymentName(c.payload.Payload.Authorization.Nonce))
				c.w.WriteHeader(http.StatusServiceUnavailable)
			},
		},
		{
			name: "slow", summary: "the facilitator is slow", ways: allWays(),
			facilitator: onFirstSettle(func(p *purchase, c *facilitatorCall) {
				p.note("the facilitator is slow to settle %s", p.paymentName(c.payload.Payload.Authorization.Nonce))
				c.pause(p.stage.court.config.Slow)
				c.answerHonestly(p)
			}),
		},
		{
			name: "refused", summary: "the facilitator refuses, and nothing moves", ways: allWays(), movesNoMoney: true, maxFailures: 2,
			facilitator: func(p *purchase, c *facilitatorCall, _ int) {
				if c.step == stepVerify {
					p.answerHonestly(c)
					return
				}
				p.note("the facilitator refuses %s", p.paymentName(c.payload.Payload.Authorization.Nonce))
				c.refuse(http.StatusOK, insufficient, "")
			},
		},
	}
}

// pendingThenConfirmed returns a function for row.facilitator. The money moves at the first
// call of /settle, but the facilitator says that the settlement is pending. The facilitator
// confirms the settlement when the seller asks again.
func pendingThenConfirmed() func(p *purchase, c *facilitatorCall, n int) {
	answerPending := moveAndAnswer("says that it is pending", func(_ *purchase, c *facilitatorCall, transaction string) {
		c.refuse(http.StatusOK, "settlement_pending", transaction)
	})
	return func(p *purchase, c *facilitatorCall, n int) {
		nonce := c.payload.Payload.Authorization.Nonce
		transaction, known := p.transaction(nonce)
		if c.step != stepSettle || n == 1 || !known {
			answerPending(p, c, n)
			return
		}
		p.note("the facilitator is asked to settle %s again, and confirms it", p.paymentName(nonce))
		c.succeed(transaction)
	}
}

// runOnNextSend registers a function that is to run when the line sees the next paid request.
func (p *purchase) runOnNextSend(run func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.onSend = run
}

// pause waits for the duration d, or until the seller closes the connection.
func (c *facilitatorCall) pause(d time.Duration) {
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
			name: "kill-before", summary: "the seller is killed before the money moves", ways: allWays(),
			facilitator: func(p *purchase, c *facilitatorCall, n int) {
				if n > 1 || p.paidRequestCount() > 1 {
					p.answerHonestly(c)
					return
				}
				p.note("the seller is killed when the facilitator is first asked")
				c.kill(p)
			},
		},
		{
			name: "kill-while", summary: "the seller is killed after the money has moved, before it knows that", ways: allWays(),
			facilitator: onFirstSettle(func(p *purchase, c *facilitatorCall) {
				c.move(p)
				p.note("the facilitator settles %s, and the seller is killed before it hears of it", p.paymentName(c.payload.Payload.Authorization.Nonce))
				c.kill(p)
			}),
		},
		{
			name: "kill-after", summary: "the seller is killed after it has answered, and the reply is lost", ways: allWays(),
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
			name: "evening", summary: "the facilitator settles, but answers 500; then the first answer is lost, and the seller is killed", ways: allWays(),
			facilitator: moveAndAnswer("answers 500 without a word", func(_ *purchase, c *facilitatorCall, _ string) {
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
	p.answerReplies++
	return p.answerReplies == 1
}

// kill calls meet, which waits for the other payers and then restarts the seller. The
// facilitator never answers this call of the seller.
func (c *facilitatorCall) kill(p *purchase) {
	p.stage.meet(p, p.stage.restart)
	p.stage.waitUntilOver(c.ctx)
	c.abort()
}

// sellerRows returns the rows in which something changes at the seller.
func sellerRows() []row {
	return []row{
		{
			name: "handler-fails", summary: "a service that the seller depends on fails for a while", ways: allWays(), needsUpstream: true,
			play: func(ctx context.Context, p *purchase) {
				e := p.newErrand()
				e.try(ctx)
				p.note("what the seller depends on works again")
				p.stage.meet(p, p.stage.recoverUpstream)
				e.run(ctx)
			},
		},
		{
			name: "price-changes", summary: "the reply is lost, and the price has changed when the payer tries again", needsPrice: true,
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

// recoverUpstream ends the failure of the service that the seller depends on.
func (s *stage) recoverUpstream() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.upstreamWorks = true
}

// changePrice restarts the seller with another price.
func (s *stage) changePrice() {
	s.mu.Lock()
	s.price = s.court.config.OtherPrice
	s.mu.Unlock()
	s.restart()
}
