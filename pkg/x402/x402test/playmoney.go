package x402test

import (
	"context"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
)

// PlayMoney returns what settles payments to an account in play money, in this process, and
// what knows what has moved: a Settler and an Evidence for a seller of USDC on Base that is
// tried before anybody pays it. Everybody has enough. The books are gone with the process.
func PlayMoney(payTo string) (x402.Settler, x402.Evidence) {
	terms := x402.USDC()
	terms.PayTo = payTo
	books := &Facilitator{config: FacilitatorConfig{Terms: terms, Now: time.Now}, moved: map[string]Transfer{}, settles: map[string]int{}}
	return x402.One(desk{books}), books.Evidence()
}

// desk is a Facilitator that is asked without a network.
type desk struct{ books *Facilitator }

// Settle implements x402.Facilitator.
func (d desk) Settle(_ context.Context, payload x402.Payload, q x402.Requirements) x402.Settlement {
	p, err := d.read(payload, q)
	if err != nil {
		return x402.Settlement{Class: x402.Refused, Reason: err.Error()}
	}
	d.books.mu.Lock()
	defer d.books.mu.Unlock()
	key := d.books.keyOf(p.From, p.Nonce)
	if _, used := d.books.moved[key]; used {
		return x402.Settlement{Class: x402.Refused, Reason: x402.ReasonNonceUsed, NonceUsed: true}
	}
	moved, err := d.books.move(key, p)
	if err != nil {
		return x402.Settlement{Class: x402.Unknown, Reason: "the books cannot be written", Cause: err}
	}
	return x402.Settlement{Class: x402.Moved, Transaction: moved.Transaction}
}

// Verify implements x402.Facilitator.
func (d desk) Verify(_ context.Context, payload x402.Payload, q x402.Requirements) x402.Verification {
	if _, err := d.read(payload, q); err != nil {
		return x402.Verification{Reason: err.Error()}
	}
	return x402.Verification{Valid: true}
}

func (d desk) read(payload x402.Payload, q x402.Requirements) (*x402.Payment, error) {
	p, err := paymentOf(payload)
	if err != nil {
		return nil, err
	}
	return p, d.books.judge(p, q)
}
