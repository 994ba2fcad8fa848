package x402http

import (
	"sync"

	"github.com/hostfacts/hostfacts/pkg/printable"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// quote is an offer with the body that carries it, encoded once but for the retry token.
type quote struct {
	offer *x402.Offer
	body  x402.Form
	says  func(x402.PaymentRequired, *fault.Error) any
}

func newQuote(o *x402.Offer, says func(x402.PaymentRequired, *fault.Error) any) (*quote, error) {
	if says == nil {
		says = func(required x402.PaymentRequired, _ *fault.Error) any { return required }
	}
	unpaid := fault.New(fault.PaymentRequired, nil)
	body, err := x402.NewForm(func(token string) any { return says(o.Required("").WithToken(token), unpaid) })
	if err != nil {
		return nil, err
	}
	return &quote{offer: o, body: body, says: says}, nil
}

// text is the body with a retry token, for a request without a payment, and with the
// reason why a payment was refused.
func (q *quote) text(refused *fault.Error, reason, token string) []byte {
	if refused == nil {
		return q.body.JSON(token)
	}
	return printable.Marshal(q.says(q.offer.Required(reason).WithToken(token), refused))
}

// quote is the quote at a place, made again when its offer can be signed.
func (e *Endpoint) quote(at string) (*quote, error) {
	return e.quotes.of(at, func(had *quote) (*quote, error) {
		var offer *x402.Offer
		var err error
		if had != nil {
			offer = had.offer
		} else if offer, err = e.product.Offer(at); err != nil {
			return nil, err
		}
		if offer, err = offer.Signed(e.seller.config.Receipts); err != nil || had != nil && offer == had.offer {
			return had, err
		}
		return newQuote(offer, e.product.Says)
	})
}

// maxPlaces bounds the memory. One place gives way to another above it: a stranger can name
// hosts, and is not to keep the real one out.
const maxPlaces = 64

// places keeps what is made once for each place.
type places[T any] struct {
	mu sync.Mutex
	at map[string]*T
}

// of is what belongs to a place: update makes it, of what was kept, which is nil at first.
func (p *places[T]) of(at string, update func(had *T) (*T, error)) (*T, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	had := p.at[at]
	v, err := update(had)
	if err != nil || v == had {
		return v, err
	}
	if p.at == nil {
		p.at = map[string]*T{}
	}
	for other := range p.at {
		if had != nil || len(p.at) < maxPlaces {
			break
		}
		delete(p.at, other)
	}
	p.at[at] = v
	return v, nil
}
