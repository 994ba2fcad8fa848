// Package x402test helps to test a program that sells over x402. It has the other parties of a
// payment: a wallet (NewWallet), a client that pays (Client), and play money. The play money is
// either in the process (PlayMoney) or comes from a facilitator that can be told to fail
// (NewFacilitator). Node is a node of the play money's chain. Judge plays failures such as lost
// replies, kills and strangers against a handler, and fails the test if a purchase is charged
// twice or not answered.
//
// Deployed programs do not import this package.
package x402test

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/decred/dcrd/dcrec/secp256k1/v4"
	"github.com/decred/dcrd/dcrec/secp256k1/v4/ecdsa"

	"github.com/hostfacts/hostfacts/pkg/x402"
)

// Wallet signs payments with one key.
type Wallet struct {
	key    *secp256k1.PrivateKey
	random io.Reader
}

// NewWallet returns a wallet with a new key. The key, and later the nonces of the wallet's
// payments, come from the given source of random bytes.
func NewWallet(random io.Reader) (*Wallet, error) {
	key, err := secp256k1.GeneratePrivateKeyFromRand(random)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	return &Wallet{key: key, random: random}, nil
}

// WalletFromHex returns the wallet with the given private key: 32 bytes in hexadecimal. The
// key must not be 0, and must be below the order of the curve.
func WalletFromHex(key string, random io.Reader) (*Wallet, error) {
	b, err := hex.DecodeString(key)
	if err != nil || len(b) != 32 {
		return nil, fmt.Errorf("a key is 32 bytes of hex")
	}
	var n secp256k1.ModNScalar
	if overflow := n.SetByteSlice(b); overflow || n.IsZero() {
		return nil, fmt.Errorf("the key is not in the range of the curve")
	}
	return &Wallet{key: secp256k1.NewPrivateKey(&n), random: random}, nil
}

// Address returns the wallet's account.
func (w *Wallet) Address() x402.Address { return x402.KeyAddress(w.key.PubKey()) }

// Sign returns the signature of a digest: the 65 bytes r, s, v.
func (w *Wallet) Sign(digest [32]byte) []byte {
	compact := ecdsa.SignCompact(w.key, digest[:], false) // compact has the order v, r, s
	return append(compact[1:], compact[0])
}

// Draft is a payment before it is signed. Tests may change any of it.
type Draft struct {
	Payload x402.Payload
	Terms   x402.Terms
}

// Draft returns the payment that the reference clients would make. It repeats the first entry
// of the offer unchanged. validAfter is 0. validBefore is the time now plus the time-out in
// that entry.
func (w *Wallet) Draft(required x402.PaymentRequired, now time.Time) (Draft, error) {
	if len(required.Accepts) == 0 {
		return Draft{}, fmt.Errorf("the offer has no way to pay")
	}
	r := required.Accepts[0]
	accepted, err := json.Marshal(r)
	if err != nil {
		return Draft{}, err
	}
	var nonce [32]byte
	if _, err := io.ReadFull(w.random, nonce[:]); err != nil {
		return Draft{}, fmt.Errorf("draw a nonce: %w", err)
	}
	resource := required.Resource
	until := now.Add(time.Duration(r.MaxTimeoutSeconds) * time.Second).Unix()
	return Draft{
		Terms: x402.Terms{
			Network: r.Network,
			Asset:   r.Asset,
			PayTo:   r.PayTo,
			Name:    r.Extra.Name,
			Version: r.Extra.Version,
		},
		Payload: x402.Payload{
			X402Version: x402.Version,
			Resource:    &resource,
			Accepted:    accepted,
			Extensions:  required.Extensions,
			Payload: x402.ExactPayload{Authorization: x402.Authorization{
				From:        w.Address().Checksum(),
				To:          r.PayTo,
				Value:       r.Amount,
				ValidAfter:  "0",
				ValidBefore: strconv.FormatInt(until, 10),
				Nonce:       "0x" + hex.EncodeToString(nonce[:]),
			}},
		},
	}, nil
}

// Seal signs a draft and returns the PAYMENT-SIGNATURE header.
func (w *Wallet) Seal(d Draft) (string, error) {
	digest, err := Digest(d.Payload.Payload.Authorization, d.Terms)
	if err != nil {
		return "", err
	}
	d.Payload.Payload.Signature = "0x" + hex.EncodeToString(w.Sign(digest))
	return x402.EncodeHeader(d.Payload)
}

// Pay drafts a payment, signs it, and returns the PAYMENT-SIGNATURE header.
func (w *Wallet) Pay(required x402.PaymentRequired, now time.Time) (string, error) {
	d, err := w.Draft(required, now)
	if err != nil {
		return "", err
	}
	return w.Seal(d)
}

// Digest returns the digest that the payer of an authorization signs.
func Digest(a x402.Authorization, t x402.Terms) ([32]byte, error) {
	domain, err := t.TokenDomain()
	if err != nil {
		return [32]byte{}, err
	}
	unsigned := x402.ExactPayload{Signature: "0x" + strings.Repeat("00", 65), Authorization: a}
	header, err := x402.EncodeHeader(x402.Payload{X402Version: x402.Version, Accepted: json.RawMessage("{}"), Payload: unsigned})
	if err != nil {
		return [32]byte{}, err
	}
	p, err := x402.DecodePayment(header)
	if err != nil {
		return [32]byte{}, err
	}
	return p.Digest(domain), nil
}
