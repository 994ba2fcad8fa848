package fallback

import (
	"sync"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// These are the bounds of a breaker. If breakerFailures payments in a row meet a time-out or a
// fault of the facilitator's operator, the facilitator is not asked until breakerPause has
// passed.
const (
	breakerFailures = 5
	breakerPause    = 30 * time.Second
)

// breaker keeps payments away from a facilitator that is down, because otherwise every payment
// would wait for that facilitator. Each process has its own breakers.
type breaker struct {
	mu       sync.Mutex
	failures int       // how many replies in a row showed a fault of the operator
	until    time.Time // when the next payment may be sent, if there were too many failures
}

// admits reports whether a payment may be sent to the facilitator at the time now. enters says
// that the caller will send it at once. While the facilitator counts as down, only one payment
// per pause is admitted. If the reply to that payment shows that the facilitator works, all
// payments are admitted again.
func (b *breaker) admits(now time.Time, enters bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.failures < breakerFailures {
		return true
	}
	admits := !now.Before(b.until)
	if admits && enters {
		b.until = now.Add(breakerPause)
	}
	return admits
}

// leave counts the reply to a payment that was sent. If the signer was not recovered, a
// time-out does not count, because the contract of the payer's wallet may have caused the
// time-out.
func (b *breaker) leave(now time.Time, s x402.Settlement, recovered bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case s.Class == x402.NotResent:
	case !operatorsFault(s):
		b.failures = 0
	case s.Class != x402.Unknown || recovered:
		b.failures++
		b.until = now.Add(breakerPause)
	}
}

// operatorsFault reports whether a reply shows that a facilitator is down or misconfigured. It
// is false for everything that a payer can cause, so that no payer can block a facilitator for
// all other payments.
func operatorsFault(s x402.Settlement) bool {
	switch s.Class { //nolint:exhaustive // all other replies are about the payer
	case x402.NotSent:
		return s.Code != fault.PaymentUnavailable // PaymentUnavailable means that this one payment could not be sent
	case x402.TurnedAway:
		return !s.AboutPayer
	case x402.Unknown:
		return s.NoDecision
	}
	return false
}
