package storefront

import (
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// quote is an offer with what a 402 without a payment needs of it, made once for each place.
type quote struct {
	offer    *x402.Offer
	body     x402.Form // of a response over HTTP; the retry token is left out
	unsigned x402.Form // the same for the call of a tool, without signatures
	unpaid   *fault.Error
}

// quote returns the quote for a place. It is made again when its offer can be signed, which a
// key that was not there at first allows.
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

// firstQuote makes the quote for a place that has none.
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

// form is the body of a 402 with everything but its retry token.
func (e *Endpoint) form(offer *x402.Offer, unpaid *fault.Error) (x402.Form, error) {
	return x402.NewForm(func(token string) any {
		return e.product.ChallengeBody(offer.Required("").WithToken(token), unpaid)
	})
}
