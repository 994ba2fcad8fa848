package x402

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"

	"github.com/hostfacts/hostfacts/pkg/printable"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// identifierAlphabet has the characters of the extension payment-identifier.
const identifierAlphabet = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"

// purchaseKey is the payer's own name for a purchase that must be charged once: the
// header Idempotency-Key (draft-ietf-httpapi-idempotency-key-header), with or without
// the quotes of a structured field's string, or else the id of the extension
// payment-identifier, or else empty. Its error is invalid_idempotency_key.
func purchaseKey(headers []string, p *Payment) (string, error) {
	if len(headers) == 0 {
		return p.identifier()
	}
	key := headers[0]
	if len(key) >= 2 && strings.HasPrefix(key, `"`) && strings.HasSuffix(key, `"`) {
		key = key[1 : len(key)-1]
	}
	if len(headers) > 1 || key == "" || len(key) > 255 || !printable.ASCII(key) || strings.Contains(key, " ") {
		return "", fault.New(fault.InvalidIdempotencyKey, errors.New("the header Idempotency-Key must have 1 to 255 visible ASCII characters, and be sent once"))
	}
	return key, nil
}

// info is what an extension says, or nil.
func (p *Payment) info(extension string) object {
	e, _ := p.extensions[extension].(object)
	info, _ := e["info"].(object)
	return info
}

// identifier is the id of the extension payment-identifier, or empty.
func (p *Payment) identifier() (string, error) {
	info := p.info(ExtensionIdentifier)
	if info["id"] == nil {
		return "", nil
	}
	id, _ := info["id"].(string)
	if len(id) < 16 || len(id) > 128 || strings.Trim(id, identifierAlphabet) != "" {
		return "", fault.New(fault.InvalidIdempotencyKey, errors.New("payment-identifier: id must be 16 to 128 letters, digits, _ and -"))
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

// purchase is what the payment buys: what the payer's key names, or else the request;
// empty when it is a purchase by itself.
func (a *attempt) purchase() string {
	id := byKey + digestOf(a.key)
	if a.key == "" {
		if a.job.NoImplicitRetry {
			return ""
		}
		id = "request:" + digestOf(a.job.Fingerprint)
	}
	return ledger.PurchaseKey(a.terms.Network, a.request.Offer.asset.String(), a.payment.From.String(), id)
}

func digestOf(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}
