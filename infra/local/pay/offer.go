package main

import (
	"context"
	"encoding/base64"
	"net/http"
	"time"

	"github.com/hostfacts/hostfacts/infra/local/bill"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// requestOffer requests the URL without paying. It returns the offer in the answer, and the
// first way to pay that this client supports.
func (p *payer) requestOffer(ctx context.Context) (bill.Offer, bill.Way, error) {
	limited, cancel := context.WithTimeout(ctx, firstAnswer)
	defer cancel()
	r, err := p.client.Get(limited, p.url.String(), "")
	if err != nil {
		return bill.Offer{}, bill.Way{}, unreachableError(p.url, err)
	}
	if r.Status != http.StatusPaymentRequired {
		return bill.Offer{}, bill.Way{}, notForSaleError(p.url, r)
	}
	header := r.Header.Get(x402.HeaderRequired)
	if header == "" {
		return bill.Offer{}, bill.Way{}, newSafeError("%s wants a payment, but not by x402 version %d: its 402 has no %s header", p.url, x402.Version, x402.HeaderRequired)
	}
	o, err := parseOfferHeader(header)
	if err != nil {
		return o, bill.Way{}, err
	}
	w, err := o.Choose()
	return o, w, err
}

// parseOfferHeader parses the value of the header PAYMENT-REQUIRED.
func parseOfferHeader(header string) (bill.Offer, error) {
	raw, err := base64.StdEncoding.DecodeString(header)
	if err != nil {
		return bill.Offer{}, newSafeError("%s: %s", x402.HeaderRequired, err)
	}
	o, err := bill.ReadOffer(raw)
	if err != nil {
		return o, newSafeError("%s: %s", x402.HeaderRequired, err)
	}
	return o, nil
}

// signPayment signs a payment for w, which is one of the offer's ways to pay. It returns the
// value of the header PAYMENT-SIGNATURE.
func signPayment(wallet *x402test.Wallet, o bill.Offer, w bill.Way, now time.Time) (string, error) {
	signed, err := bill.Seal(wallet, o, w, now)
	if err != nil {
		return "", err
	}
	return x402.EncodeHeader(signed)
}
