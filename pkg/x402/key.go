package x402

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"

	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// Bounds of a purchase key in characters.
const (
	mostKey = 255
	// leastIdentifier and mostIdentifier are those of the extension
	// payment-identifier.
	leastIdentifier = 16
	mostIdentifier  = 128
)

// purchaseKey is the payer's own name for a purchase that must be charged once: the
// header Idempotency-Key, or else the id of the extension payment-identifier, or
// else empty. Its error is invalid_idempotency_key.
func purchaseKey(headers []string, p *Payment) (string, error) {
	var key string
	var err error
	switch len(headers) {
	case 0:
		key, err = p.identifier()
	case 1:
		key, err = readKey(headers[0])
	default:
		err = errors.New("the header Idempotency-Key was sent more than once")
	}
	if err != nil {
		return "", fault.New(fault.InvalidIdempotencyKey, err)
	}
	return key, nil
}

// readKey takes a key with or without the quotes of a structured field's string
// (draft-ietf-httpapi-idempotency-key-header).
func readKey(s string) (string, error) {
	if len(s) >= 2 && strings.HasPrefix(s, `"`) && strings.HasSuffix(s, `"`) {
		s = s[1 : len(s)-1]
	}
	if s == "" || len(s) > mostKey {
		return "", errors.New("a key has 1 to 255 characters")
	}
	for _, c := range []byte(s) {
		if c <= ' ' || c > '~' {
			return "", errors.New("a key has visible ASCII characters only")
		}
	}
	return s, nil
}

// identifier is the id of the extension payment-identifier, or empty.
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

// byKey begins the id of a purchase that its payer has named.
const byKey = "key:"

// otherName is the fault of a payment that comes with another key than it was sent
// with first. It belongs to the purchase that its first claim named.
func otherName(r ledger.Record) *fault.Error {
	first := "without an Idempotency-Key"
	if named(r.Purchase) {
		first = "with another Idempotency-Key"
	}
	return fault.Newf(fault.IdempotencyConflict, nil,
		"This signature was sent %s at first. Send it as it was sent then, or sign a new authorization for this purchase.", first)
}

// named says whether the payer has named a purchase. The first claim of a payment
// decides what it buys.
func named(purchase string) bool { return strings.Contains(purchase, "|"+byKey) }

// name sets the purchase of the payment: what the payer's key names, or else the
// request.
func (a *attempt) name() {
	kind, what := byKey, a.key
	if a.key == "" {
		if a.job.NoImplicitRetry {
			return
		}
		kind, what = "request:", a.job.Fingerprint
	}
	a.claim.Purchase = ledger.PurchaseKey(a.terms.Network, a.request.Offer.asset.String(), a.payment.From.String(), kind+digestOf(what))
}

func digestOf(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}
