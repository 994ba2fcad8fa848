package x402

import (
	"context"
	"errors"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// Bounds of a payment identifier (x402 extension payment-identifier).
const (
	leastIdentifier = 16
	mostIdentifier  = 128
)

// identifier is the payer's own name for the payment, or empty.
func (p *Payment) identifier() (string, error) {
	extension, ok := p.extensions[ExtensionIdentifier].(object)
	if !ok {
		return "", nil
	}
	info, ok := extension["info"].(object)
	if !ok || info["id"] == nil {
		return "", nil
	}
	id, ok := info["id"].(string)
	if !ok || len(id) < leastIdentifier || len(id) > mostIdentifier {
		return "", errors.New("payment-identifier: id must be text of 16 to 128 characters")
	}
	for _, c := range []byte(id) {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-') {
			return "", errors.New("payment-identifier: id may have letters, digits, _ and - only")
		}
	}
	return id, nil
}

// bind keeps the payer's promise that one identifier is one payment. The
// signature was checked before, and the name is the payer's own: knowing it
// gives nobody anything. The same payment finds its answer by its nonce.
func (a *attempt) bind(ctx context.Context) *Outcome {
	if _, offered := a.request.Offer.infos[ExtensionIdentifier]; !offered {
		return nil
	}
	id, err := a.payment.identifier()
	if err != nil {
		return a.no(err)
	}
	if id == "" {
		return nil
	}
	same, err := a.gate.ledger.Bind(ctx, ledger.NameKey(a.terms.Network, a.payment.From.String(), id), a.claim)
	if err != nil {
		out := a.ledgerFault(err, nil)
		return &out
	}
	if !same {
		out := a.unclaimed(ctx, fault.New(fault.PaymentIdentifierConflict, nil))
		return &out
	}
	return nil
}
