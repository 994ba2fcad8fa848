package fallback

import (
	"sync"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// Bounds of a breaker: how many payments in a row must meet a time-out or a fault of the
// facilitator's operator before the facilitator is not asked, and for how long it is not.
const (
	breakerFailures = 5
	breakerPause    = 30 * time.Second
)

// breaker keeps payments away from a facilitator that is down, so that not every payment
// has to wait for it. Each process has its own.
type breaker struct {
	mu       sync.Mutex
	failures int       // in a row
	until    time.Time // when the next payment may try
}

// admits says whether a payment may be sent to the facilitator now. enters says that the
// caller sends it at once: while the breaker is open one payment may enter in each
// pause, and others wait for its outcome, or for the next pause if it has none.
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

// leave counts the reply to a payment that entered. A time-out does not count if the
// signer was not recovered: the contract of its wallet can cause that.
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

// operatorsFault says that a facilitator is down or misconfigured. It is false for
// everything that a payer can cause: otherwise a payer could open the breaker for all.
func operatorsFault(s x402.Settlement) bool {
	switch s.Class { //nolint:exhaustive // what else a facilitator replies is about the payer
	case x402.NotSent:
		return s.Code != fault.PaymentUnavailable // the payment is what could not be sent
	case x402.TurnedAway:
		return !s.AboutPayer
	case x402.Unknown:
		return s.NoDecision
	}
	return false
}
