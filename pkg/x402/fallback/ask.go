package fallback

import (
	"context"
	"errors"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// ask sends the payment to the facilitator m within a time budget. If mayAsk forbids this, ask
// sends nothing and returns the class NotSent. firstLimit is the time limit for the first reply
// of m. If firstLimit is less than the budget, ask may send the same request once more, to clear
// a doubt that the first reply leaves. Only a success in reply to the resend clears the doubt.
func (s *settlement) ask(ctx context.Context, m *Member, firstLimit, budget time.Duration) x402.Settlement {
	end := s.pair.Now().Add(budget)
	unasked, ok := s.mayAsk(ctx, m, end)
	if !ok {
		unasked.Class = x402.NotSent
		s.note(m, unasked, 0)
		return unasked
	}
	reply := s.send(ctx, m, min(firstLimit, s.timeUntil(end)))
	if firstLimit < budget && s.mayResend(reply, end) {
		again := s.send(ctx, m, s.timeUntil(end))
		reply = joinReplies(reply, again)
	}
	m.breaker.countReply(s.pair.Now(), reply, s.order.Recovered)
	return reply
}

// mayAsk reports whether the payment may be sent to m now. There are three conditions. The
// breaker of m must admit the payment. If m is the second, mayAsk must succeed in recording
// the name of m. At least leastResend must be left before the deadline (end). If a
// condition is not met, ok is false, and refusal gives the reason.
func (s *settlement) mayAsk(ctx context.Context, m *Member, end time.Time) (refusal x402.Settlement, ok bool) {
	if !m.breaker.admit(s.pair.Now(), true) {
		refusal.Code = fault.FacilitatorUnavailable
		refusal.Reason = "paused"
		refusal.Cause = errors.New("the facilitator " + m.Name + " is not asked for a while after several failures")
		return refusal, false
	}
	if s.isSecond(m) { // the claim has already recorded the name of the primary
		if err := s.order.Ask(ctx, m.Name); err != nil {
			refusal.Code = fault.LedgerUnavailable
			refusal.Reason = "not recorded"
			refusal.Cause = err
			return refusal, false
		}
	}
	if s.timeUntil(end) < leastResend {
		refusal.Code = fault.PaymentUnavailable
		refusal.Reason = "no time left to settle"
		return refusal, false
	}
	return refusal, true
}

// send sends the payment to m, waits for the reply within a time budget, and notes the reply.
func (s *settlement) send(ctx context.Context, m *Member, budget time.Duration) x402.Settlement {
	begun := s.pair.Now()
	reply := s.order.Send(ctx, m.Facilitator, budget)
	s.note(m, reply, s.pair.Now().Sub(begun))
	return reply
}

// note adds a reply of m to the result's list of replies, which is logged. It leaves out the
// class NotResent: the payment was deliberately not sent again, so m was not asked.
func (s *settlement) note(m *Member, reply x402.Settlement, took time.Duration) {
	if reply.Class == x402.NotResent {
		return
	}
	s.result.Asked = append(s.result.Asked, x402.Ask{
		Facilitator: m.Name,
		Fallback:    s.isSecond(m),
		Class:       reply.Class.String(),
		Reason:      reply.Reason,
		Took:        took,
	})
}

func (s *settlement) isSecond(m *Member) bool { return m == &s.pair.Second }

// mayResend reports whether the payment may be sent once more to the facilitator that gave a
// reply. There are three conditions. The reply must leave a doubt that a second request could
// clear. At least leastResend must be left before the deadline (end). The authorization must
// still be executable.
func (s *settlement) mayResend(reply x402.Settlement, end time.Time) bool {
	worthIt := reply.Class == x402.Unknown && reply.Transaction == "" && !reply.AboutPayer
	return worthIt && s.timeUntil(end) >= leastResend && s.order.Executable()
}

// joinReplies combines two replies of one facilitator. The first reply left the payment in
// doubt. The second is the reply to the resend of the same request. If the second reply is a
// success, it is the result. Otherwise the payment stays in doubt.
func joinReplies(first, second x402.Settlement) x402.Settlement {
	if second.Class == x402.Moved {
		return second
	}
	first.AboutPayer = second.AboutPayer || second.Class == x402.Refused
	first.NoDecision = first.NoDecision && (second.NoDecision || operatorsFault(second))
	first.Transaction = second.Transaction
	first.Cause = errors.Join(first.Cause, second.Cause)
	return first
}
