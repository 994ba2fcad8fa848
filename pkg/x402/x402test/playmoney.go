package x402test

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// PlayMoney returns a Settler that settles payments to an account in play money, and an
// Evidence that knows every transfer of that Settler. With them, a seller can be tried before
// anybody pays real USDC on Base. Both work in this process. Every account has enough money.
// The transfers are lost when the process ends.
func PlayMoney(payTo string) (x402.Settler, x402.Evidence) {
	terms := x402.USDC()
	terms.PayTo = payTo
	books := newBooks(FacilitatorConfig{Terms: terms, Now: time.Now})
	return x402.One(books.InProcess()), books.Evidence()
}

// InProcess returns the facilitator for a seller in the same process, which calls it without a
// network. The results are the same as over HTTP.
func (f *Facilitator) InProcess() x402.Facilitator { return inProcess{f} }

type inProcess struct{ books *Facilitator }

// Settle implements x402.Facilitator. If the caller stops waiting, the settlement continues.
func (i inProcess) Settle(ctx context.Context, payload x402.Payload, q x402.Requirements) x402.Settlement {
	p, err := paymentOf(payload)
	if err != nil {
		return x402.Settlement{Class: x402.Refused, Reason: err.Error()}
	}
	answered := make(chan answer, 1)
	go func() { answered <- i.books.settlement(p, q, i.books.check(p, q)) }()
	select {
	case a := <-answered:
		return a.settlementOf(ctx)
	case <-ctx.Done():
		return noVerdict("timeout")
	}
}

// Verify implements x402.Facilitator.
func (i inProcess) Verify(_ context.Context, payload x402.Payload, q x402.Requirements) x402.Verification {
	i.books.countVerify()
	p, err := paymentOf(payload)
	if err == nil {
		err = i.books.check(p, q)
	}
	if err != nil {
		return x402.Verification{Reason: err.Error()}
	}
	return x402.Verification{Valid: true}
}

// settlementOf returns the settlement that a caller in this process gets for an answer. Over
// HTTP, package facilitator returns the same settlement for the answer.
func (a answer) settlementOf(ctx context.Context) x402.Settlement {
	switch {
	case a.isDropped:
		return noVerdict("connection_lost")
	case a.status == 0:
		<-ctx.Done()
		return noVerdict("timeout")
	case a.status == http.StatusUnauthorized:
		return x402.Settlement{Class: x402.TurnedAway, Code: fault.FacilitatorUnauthorized, Reason: "http_401"}
	case a.status == http.StatusTooManyRequests:
		return x402.Settlement{Class: x402.TurnedAway, Code: fault.FacilitatorUnavailable, Reason: "http_429"}
	case a.status != http.StatusOK:
		return noVerdict(fmt.Sprintf("http_%d", a.status))
	}
	s := x402.Settlement{
		Class:       x402.Refused,
		Reason:      a.body.ErrorReason,
		Transaction: a.body.Transaction,
		Network:     a.body.Network,
		Payer:       a.body.Payer,
	}
	switch {
	case a.body.Success:
		s.Class = x402.Moved
	case s.Reason == reasonPending, s.Reason == reasonReverted, s.Reason == reasonUnexpected:
		s.Class = x402.Unknown
	case s.Reason == x402.ReasonNonceUsed:
		s.NonceUsed = true
	case s.Reason == reasonBadSignature:
		s.BadSignature = true
	case s.Reason == reasonExpired:
		s.Expired = true
	}
	return s
}

func noVerdict(reason string) x402.Settlement {
	return x402.Settlement{Class: x402.Unknown, Reason: reason, NoDecision: true}
}
