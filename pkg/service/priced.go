package service

import (
	"crypto/rand"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/discovery"
	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

// priced is the handler of one priced operation.
type priced struct {
	deps    Deps
	op      catalog.Operation
	timeout fault.Code
	parse   parse
	gate    *x402.Gate
	offers  *offers
}

func (d Deps) priced(op catalog.Operation, timeout fault.Code, p parse) http.Handler {
	gate := x402.NewGate(x402.GateConfig{Ledger: d.Ledger, Facilitator: d.Facilitator, Evidence: d.Evidence, Slots: d.Limits.slots(op, d.Now), Now: d.Now, Log: d.Log})
	h := &priced{deps: d, op: op, timeout: timeout, parse: p, gate: gate, offers: newOffers(d, op)}
	return edge{deps: d, name: op.Slug, next: h, priced: true}
}

func (p *priced) methods(*http.Request) []string { return []string{http.MethodGet, http.MethodHead} }

func (p *priced) serve(r *http.Request, id string) response {
	arrived := p.deps.Now()
	signature := r.Header.Values(x402.HeaderSignature)
	limits, over := p.rate(r, id, len(signature) > 0)
	if over == nil {
		res := p.answer(r, id, arrived, signature)
		over = &res
	}
	for name, values := range limits {
		over.header[name] = values
	}
	over.header.Set("Vary", vary)
	return *over
}

func (p *priced) answer(r *http.Request, id string, arrived time.Time, signature []string) response {
	quote, err := p.offers.of(p.deps.Origin(r))
	if err != nil {
		return p.deps.fault(r, id, fault.New(fault.InternalError, err), x402.Standing{Charged: unpaid(r)})
	}
	// HEAD mirrors the offer and never settles: its answer has no body.
	if len(signature) == 0 || r.Method == http.MethodHead {
		if discovery.WantsHTML(strings.Join(r.Header.Values("Accept"), ", ")) {
			return p.paywall(r, id, quote)
		}
		return quote.challenge()
	}
	if len(signature) > 1 {
		return p.refused(r, id, quote, x402.Outcome{Fault: fault.Newf(fault.PaymentRequired, nil, "PAYMENT-SIGNATURE was sent %d times", len(signature))})
	}
	out := p.gate.Serve(r.Context(), x402.Request{
		Signature: signature[0], Offer: quote.offer, Deadline: arrived.Add(deadline),
		Prepare: func() (x402.Job, error) { return job(p.op, p.timeout, p.parse, r.URL.RawQuery) },
		Error:   func(f *fault.Error, s x402.Standing) []byte { return p.deps.errorJSON(r, id, f, s) },
	})
	if out.Status == http.StatusPaymentRequired {
		return p.refused(r, id, quote, out)
	}
	return p.paid(out)
}

// paid answers a payment that was accepted, whatever came of it.
func (p *priced) paid(out x402.Outcome) response {
	h := http.Header{}
	if out.Fault != nil {
		h = errorHeader(out.Fault)
	}
	if out.Status < http.StatusBadRequest {
		h.Set("Cache-Control", "private, no-store")
	} else {
		h.Set("Cache-Control", "no-store")
	}
	h.Set("Content-Type", jsonType)
	if out.Replayed {
		h.Set(x402.HeaderReplayed, "true")
	}
	receipt(h, out.Receipt)
	return response{status: out.Status, header: h, body: out.Body, fault: out.Fault, trace: &out.Trace, replayed: out.Replayed}
}

// refused answers a payment that was not accepted: the offer again, with the
// reason, and the failed settlement when there was one.
func (p *priced) refused(r *http.Request, id string, q *quote, out x402.Outcome) response {
	res, err := q.refusal(out.Fault)
	if err != nil {
		return p.deps.fault(r, id, fault.New(fault.InternalError, err), x402.Standing{Charged: unpaid(r)})
	}
	receipt(res.header, out.Receipt)
	res.trace = &out.Trace
	return res
}

func (p *priced) paywall(r *http.Request, id string, q *quote) response {
	values, refused := asked(p.op, p.parse, r.URL.RawQuery)
	body, csp, err := discovery.Paywall(p.op, p.deps.site(p.deps.Origin(r)), discovery.Visit{
		Asked: values, Refused: refused, Offer: q.header, Nonce: rand.Text(),
	})
	if err != nil {
		return p.deps.fault(r, id, fault.New(fault.InternalError, err), x402.Standing{Charged: unpaid(r)})
	}
	res := q.challenge()
	h := res.header
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", csp)
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Robots-Tag", "noindex")
	res.body = body
	return res
}

// vary is what the answers of a priced path depend on beside its address.
const vary = "Accept, " + x402.HeaderSignature

func receipt(h http.Header, s *x402.SettleResponse) {
	if s == nil {
		return
	}
	if v, err := x402.EncodeHeader(s); err == nil {
		h.Set(x402.HeaderResponse, v)
	}
}

// quote is an offer with the 402 that carries it, encoded once.
type quote struct {
	offer  *x402.Offer
	header string
	body   []byte
}

// challengeBody is the JSON of a 402: the PaymentRequired object, whose error
// is a string, with the code and the message beside it.
type challengeBody struct {
	x402.PaymentRequired
	Code    fault.Code `json:"code"`
	Message string     `json:"message"`
}

func newQuote(o *x402.Offer) (*quote, error) {
	header, err := o.Challenge(o.Required("").Error)
	if err != nil {
		return nil, err
	}
	f := fault.New(fault.PaymentRequired, nil)
	return &quote{offer: o, header: header, body: mustJSON(challengeBody{o.Required(""), f.Code, f.Public()})}, nil
}

func (q *quote) challenge() response {
	return q.respond(q.header, q.body, fault.New(fault.PaymentRequired, nil))
}

func (q *quote) refusal(f *fault.Error) (response, error) {
	header, err := q.offer.Challenge(f.Public())
	if err != nil {
		return response{}, err
	}
	return q.respond(header, mustJSON(challengeBody{q.offer.Required(f.Public()), f.Code, f.Public()}), f), nil
}

func (q *quote) respond(header string, body []byte, f *fault.Error) response {
	h := http.Header{}
	h.Set("Content-Type", jsonType)
	h.Set("Cache-Control", "no-store")
	h.Set(x402.HeaderRequired, header)
	return response{status: http.StatusPaymentRequired, header: h, body: body, fault: f}
}

// offers keeps the quote of each origin that this environment is called by.
type offers struct {
	deps     Deps
	op       catalog.Operation
	mu       sync.Mutex
	byOrigin map[string]*quote
}

// maxOrigins bounds the memory; a deployment has one or two origins, and the
// platform, not the client, names them.
const maxOrigins = 8

func newOffers(d Deps, op catalog.Operation) *offers {
	return &offers{deps: d, op: op, byOrigin: map[string]*quote{}}
}

func (o *offers) of(origin string) (*quote, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if q, ok := o.byOrigin[origin]; ok {
		return q, nil
	}
	offer, err := x402.NewOffer(discovery.Offer(o.op, o.deps.site(origin)))
	if err != nil {
		return nil, err
	}
	q, err := newQuote(offer)
	if err != nil {
		return nil, err
	}
	if len(o.byOrigin) < maxOrigins {
		o.byOrigin[origin] = q
	}
	return q, nil
}
