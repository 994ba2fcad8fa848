// Package fallback settles with two facilitators, called the primary and the second. The
// second is used when the primary fails.
//
// Sending one authorization to two facilitators never moves money twice, because the token
// contract executes an authorization only once. But the two answers may mislead: for example,
// the second may refuse a payment that the primary has settled. Therefore the second is asked
// at once only if the primary was provably not reached, or turned the request away for a
// reason that concerns the operator. If the primary leaves doubt, the same request is first
// sent to the primary once more, and then the chain is asked. If the chain does not decide,
// the second is asked. In this case only a success of the second counts. If there is a node,
// the chain must also confirm that success.
//
// If a facilitator refuses a payment for a reason about the payer, only that facilitator is
// asked about the payment from then on. The record keeps the name of that facilitator for later
// attempts.
package fallback

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
)

// primaryVerify is a time budget of Verify. The others belong to Settle. The budgets of Settle
// fit into every request: together they take as much time as a request with the longest lookup
// (a bundle) leaves for its settlement.
const (
	primaryBudget = 6 * time.Second // for asking the primary, including one resend
	firstBudget   = 4 * time.Second // for the first reply of the primary
	leastResend   = time.Second     // a request is sent, or sent again, only if at least this much time is left
	chainBudget   = 2 * time.Second // for asking the chain before the second is asked; also the time limit of checkChain
	secondBudget  = 5 * time.Second // for asking the second, including checkBudget
	checkBudget   = time.Second     // the part of secondBudget that is kept for checkChain
	// If the second says that it settled a payment which the chain does not show yet,
	// checkPause is the pause before the chain is asked again. A node can be a block behind.
	checkPause    = 300 * time.Millisecond
	primaryVerify = 3 * time.Second / 2 // for Verify at the primary: half of the Gate's limit for Pair.Verify
)

// Pair is an x402.Settler with two facilitators. It remembers which facilitators are down, so
// all Gates of a process must share one Pair. All fields are required.
type Pair struct {
	Primary Member
	Second  Member
	Now     func() time.Time
}

// Member is one facilitator of a Pair.
type Member struct {
	x402.Facilitator
	// Name identifies the facilitator in records and logs. The two facilitators of a Pair must
	// have different names, which must not change from one deployment to the next.
	Name string

	breaker breaker
}

// First implements x402.Settler.
func (p *Pair) First() string { return p.Primary.Name }

// Reserve implements x402.Settler.
func (p *Pair) Reserve() time.Duration { return chainBudget }

// Verify returns what the primary says about the payment's signature. If the primary decides
// nothing and gives no reason about the payer, Verify asks the second. If the second decides,
// Verify returns what the second says. While the breaker of one facilitator is open, only the
// other facilitator is asked. While both breakers are open, only the primary is asked.
func (p *Pair) Verify(ctx context.Context, payload x402.Payload, r x402.Requirements) x402.Verification {
	switch {
	case !p.Second.breaker.admit(p.Now(), false):
		return p.Primary.Verify(ctx, payload, r)
	case !p.Primary.breaker.admit(p.Now(), false):
		return p.Second.Verify(ctx, payload, r)
	}
	first, stop := context.WithTimeout(ctx, primaryVerify)
	defer stop()
	primary := p.Primary.Verify(first, payload, r)
	if primary.Fault == nil || primary.AboutPayer {
		return primary
	}
	second := p.Second.Verify(ctx, payload, r)
	if second.Fault != nil {
		return primary
	}
	return second
}

// Settle sends a payment to the primary and, if the rules in the package comment allow this, to
// the second. If an earlier attempt ended with a refusal about the payer, only the facilitator
// that refused is asked, and has the whole time budget of the order.
func (p *Pair) Settle(ctx context.Context, o *x402.Order) x402.Result {
	s := &settlement{pair: p, order: o}
	switch {
	case o.RefusedBy == p.Second.Name:
		s.askAlone(ctx, &p.Second)
	case o.RefusedBy != "", o.Refused: // if the record of a refusal has no name, there was no second at that time, so the primary refused
		s.askAlone(ctx, &p.Primary)
	default:
		s.askInTurn(ctx)
	}
	return s.result
}

// settlement is the state of one call of Settle.
type settlement struct {
	pair   *Pair
	order  *x402.Order
	result x402.Result
}

// askAlone sends the payment only to m. A success of the primary counts at once. A success of
// the second counts at once, unless the payment is in doubt and there is a node. In that case
// it counts only once the chain shows the payment.
func (s *settlement) askAlone(ctx context.Context, m *Member) {
	o := s.order
	r := &s.result
	r.Settlement = s.ask(ctx, m, o.Budget, o.Budget)
	s.noteRefusal(m, r.Settlement)
	if r.Class == x402.Moved && o.InDoubt && o.HasChain && s.isSecond(m) {
		r.Class = x402.Unknown
		s.checkChain(ctx, true)
		return
	}
	o.AskChain(ctx, r, x402.EvidenceBudget)
}

// askInTurn sends the payment to the primary. If the payment may then be in doubt, askInTurn asks
// the chain. If the chain does not decide, askInTurn asks the second in three cases: the primary
// was not reached, turned the payment away, or left doubt. If the primary gave a reason about
// the payer, the second is not asked.
func (s *settlement) askInTurn(ctx context.Context) {
	o := s.order
	r := &s.result
	primary := &s.pair.Primary
	r.Settlement = s.ask(ctx, primary, firstBudget, min(o.Budget, primaryBudget))
	s.noteRefusal(primary, r.Settlement)
	o.AskChain(ctx, r, chainBudget)
	if r.Finding.Decides() || r.AboutPayer {
		return
	}
	switch r.Class { //nolint:exhaustive // all other classes are final
	case x402.Unknown:
		s.askSecond(ctx, true)
	case x402.NotSent, x402.TurnedAway:
		s.askSecond(ctx, o.InDoubt)
	}
}

// askSecond sends the payment to the second, if there is enough time and the authorization can
// still be executed. doubtful says whether the payment is in doubt. If the second is not
// reached, the result stays as it is. If it is reached, there are two cases:
//
//   - Without doubt, the primary did nothing with the payment. The second's reply replaces the
//     primary's, as replacePrimary describes.
//   - With doubt, a success of the second counts if the chain confirms the payment or there is
//     no node. Any other reply of the second leaves the payment in doubt, and is not recorded
//     as a refusal. If there is a node, the chain is then asked once more.
func (s *settlement) askSecond(ctx context.Context, doubtful bool) {
	o := s.order
	r := &s.result
	budget := min(secondBudget, o.Spare())
	if doubtful && o.HasChain {
		budget -= checkBudget
	}
	if budget < x402.LeastSettle || !o.Executable() {
		return
	}
	reply := s.ask(ctx, &s.pair.Second, budget, budget)
	reply.Cause = errors.Join(reply.Cause, r.Cause)
	r.Cause = reply.Cause
	switch {
	case doubtful && reply.Class == x402.Moved && !o.HasChain:
		r.Settlement = reply
	case reply.Class == x402.NotSent:
	case doubtful:
		r.Class = x402.Unknown
		r.Transaction = cmp.Or(reply.Transaction, r.Transaction)
		s.checkChain(ctx, reply.Class == x402.Moved)
	default:
		s.replacePrimary(ctx, reply)
	}
}

// replacePrimary replaces the primary's reply with the reply of the second, because the
// primary did nothing with the payment. There is one exception. If both turned the payment
// away, and the second's reason is not about the payer, then the primary's reply remains the
// result.
func (s *settlement) replacePrimary(ctx context.Context, reply x402.Settlement) {
	r := &s.result
	s.noteRefusal(&s.pair.Second, reply)
	turnedAway := r.Class == x402.TurnedAway
	if turnedAway && reply.Class == x402.TurnedAway && !reply.AboutPayer {
		return
	}
	r.Settlement = reply
	r.SentElsewhere = turnedAway
	s.order.AskChain(ctx, r, x402.EvidenceBudget)
}

// checkChain asks the chain about a payment in doubt that was sent to the second.
// secondSucceeded says whether the second reported a success. If it did, checkChain asks
// repeatedly, until the chain decides or the time is up. Otherwise checkChain asks once.
func (s *settlement) checkChain(ctx context.Context, secondSucceeded bool) {
	o := s.order
	r := &s.result
	until := s.pair.Now().Add(min(o.Spare(), chainBudget))
	lastLook := until.Add(-x402.LeastEvidence)
	for {
		r.Finding = o.Find(ctx, r.Settlement, s.timeUntil(until))
		final := r.Finding.Decides() || !secondSucceeded
		if final || !o.Pause(ctx, checkPause, lastLook) {
			break
		}
	}
	r.Cause = errors.Join(r.Cause, r.Finding.Cause)
}

// noteRefusal notes the name of m in the result if m refused the payment for a reason about
// the payer. From then on, only m is asked about the payment.
func (s *settlement) noteRefusal(m *Member, reply x402.Settlement) {
	if reply.Class == x402.Refused || reply.AboutPayer {
		s.result.RefusedBy = m.Name
	}
}

func (s *settlement) timeUntil(end time.Time) time.Duration { return end.Sub(s.pair.Now()) }
