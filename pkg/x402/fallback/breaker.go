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
// would wait for that facilitator. A breaker is open while it keeps payments away. Each process
// has its own breakers.
type breaker struct {
	mu          sync.Mutex
	failures    int       // the number of failures in a row, as countReply counts them
	pausedUntil time.Time // when the next payment may be sent; without effect until failures reaches breakerFailures
}

// admit reports whether a payment may be sent to the facilitator at the time now. If willSend
// is true, the caller sends the payment at once; otherwise the caller only wants to know.
// While the facilitator counts as down, only one payment per breakerPause is admitted. If the
// reply to that payment shows that the facilitator works, all payments are admitted again.
func (b *breaker) admit(now time.Time, willSend bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.failures < breakerFailures {
		return true
	}
	admits := !now.Before(b.pausedUntil)
	if admits && willSend {
		b.pausedUntil = now.Add(breakerPause)
	}
	return admits
}

// countReply counts the reply s to a payment. A reply that shows the operator's fault is one
// more failure. Any other reply ends the row of failures. Two kinds of replies change nothing:
//
//   - NotResent, because the payment was not sent.
//   - A time-out, if the payment's signer was not recovered from the signature. The contract of
//     the payer's wallet may have caused the time-out.
func (b *breaker) countReply(now time.Time, s x402.Settlement, recovered bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case s.Class == x402.NotResent:
	case !operatorsFault(s):
		b.failures = 0
	case s.Class != x402.Unknown || recovered:
		b.failures++
		b.pausedUntil = now.Add(breakerPause)
	}
}

// operatorsFault reports whether a reply shows that a facilitator is down or misconfigured. It
// returns false for a reply that a payer can cause, because otherwise a payer could block the
// facilitator for all other payments. There is one exception: it returns true for a time-out,
// although the contract of a payer's wallet can cause one. The method countReply allows for
// this.
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
