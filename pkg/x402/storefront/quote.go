package storefront

import (
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// quote is an offer with those parts of a 402 that are the same for every request without a
// payment. Each place has one quote.
type quote struct {
	offer    *x402.Offer
	body     x402.Form // the body of a response over HTTP, without the retry token
	unsigned x402.Form // the body for a tool call, without the retry token and without signatures
	unpaid   *fault.Error
}

// quote returns the quote for a place. If the offer could not be signed at first, because the
// key was not available, quote makes the quote again as soon as the offer can be signed.
func (e *Endpoint) quote(at string) (*quote, error) {
	return e.quotes.Of(at, func(had *quote) (*quote, error) {
		if had == nil {
			return e.firstQuote(at)
		}
		signed, err := had.offer.Signed(e.shop.Receipts)
		if err != nil {
			return nil, err
		}
		if signed == had.offer {
			return had, nil
		}
		return e.newQuote(signed)
	})
}

// firstQuote makes the quote for a place that does not have one.
func (e *Endpoint) firstQuote(at string) (*quote, error) {
	offer, err := e.product.Offer(at)
	if err != nil {
		return nil, err
	}
	signed, err := offer.Signed(e.shop.Receipts)
	if err != nil {
		return nil, err
	}
	return e.newQuote(signed)
}

func (e *Endpoint) newQuote(offer *x402.Offer) (*quote, error) {
	unpaid := fault.New(fault.PaymentRequired, nil)
	body, err := e.form(offer, unpaid)
	if err != nil {
		return nil, err
	}
	unsigned, err := e.form(offer.Unsigned(), unpaid)
	if err != nil {
		return nil, err
	}
	return &quote{offer: offer, body: body, unsigned: unsigned, unpaid: unpaid}, nil
}

// form returns the body of a 402 without its retry token.
func (e *Endpoint) form(offer *x402.Offer, unpaid *fault.Error) (x402.Form, error) {
	return x402.NewForm(func(token string) any {
		return e.product.ChallengeBody(offer.Required("").WithToken(token), unpaid)
	})
}
