package x402

import (
	"context"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/receipt"
)

// Receipts sign what is offered and what was delivered (design §16 and §23).
type Receipts interface {
	// Sign returns the receipt of an answer, a compact JWS, or nothing where no key
	// is configured.
	Sign(ctx context.Context, s receipt.Statement) (string, error)
	// SignOffer returns a signed offer, a compact JWS, or nothing while no key is in
	// memory: it waits for nothing, because a challenge does not.
	SignOffer(o receipt.Offer) (string, error)
}

// Sale is the payment that a job is run for.
type Sale struct {
	Payer       string // checksummed address
	Network     string // CAIP-2
	Transaction string // hash of the transfer; empty where nobody has told it
	Amount      string // in atomic units
	// Repeat says that an earlier run for this payment ended with its process, without an
	// answer, or with one that could not be kept. A run whose settlement was never recorded
	// is not known.
	Repeat bool
}

type saleKey struct{}

// SaleOf is the payment that a job runs for; ok is false for the context of no job.
func SaleOf(ctx context.Context) (s Sale, ok bool) {
	s, ok = ctx.Value(saleKey{}).(Sale)
	return s, ok
}

// signBudget is the most that signing may take. It is a part of afterwork: the key
// can be in a secret that has to be read first, and the answer must still be stored.
const signBudget = time.Second

// signed is the receipt of an answer that this attempt gives; empty without a key,
// or without one in time. An answer without a receipt is an answer all the same.
func (a *attempt) signed(ctx context.Context, paid *SettleResponse, body []byte) string {
	if a.gate.Receipts == nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(withoutDeadline(ctx), signBudget)
	defer cancel()
	jws, err := a.gate.Receipts.Sign(ctx, receipt.Statement{
		IssuedAt: a.gate.Now().Unix(), Network: paid.Network, Payer: paid.Payer, Transaction: paid.Transaction,
		Request: a.job.Fingerprint, ResourceURL: a.request.Offer.required.Resource.URL, ResponseHash: receipt.HashOf(body),
	})
	if err != nil {
		a.trace.Unreceipted = true
		a.gate.Log.WarnContext(ctx, "no receipt", "error", err)
		return ""
	}
	return jws
}

// with returns the response with a signed receipt, if there is one.
func (s *SettleResponse) with(jws string) *SettleResponse {
	if jws == "" {
		return s
	}
	out := *s
	out.Extensions.OfferReceipt.Info.Receipt = SignedReceipt{Format: FormatJWS, Signature: jws}
	return &out
}
