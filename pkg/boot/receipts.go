package boot

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/receipt"
)

// errNoReceiptKey is what /ready says where no key is configured.
var errNoReceiptKey = errors.New("RECEIPT_KEY is not set: answers come without a signed receipt; make receipt-key makes a key")

// receipts signs answers with the key of the configuration, which is read when the
// first answer is given. Without one, and with one that is not published, nothing
// is signed: nobody could check it.
type receipts struct {
	published []ed25519.PublicKey
	read      func(context.Context) (ed25519.PrivateKey, error)
	now       func() time.Time

	mu     sync.Mutex
	signer *receipt.Signer
	failed error
	at     time.Time // of the failure
}

// rereadAfter is the least time between two readings that fail.
const rereadAfter = time.Minute

// Sign implements x402.Receipts.
func (r *receipts) Sign(ctx context.Context, d receipt.Delivery) (string, error) {
	s, err := r.key(ctx)
	switch {
	case errors.Is(err, errNoReceiptKey):
		return "", nil // not configured: /ready says so, and no log line for each answer
	case err != nil:
		return "", err
	}
	return s.Sign(d)
}

// check is the probe of /ready.
func (r *receipts) check(ctx context.Context) error {
	_, err := r.key(ctx)
	return err
}

func (r *receipts) key(ctx context.Context) (*receipt.Signer, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if age := r.now().Sub(r.at); r.signer != nil || r.failed != nil && age >= 0 && age < rereadAfter {
		return r.signer, r.failed
	}
	private, err := ed25519.PrivateKey(nil), errNoReceiptKey
	if r.read != nil {
		private, err = r.read(ctx)
	}
	if err == nil {
		r.signer, err = receipt.NewSigner(private, r.published)
	}
	if errors.Is(err, receipt.ErrMismatch) {
		err = errors.New("RECEIPT_KEY is none of the keys in RECEIPT_PUBLIC_KEYS: answers come without a signed receipt")
	}
	r.failed, r.at = err, r.now()
	return r.signer, err
}

// receiptKeys reads the public keys of the DID document.
func (e *environment) receiptKeys() []ed25519.PublicKey {
	var keys []ed25519.PublicKey
	for _, text := range e.list(varReceiptPublicKeys) {
		key, err := receipt.ParsePublic(text)
		if err != nil {
			e.fault(varReceiptPublicKeys, "is a list of keys, the newest first; each %v", err)
			return nil
		}
		keys = append(keys, key)
	}
	if len(keys) > receipt.MaxKeys {
		e.fault(varReceiptPublicKeys, "has more than %d keys", receipt.MaxKeys)
	}
	return keys
}

// receiptKey says where the private key is read: from the environment, or else
// from the secret that has the facilitator's credentials.
func (e *environment) receiptKey(s *sharedSecret) func(context.Context) (ed25519.PrivateKey, error) {
	if text := e.text(varReceiptKey, ""); text != "" {
		key, err := receipt.ParseKey(text)
		if err != nil {
			e.fault(varReceiptKey, "%v", err)
		}
		return func(context.Context) (ed25519.PrivateKey, error) { return key, nil }
	}
	if s == nil {
		return func(context.Context) (ed25519.PrivateKey, error) { return nil, errNoReceiptKey }
	}
	return func(ctx context.Context) (ed25519.PrivateKey, error) {
		doc, err := s.any(ctx)
		if err != nil {
			return nil, fmt.Errorf("read the receipt key: %w", err)
		}
		var v struct {
			Key string `json:"receipt_key"`
		}
		if json.Unmarshal(doc, &v) != nil { // its text would quote the secret
			return nil, errors.New("the secret is not a JSON object with the text receipt_key")
		}
		if v.Key == "" {
			return nil, errNoReceiptKey
		}
		key, err := receipt.ParseKey(v.Key)
		if err != nil {
			return nil, fmt.Errorf("receipt_key of the secret %w", err)
		}
		return key, nil
	}
}

// SignReceipts has a configuration that names no receipt key sign with this one.
func (c *Config) SignReceipts(key ed25519.PrivateKey) {
	if c.hasReceiptKey {
		return
	}
	if public, ok := key.Public().(ed25519.PublicKey); ok && len(c.ReceiptKeys) == 0 {
		c.ReceiptKeys = []ed25519.PublicKey{public}
	}
	c.receiptKey = func(context.Context) (ed25519.PrivateKey, error) { return key, nil }
}
