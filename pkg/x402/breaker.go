package x402

import (
	"sync"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// Bounds of a breaker.
const (
	// breakerFailures is how many payments in a row must meet a time-out or a fault
	// of a facilitator's operator before it is left alone. A request and its resend
	// count once.
	breakerFailures = 5
	// breakerPause is how long it is left alone. Then one live payment is taken to
	// it, and its outcome decides.
	breakerPause = 30 * time.Second
)

// breaker keeps payments away from a facilitator that is down, so that each need
// not wait for it. It lives in the memory of one process. A nil one is always
// closed.
type breaker struct {
	now func() time.Time

	mu       sync.Mutex
	failures int       // in a row
	until    time.Time // when the next payment may try
}

// closed says whether a payment may be taken to the facilitator now.
func (b *breaker) closed() bool {
	if b == nil {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ready()
}

func (b *breaker) ready() bool { return b.failures < breakerFailures || !b.now().Before(b.until) }

// enter is closed for a payment that is taken there at once. While the breaker is
// open it lets one payment pass in each pause: others wait for its outcome, or
// for the next pause if it has none.
func (b *breaker) enter() bool {
	if b == nil {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.ready() {
		return false
	}
	if b.failures >= breakerFailures {
		b.until = b.now().Add(breakerPause)
	}
	return true
}

// leave counts what came of a payment that was let in. A time-out is not counted of
// one whose signer was not recovered: its wallet's contract can cause that.
func (b *breaker) leave(s Settlement, recovered bool) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case !operatorsFault(s):
		b.failures = 0
		return
	case s.Class == Unknown && !recovered:
		return
	}
	b.failures++
	b.until = b.now().Add(breakerPause)
}

// operatorsFault says that a facilitator is down or misconfigured, as far as one
// payment shows it. It is false for everything that a payer can cause, or else a
// payer could close a facilitator for all.
func operatorsFault(s Settlement) bool {
	switch s.Class {
	case NotSent:
		return s.Code != fault.PaymentUnavailable // the payment is what could not be sent
	case TurnedAway:
		return !s.AboutPayer
	case Unknown:
		return s.NoVerdict
	case Moved, Refused:
	}
	return false
}
