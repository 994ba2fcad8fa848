package main

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/hostfacts/hostfacts/infra/local/bill"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// printReceiptCheck prints in one line whether the signed receipt of an answer is valid. An
// invalid receipt is only a warning: the answer is still shown.
func (p *payer) printReceiptCheck(ctx context.Context, r x402test.Reply) {
	settled, err := r.Receipt()
	if err != nil && r.Header.Get(x402.HeaderResponse) != "" {
		p.printNote("receipt: the receipt of this answer cannot be read\n")
		return
	}
	signed := settled.Extensions.OfferReceipt.Info.Receipt
	switch {
	case !settled.Success && r.Status != http.StatusOK:
		return // nothing was paid, so there is nothing to confirm
	case signed == x402.SignedReceipt{}:
		p.printNote("receipt: this answer came without one\n")
		return
	case signed.Format != x402.FormatJWS:
		p.printNote("receipt: not checked: its format is not %s\n", x402.FormatJWS)
		return
	}
	delivery := bill.Delivery{RequestURL: p.url, Settled: settled, Body: r.Body}
	s, kid, err := delivery.Verify(ctx, signed.Signature)
	switch {
	case errors.Is(err, bill.ErrUnchecked):
		p.printNote("receipt: NOT CHECKED: %s\n", err)
	case err != nil:
		p.printNote("receipt: INVALID: %s\n", err)
	case s.ResponseHash == "":
		p.printNote("receipt: valid for the payment, signed by %s; it does not cover the answer\n", kid)
	case s.Request == "":
		p.printNote("receipt: valid for these %d bytes, signed by %s; it does not name the request\n", len(r.Body), kid)
	default:
		p.printNote("receipt: valid: signed by %s at %s for these %d bytes\n", kid, time.Unix(s.IssuedAt, 0).UTC().Format(time.RFC3339), len(r.Body))
	}
}
