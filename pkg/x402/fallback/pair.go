// Package fallback settles with two facilitators, called the primary and the second. The
// second is used when the primary fails.
//
// Sending one authorization to two facilitators never moves money twice, because the token
// contract executes an authorization only once. But the two answers may mislead: for example,
// the second may refuse a payment that the primary has settled. Therefore the second is asked
// at once only if the primary was provably not reached, or turned the request away for a
// reason that concerns the operator. If the primary leaves doubt, the same request is first
// sent to the primary once more, and then the chain is asked. If the chain does not decide,
// the second is asked. In this case only a success of the second counts, and the chain is
// asked to confirm it if there is a node. After a refusal about the payer, even one on record
// from an earlier attempt, only the facilitator that refused is asked again.
package fallback

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
)

// These are the time budgets of a settlement. Together they use the time that remains for the
// settlement if a bundle is bought. Bundles leave the least time, because they have the
// longest lookups of all operations.
const (
	primaryBudget = 6 * time.Second // for the primary, including one resend
	firstBudget   = 4 * time.Second // for the first reply of the primary
	leastResend   = time.Second     // a request is sent again only if at least this much time is left
	chainBudget   = 2 * time.Second // for asking the chain about a doubt, before the second is asked
	secondBudget  = 5 * time.Second // for the second, including checkBudget
	checkBudget   = time.Second     // for confirming the second's reply on the chain
	// If the second says that it settled a payment which the chain does not show yet,
	// checkPause is the pause before the chain is asked again. A node can be a block behind.
	checkPause    = 300 * time.Millisecond
	primaryVerify = 3 * time.Second / 2 // for Verify at the primary: half of the time that the Gate gives to both
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
	// Name identifies the facilitator in records and logs. The two names must differ, and must
	// not change from one deployment to the next.
	Name string

	breaker breaker
}

// First implements x402.Settler.
func (p *Pair) First() string { return p.Primary.Name }

// Reserve implements x402.Settler.
func (p *Pair) Reserve() time.Duration { return chainBudget }

// Verify returns what the primary says about the payment's signature. If the primary decides
// nothing, Verify returns what the second says. A reply of the primary with a reason about the
// payer is final. While the breaker of one facilitator is open, only the other is asked; while
// both are open, only the primary.
func (p *Pair) Verify(ctx context.Context, payload x402.Payload, r x402.Requirements) x402.Verification {
	switch {
	case !p.Second.breaker.admits(p.Now(), false):
		return p.Primary.Verify(ctx, payload, r)
	case !p.Primary.breaker.admits(p.Now(), false):
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

// Settle sends a payment to the primary and, if the rules of the package allow it, to the
// second. If one of the two refused the payment before, only that facilitator is asked, with
// the whole budget.
func (p *Pair) Settle(ctx context.Context, o *x402.Order) x402.Result {
	s := &settlement{pair: p, order: o}
	switch {
	case o.RefusedBy == p.Second.Name:
		s.askAlone(ctx, &p.Second)
	case o.RefusedBy != "", o.Refused: // no name on record: the primary refused, before there was a second
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

// askAlone asks only m. If the payment is in doubt, m is the second and there is a node, a
// success counts only once the chain shows the payment.
func (s *settlement) askAlone(ctx context.Context, m *Member) {
	o := s.order
	r := &s.result
	r.Settlement = s.ask(ctx, m, o.Budget, o.Budget)
	s.pin(m, r.Settlement)
	if r.Class == x402.Moved && o.InDoubt && o.HasChain && s.isSecond(m) {
		r.Class = x402.Unknown
		s.check(ctx, true)
		return
	}
	o.AskChain(ctx, r, x402.EvidenceBudget)
}

// askInTurn asks the primary. If the primary's reply does not decide, it asks the chain. If
// the chain does not decide either and the reason is not about the payer, it asks the second.
func (s *settlement) askInTurn(ctx context.Context) {
	o := s.order
	r := &s.result
	primary := &s.pair.Primary
	r.Settlement = s.ask(ctx, primary, firstBudget, min(o.Budget, primaryBudget))
	s.pin(primary, r.Settlement)
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

// askSecond asks the second. If there is no doubt, the reply of the second replaces the reply
// of the primary, which did nothing with the payment. If there is doubt, a success of the
// second counts if the chain confirms the payment or cannot be asked. Any other reply leaves
// the doubt as it is, and is not recorded as a refusal.
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
		s.check(ctx, reply.Class == x402.Moved)
	default:
		s.standIn(ctx, reply)
	}
}

// standIn replaces the primary's reply with the reply of the second, because the primary did
// nothing with the payment. There is one exception. If both turned the payment away, the
// primary's reply remains the result, unless the second's reason is about the payer.
func (s *settlement) standIn(ctx context.Context, reply x402.Settlement) {
	r := &s.result
	s.pin(&s.pair.Second, reply)
	turnedAway := r.Class == x402.TurnedAway
	if turnedAway && reply.Class == x402.TurnedAway && !reply.AboutPayer {
		return
	}
	r.Settlement = reply
	r.SentElsewhere = turnedAway
	s.order.AskChain(ctx, r, x402.EvidenceBudget)
}

// check asks the chain after the second was asked about a payment in doubt. If moved says that
// the second reported a success, check asks repeatedly, until the chain decides or the time is
// up.
func (s *settlement) check(ctx context.Context, moved bool) {
	o := s.order
	r := &s.result
	until := s.pair.Now().Add(min(o.Spare(), chainBudget))
	lastLook := until.Add(-x402.LeastEvidence)
	for {
		r.Finding = o.Find(ctx, r.Settlement, s.timeUntil(until))
		final := r.Finding.Decides() || !moved
		if final || !o.Pause(ctx, checkPause, lastLook) {
			break
		}
	}
	r.Cause = errors.Join(r.Cause, r.Finding.Cause)
}

// pin sets RefusedBy to m if m refused the payment for a reason about the payer. From then on
// only m is asked about the payment.
func (s *settlement) pin(m *Member, reply x402.Settlement) {
	if reply.Class == x402.Refused || reply.AboutPayer {
		s.result.RefusedBy = m.Name
	}
}

func (s *settlement) timeUntil(end time.Time) time.Duration { return end.Sub(s.pair.Now()) }
