package x402

import (
	"context"
	"encoding/hex"
	"fmt"
	"math/big"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// Signed is a payment whose signer is known. The explorer creates it without a signature,
// because recovering a signer takes longer than all other work for a request.
type Signed struct {
	payment *Payment
	claim   ledger.Submission
}

// Key returns the key of the payment's record.
func (s Signed) Key() string { return s.claim.Key }

// SignedFor returns a payment for an offer. If token is empty, the payment has no retry token.
func SignedFor(o *Offer, from Address, nonce byte, validBefore time.Time, token string) Signed {
	p := &Payment{
		From: from, To: o.payTo, Value: o.amount, ValidAfter: new(big.Int), ValidBefore: big.NewInt(validBefore.Unix()),
		Nonce: [32]byte{31: nonce}, Signature: make([]byte, keySignature), accepted: o.accepted, extensions: object{},
	}
	c := ledger.Submission{
		Key:        ledger.Key(o.required.Accepts[0].Network, o.asset.String(), from.String(), "0x"+hex.EncodeToString(p.Nonce[:])),
		AuthDigest: digestOf(fmt.Sprint(nonce, validBefore.Unix())), SigDigest: digestOf(fmt.Sprint("signature", nonce)),
		Terms: o.terms, ValidBefore: validBefore.UTC(), Payload: p.stored(), Recovered: true,
	}
	if token != "" {
		c.Token = digestOf(token)
	}
	return Signed{p, c}
}

// ServeSigned does what Serve does from the moment at which the signer is known.
func (g *Gate) ServeSigned(ctx context.Context, r Request, s Signed) Outcome {
	a := newAttempt(g, r)
	a.payment = s.payment
	a.claim = s.claim
	a.terms = r.Offer.required.Accepts[0]
	a.claim.Asks = g.Settler.First()
	a.claim.NoNode = g.Evidence == nil
	out := newAdmission(a).decide(ctx)
	if out == nil {
		out = a.admitted(ctx)
	}
	out.Trace = *a.trace
	return *out
}

// PurchaseOf returns the name of the purchase that a request opens. The name is made from key
// or, if key is empty, from fingerprint.
func PurchaseOf(o *Offer, s Signed, key, fingerprint string) string {
	id := ledger.RequestID(digestOf(fingerprint))
	if key != "" {
		id = ledger.KeyID(digestOf(key))
	}
	return ledger.PurchaseKey(o.required.Accepts[0].Network, o.asset.String(), s.payment.From.String(), id)
}

// Pausing makes the Gate call pause instead of waiting.
func (g *Gate) Pausing(pause func(ctx context.Context, d time.Duration) bool) { g.pause = pause }

// Conclusion is a row of the table of conclusions.
type Conclusion conclusion

// Conclusions returns the rows of the table of conclusions.
func Conclusions() (rows []Conclusion) {
	for _, c := range conclusions() {
		rows = append(rows, Conclusion(c))
	}
	return rows
}

// Concluding replaces the Gate's table of conclusions. The Gate calls onRow with the number of
// each row that it chooses.
func (g *Gate) Concluding(rows []Conclusion, onRow func(row int)) {
	g.conclusions, g.concluded = make([]conclusion, len(rows)), onRow
	for i, c := range rows {
		g.conclusions[i] = conclusion(c)
	}
}

// Otherwise returns copies of the row in which both the event and the reply are different. The
// new pairs of event and reply come from a fixed list.
func (c Conclusion) Otherwise() (rows []Conclusion) {
	for _, o := range []struct {
		event ledger.Event
		reply reply
	}{
		{ledger.EventSettled, replyLookUp}, {ledger.EventDisproved, replyRefused}, {ledger.EventRefused, replyRefused},
		{ledger.EventUncertain, replyUnsure}, {ledger.EventNotSent, replyFault},
	} {
		if o.event != c.event && o.reply != c.reply {
			other := c
			other.event, other.reply = o.event, o.reply
			rows = append(rows, other)
		}
	}
	return rows
}

func (c Conclusion) String() string {
	chain, class := "any verdict", "any class"
	if c.chain != anyFate {
		chain = c.chain.String()
	}
	if c.class != anyClass {
		class = map[Class]string{used: "used", expired: "expired"}[c.class]
		if class == "" {
			class = c.class.String()
		}
	}
	return fmt.Sprintf("%s, doubt %03b, %s: %s, reply %d", class, c.doubt, chain, c.event, c.reply)
}
