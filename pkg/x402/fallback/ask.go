package fallback

import (
	"context"
	"errors"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// ask records the name of m, sends the payment to m, and takes at most budget. firstLimit is the
// time limit for the first reply. If firstLimit is less than budget and the first reply leaves
// doubt, ask sends the same request once more. Only a success then clears the doubt.
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
		reply = joined(reply, again)
	}
	m.breaker.leave(s.pair.Now(), reply, s.order.Recovered)
	return reply
}

// mayAsk reports whether the payment may be sent to m. It may be sent if the breaker of m
// admits it, the name of m could be recorded, and at least a second is left before end.
// Otherwise mayAsk returns the reason.
func (s *settlement) mayAsk(ctx context.Context, m *Member, end time.Time) (why x402.Settlement, ok bool) {
	if !m.breaker.admits(s.pair.Now(), true) {
		why.Code = fault.FacilitatorUnavailable
		why.Reason = "paused"
		why.Cause = errors.New("the facilitator " + m.Name + " is not asked for a while after several failures")
		return why, false
	}
	if s.isSecond(m) { // the claim has already recorded the name of the primary
		if err := s.order.Ask(ctx, m.Name); err != nil {
			why.Code = fault.LedgerUnavailable
			why.Reason = "not recorded"
			why.Cause = err
			return why, false
		}
	}
	if s.timeUntil(end) < leastResend {
		why.Code = fault.PaymentUnavailable
		why.Reason = "no time left to settle"
		return why, false
	}
	return why, true
}

// send sends the payment to m and notes the reply.
func (s *settlement) send(ctx context.Context, m *Member, budget time.Duration) x402.Settlement {
	begun := s.pair.Now()
	reply := s.order.Send(ctx, m.Facilitator, budget)
	s.note(m, reply, s.pair.Now().Sub(begun))
	return reply
}

// note adds a reply to the result, for the log.
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

// mayResend reports whether a reply leaves a doubt that a second request could clear, and
// whether enough time is left before end.
func (s *settlement) mayResend(reply x402.Settlement, end time.Time) bool {
	worthIt := reply.Class == x402.Unknown && reply.Transaction == "" && !reply.AboutPayer
	return worthIt && s.timeUntil(end) >= leastResend && s.order.Executable()
}

// joined combines two replies to the same request. The first reply left doubt; the second is the
// reply to the resend.
func joined(first, second x402.Settlement) x402.Settlement {
	if second.Class == x402.Moved {
		return second
	}
	first.AboutPayer = second.AboutPayer || second.Class == x402.Refused
	first.NoDecision = first.NoDecision && (second.NoDecision || operatorsFault(second))
	first.Transaction = second.Transaction
	first.Cause = errors.Join(first.Cause, second.Cause)
	return first
}
