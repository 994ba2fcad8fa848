package discovery

import (
	"time"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

// Challenge is the JSON body of a 402: what must be paid, whose error is a
// string, with the code and the message beside it, and with how a client says
// that a request repeats another. PAYMENT-REQUIRED carries the first part only,
// because clients echo it.
type Challenge struct {
	x402.PaymentRequired
	Code        fault.Code  `json:"code"`
	Message     string      `json:"message"`
	Idempotency Idempotency `json:"idempotency"`
}

// Idempotency says how a purchase is named and how long its answer is replayed.
type Idempotency struct {
	Header                 string `json:"header"`
	ReplaySeconds          int    `json:"replay_seconds"`
	DuplicateWindowSeconds int    `json:"duplicate_window_seconds"` // 0: off
}

// ChallengeOf is the body of a 402 that says f.
func ChallengeOf(s Site, required x402.PaymentRequired, f *fault.Error) Challenge {
	return Challenge{PaymentRequired: required, Code: f.Code, Message: f.Public(), Idempotency: Idempotency{
		Header: x402.HeaderKey, ReplaySeconds: seconds(x402.ReplayTime), DuplicateWindowSeconds: seconds(s.DuplicateWindow),
	}}
}

func seconds(d time.Duration) int { return int(d / time.Second) }
