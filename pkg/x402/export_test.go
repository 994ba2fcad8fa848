package x402

import (
	"context"
	"encoding/hex"
	"fmt"
	"math/big"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// Signed is a payment without a real signature. The Gate does not recover its signer, and
// assumes that the payer signed it. The explorer uses such payments because recovering a
// signer takes longer than all other work for a request.
type Signed struct {
	payment *Payment
	claim   ledger.Submission
}

// Key returns the key of the payment's record.
func (s Signed) Key() string { return s.claim.Key }

// SignedFor returns a payment of the amount that an offer asks for. The given byte is the last
// byte of the payment's nonce; the other bytes are zero. If token is the empty string, the
// payment has no retry token.
func SignedFor(o *Offer, from Address, nonce byte, validBefore time.Time, token string) Signed {
	p := &Payment{
		From: from, To: o.payTo, Value: o.amount, ValidAfter: new(big.Int), ValidBefore: big.NewInt(validBefore.Unix()),
		Nonce: [32]byte{31: nonce}, Signature: make([]byte, keySignature), accepted: o.accepted, extensions: object{},
	}
	c := ledger.Submission{
		Key:        ledger.Key(o.required.Accepts[0].Network, o.asset.String(), from.String(), "0x"+hex.EncodeToString(p.Nonce[:])),
		AuthDigest: digestOf(fmt.Sprint(nonce, validBefore.Unix())), SigDigest: digestOf(fmt.Sprint("signature", nonce)),
		Terms: o.terms, ValidBefore: validBefore.UTC(), Payload: p.storedPayload(), Recovered: true,
	}
	if token != "" {
		c.Token = digestOf(token)
	}
	return Signed{p, c}
}

// ServeSigned does the part of Serve that follows once the signer is known and the Meter, if
// there is one, has admitted the request.
func (g *Gate) ServeSigned(ctx context.Context, r Request, s Signed) Outcome {
	a := newAttempt(g, r)
	a.payment = s.payment
	a.claim = s.claim
	a.terms = r.Offer.required.Accepts[0]
	a.claim.Asks = g.Settler.First()
	a.claim.NoNode = g.Evidence == nil
	out := newAdmission(a).decide(ctx)
	if out == nil {
		out = a.serveAdmitted(ctx)
	}
	out.Trace = *a.trace
	return *out
}

// PurchaseOf returns the ledger key of the purchase that a request opens. The argument key is
// the payer's name for the purchase. If it is empty, the fingerprint of the request identifies
// the purchase.
func PurchaseOf(o *Offer, s Signed, key, fingerprint string) string {
	id := ledger.RequestID(digestOf(fingerprint))
	if key != "" {
		id = ledger.KeyID(digestOf(key))
	}
	return ledger.PurchaseKey(o.required.Accepts[0].Network, o.asset.String(), s.payment.From.String(), id)
}

// Pausing makes the Gate call a function wherever it would otherwise wait for a duration.
func (g *Gate) Pausing(pause func(ctx context.Context, d time.Duration) bool) { g.pause = pause }

// Conclusion is a row of the Gate's table of conclusions. The table says what an attempt to
// settle records, and what the payer is told.
type Conclusion conclusion

// Conclusions returns all rows of the Gate's table of conclusions.
func Conclusions() (rows []Conclusion) {
	for _, c := range conclusions() {
		rows = append(rows, Conclusion(c))
	}
	return rows
}

// Concluding replaces the Gate's table of conclusions with rows. Each time the Gate chooses a
// row, it calls onRow with the index of that row.
func (g *Gate) Concluding(rows []Conclusion, onRow func(row int)) {
	g.conclusions, g.onConclusion = make([]conclusion, len(rows)), onRow
	for i, c := range rows {
		g.conclusions[i] = conclusion(c)
	}
}

// Otherwise returns copies of the row c, each with another event and another reply. The pairs of
// event and reply come from a fixed list. A pair is left out if it shares its event or its reply
// with c.
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
		class = map[Class]string{classNonceUsed: "used", classExpired: "expired"}[c.class]
		if class == "" {
			class = c.class.String()
		}
	}
	return fmt.Sprintf("%s, doubt %03b, %s: %s, reply %d", class, c.doubt, chain, c.event, c.reply)
}
