package buyer

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"

	"github.com/hostfacts/hostfacts/infra/local/bill"
	"github.com/hostfacts/hostfacts/infra/paymcp/purse"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

// fateKind says what became of a signature that the server refuses.
type fateKind int

const (
	fateOpen  fateKind = iota // the signature may still be executed
	fateDead                  // the signature has moved no money and never will
	fateMoved                 // the signature has moved money
	fateStuck                 // this program cannot find out what became of the signature
)

// fate says what became of a signature.
type fate struct {
	kind              fateKind
	transactionPhrase string // a phrase for a message that names the transaction of the signature; "" if unknown
}

// fateOf finds out what became of a signature that the server refuses. If the server states
// that it did not charge, the fate is fateDead. Otherwise the chain decides. Without a chain,
// the fate is fateMoved if the server says that it charged. If the server does not say, the
// fate is fateOpen until the signature expires. After that, the fate is fateDead if the server
// refused the signature every time without an attempt to settle. If the server may have tried
// to settle, the fate is fateStuck: money may have moved although the server reported a
// failure.
func (b *Buyer) fateOf(ctx context.Context, p *purse.Payment) fate {
	if p.Charged != nil && !*p.Charged {
		return fate{kind: fateDead}
	}
	expired := b.Now().After(p.ValidBefore.Add(expiryMargin))
	if evidence := b.Chain(p.Network, p.Asset); evidence != nil {
		return fateOnChain(ctx, evidence, p, expired)
	}
	switch {
	case p.Charged != nil:
		return fate{kind: fateMoved}
	case !expired:
		return fate{kind: fateOpen}
	case p.Lost:
		return fate{kind: fateStuck}
	}
	return fate{kind: fateDead}
}

// fateOnChain asks the chain what became of a signature. If the chain cannot tell, the fate is
// fateOpen until the signature has expired, and fateStuck after that.
func fateOnChain(ctx context.Context, chain x402.Evidence, p *purse.Payment, expired bool) fate {
	q, err := questionOf(p)
	if err != nil {
		return fate{kind: fateStuck}
	}
	switch found := chain.Find(ctx, q); found.Fate {
	case x402.Paid:
		return fate{fateMoved, " in the transaction " + found.Transaction}
	case x402.NeverPaid:
		return fate{kind: fateDead}
	case x402.StillOpen:
		return fate{kind: fateOpen}
	case x402.CannotTell:
	}
	if expired {
		return fate{kind: fateStuck}
	}
	return fate{kind: fateOpen}
}

// questionOf returns the query that asks the chain about a payment.
func questionOf(p *purse.Payment) (q x402.Question, err error) {
	var signed bill.Signed
	if err := json.Unmarshal(p.Payload, &signed); err != nil {
		return q, err
	}
	q = x402.Question{ValidBefore: p.ValidBefore, Since: p.Signed, Sent: true}
	if q.Payer, err = x402.ParseAddress(p.Payer); err != nil {
		return q, err
	}
	if q.Payee, err = x402.ParseAddress(p.PayTo); err != nil {
		return q, err
	}
	if q.Value, err = x402.ParseUint256(p.Amount); err != nil {
		return q, err
	}
	nonce, err := hex.DecodeString(strings.TrimPrefix(signed.Payload.Authorization.Nonce, "0x"))
	if err != nil || len(nonce) != len(q.Nonce) {
		return q, errors.New("the nonce of the payment cannot be read")
	}
	copy(q.Nonce[:], nonce)
	return q, nil
}
