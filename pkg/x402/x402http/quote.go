package x402http

import (
	"net/http"
	"sync"

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
	return JSON(q.says(q.offer.Required(reason).WithToken(token), refused))
}

// respond is the 402 that asks for the payment, and says why an earlier one was refused.
func (q *quote) respond(refused *fault.Error, token string) (Response, error) {
	f, reason := refused, ""
	if f == nil {
		f = fault.New(fault.PaymentRequired, nil)
	} else {
		reason = f.Public()
	}
	header, err := q.offer.Challenge(q.offer.Required(reason).Error, token)
	if err != nil {
		return Response{}, err
	}
	h := http.Header{}
	h.Set("Content-Type", TypeJSON)
	h.Set("Cache-Control", "no-store")
	h.Set(x402.HeaderRequired, header)
	return Response{Status: http.StatusPaymentRequired, Header: h, Body: q.text(refused, reason, token), Fault: f}, nil
}

// quotes keeps the quote of each place at which a product is asked for.
type quotes struct {
	receipts x402.Receipts
	make     func(at string) (*x402.Offer, error)
	says     func(x402.PaymentRequired, *fault.Error) any
	mu       sync.Mutex
	at       map[string]*quote
}

// maxQuotes bounds the memory. More are made for each request anew.
const maxQuotes = 64

// of is the quote at a place, made again when its offer can be signed.
func (o *quotes) of(at string) (*quote, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	q, known := o.at[at]
	var offer *x402.Offer
	if known {
		offer = q.offer
	} else {
		var err error
		if offer, err = o.make(at); err != nil {
			return nil, err
		}
	}
	offer, err := offer.Signed(o.receipts)
	if err != nil || known && offer == q.offer {
		return q, err
	}
	if q, err = newQuote(offer, o.says); err != nil {
		return nil, err
	}
	if o.at == nil {
		o.at = map[string]*quote{}
	}
	if known || len(o.at) < maxQuotes {
		o.at[at] = q
	}
	return q, nil
}
