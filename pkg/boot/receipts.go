package boot

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/receipt"
)

// errNoReceiptKey is what /ready says where no key is configured.
var errNoReceiptKey = errors.New("RECEIPT_KEY is not set: answers come without a signed receipt; make receipt-key makes a key")

// receipts signs offers and answers with the key of the configuration. One in the
// environment is in memory at once; the secret is read when the first answer is given,
// and until then offers are unsigned. Without a key, and with one that is not
// published, nothing is signed: nobody could check it.
type receipts struct {
	published []ed25519.PublicKey
	private   ed25519.PrivateKey // nil: the secret's
	secret    *secret            // nil: none
	now       func() time.Time

	signer atomic.Pointer[receipt.Signer]
	mu     sync.Mutex // held while the key is read
}

// receipts reads a key that is in the environment at once.
func (c Config) receipts(now func() time.Time) *receipts {
	r := &receipts{published: c.ReceiptKeys, private: c.receiptKey, secret: c.secret, now: now}
	if r.private != nil {
		_, _ = r.key(context.Background()) // /ready says what is wrong
	}
	return r
}

// Sign implements x402.Receipts.
func (r *receipts) Sign(ctx context.Context, said receipt.Statement) (string, error) {
	s, err := r.key(ctx)
	switch {
	case errors.Is(err, errNoReceiptKey):
		return "", nil // not configured: /ready says so, and no log line for each answer
	case err != nil:
		return "", err
	}
	return s.Sign(said)
}

// SignOffer implements x402.Receipts.
func (r *receipts) SignOffer(o receipt.Offer) (string, error) {
	s := r.signer.Load()
	if s == nil {
		return "", nil
	}
	return s.SignOffer(o)
}

func (r *receipts) key(ctx context.Context) (*receipt.Signer, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.signer.Load(); s != nil {
		return s, nil
	}
	private := r.private
	if private == nil && r.secret != nil {
		var err error
		if private, err = part(ctx, r.secret, r.now(), receiptKeyOf); err != nil {
			return nil, err
		}
	}
	if private == nil {
		return nil, errNoReceiptKey
	}
	s, err := receipt.NewSigner(private, r.published)
	if errors.Is(err, receipt.ErrMismatch) {
		if r.secret != nil {
			r.secret.failed()
		}
		return nil, errors.New("RECEIPT_KEY is none of the keys in RECEIPT_PUBLIC_KEYS: answers come without a signed receipt")
	}
	r.signer.Store(s)
	return s, err
}

// receiptKeyOf is the receipts' key that a secret has.
func receiptKeyOf(doc []byte) (ed25519.PrivateKey, error) {
	var v struct {
		Key string `json:"receipt_key"`
	}
	if json.Unmarshal(doc, &v) != nil { // its text would quote the secret
		return nil, errors.New("the secret is not a JSON object with the text receipt_key")
	}
	if v.Key == "" {
		return nil, nil
	}
	key, err := receipt.ParseKey(v.Key)
	if err != nil {
		return nil, fmt.Errorf("receipt_key of the secret %w", err)
	}
	return key, nil
}

// SignReceipts has a configuration that names no receipt key sign with this one.
func (c *Config) SignReceipts(key ed25519.PrivateKey) {
	if c.receiptKey != nil || c.secret != nil {
		return
	}
	if public, ok := key.Public().(ed25519.PublicKey); ok && len(c.ReceiptKeys) == 0 {
		c.ReceiptKeys = []ed25519.PublicKey{public}
	}
	c.receiptKey = key
}
