package x402

import (
	"context"

	"github.com/hostfacts/hostfacts/pkg/x402/receipt"
)

// signed is the receipt of an answer that this attempt gives; empty without a key.
// An answer without one is an answer all the same.
func (a *attempt) signed(ctx context.Context, paid SettleResponse, body []byte) string {
	if a.gate.receipts == nil {
		return ""
	}
	jws, err := a.gate.receipts.Sign(withoutDeadline(ctx), receipt.Delivery{
		At: a.gate.now(), Network: paid.Network, Payer: paid.Payer, Transaction: paid.Transaction,
		ResourceURL: a.request.Offer.required.Resource.URL, Body: body,
	})
	if err != nil {
		a.gate.log.WarnContext(ctx, "no receipt", "error", err)
		return ""
	}
	return jws
}

// with returns the response with a signed receipt, if there is one.
func (s *SettleResponse) with(jws string) *SettleResponse {
	if s == nil || jws == "" {
		return s
	}
	out := *s
	out.Extensions.OfferReceipt.Info.Receipt = SignedReceipt{Format: FormatJWS, Signature: jws}
	return &out
}
