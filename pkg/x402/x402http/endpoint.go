package x402http

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// Product is what an endpoint or a tool sells. Sell makes one of a handler.
type Product struct {
	// Name names it in logs.
	Name string
	// At is the place of a request, such as its origin, and Offer what is asked for
	// there, which is made once for each place.
	At    func(*http.Request) string
	Offer func(at string) (*x402.Offer, error)
	// Says is the body of the 402 that carries an offer; nil is the offer itself.
	Says func(x402.PaymentRequired, *fault.Error) any
	// Job validates a request and makes its work. Its error is a *fault.Error, which is
	// answered without a charge.
	Job func(*http.Request) (x402.Job, error)
	// Slots cap its jobs; nil is no cap.
	Slots x402.Slots
	// Page answers a request without a payment in place of the 402's body, or leaves the
	// response as it is; nil is never.
	Page func(*http.Request, Response) (Response, error)
	// Window is for how long an answer stands for a purchase without a key.
	Window time.Duration
}

// Endpoint sells one product over HTTP.
type Endpoint struct {
	seller  *Seller
	product Product
	gate    *x402.Gate
	quotes  quotes
}

// Endpoint returns the endpoint of a product.
func (s *Seller) Endpoint(p Product) *Endpoint {
	return &Endpoint{seller: s, product: p, gate: s.gate(p), quotes: s.quotes(p)}
}

func (s *Seller) quotes(p Product) quotes {
	return quotes{receipts: s.config.Receipts, make: p.Offer, says: p.Says}
}

func (s *Seller) gate(p Product) *x402.Gate {
	return x402.NewGate(x402.GateConfig{
		Ledger: s.ledger, Facilitator: s.config.Settler, Fallback: s.config.Fallback, Evidence: s.config.Evidence, Slots: p.Slots,
		Receipts: s.config.Receipts, Now: s.config.Now, Log: s.config.Log,
	})
}

// deadline is how long a request may take, from its arrival. API Gateway ends one after
// 30 s, and the functions time out after 29 s.
const deadline = 27 * time.Second

// Methods implements Path. HEAD mirrors the offer and never settles, because its answer
// has no body.
func (e *Endpoint) Methods(*http.Request) []string { return []string{http.MethodGet, http.MethodHead} }

// ServeHTTP implements http.Handler.
func (e *Endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e.seller.config.serve(w, r, e.product.Name, e)
}

// Serve implements Path.
func (e *Endpoint) Serve(r *http.Request, id string) (res Response) {
	arrived := e.seller.config.Now()
	signature := r.Header.Values(x402.HeaderSignature)
	m := newMeter(e.seller.config.Log, e.seller.config.Rate, r, id, len(signature) > 0 && r.Method != http.MethodHead)
	if f := m.Enter(r.Context()); f != nil {
		// The record is not read, so of a payment it is not known whether it was charged
		// before.
		res = e.seller.config.Failed(r, id, f)
	} else {
		res = e.answer(r, id, arrived, signature, m)
		m.leave(r.Context())
		m.Sent(r, res)
	}
	for name, values := range m.Header() {
		res.Header[name] = values
	}
	res.Header.Set("Vary", vary)
	return res
}

// vary names the request headers that the answers of an endpoint depend on.
const vary = "Accept, Accept-Encoding, " + x402.HeaderSignature + ", " + x402.HeaderKey

func (e *Endpoint) answer(r *http.Request, id string, arrived time.Time, signature []string, m *Meter) Response {
	q, err := e.quotes.of(e.product.At(r))
	if err != nil {
		return e.unready(r, id, err)
	}
	if len(signature) == 0 || r.Method == http.MethodHead {
		return e.challenge(r, id, q)
	}
	if len(signature) > 1 {
		return e.refused(r, id, q, x402.Outcome{Fault: fault.Newf(fault.PaymentRequired, nil, "%s was sent %d times", x402.HeaderSignature, len(signature))})
	}
	out := e.gate.Serve(r.Context(), x402.Request{
		Signature: signature[0], Offer: q.offer, Arrived: arrived, Deadline: arrived.Add(deadline),
		Keys: r.Header.Values(x402.HeaderKey), Window: e.product.Window,
		Client: client(r), Meter: m,
		Prepare: func() (x402.Job, error) { return e.product.Job(r) },
		Error: func(f *fault.Error, s x402.PaymentStatus) []byte {
			if own, ok := ownOf(f); ok {
				return own.body
			}
			return ErrorBody(id, e.seller.config.docs(r, f), f, s)
		},
	})
	if out.Status == http.StatusPaymentRequired && out.Fault != nil {
		return e.refused(r, id, q, out)
	}
	return e.paid(out)
}

// challenge answers a request without a payment.
func (e *Endpoint) challenge(r *http.Request, id string, q *quote) Response {
	res, err := e.asks(q, nil)
	if err == nil && e.product.Page != nil {
		res, err = e.product.Page(r, res)
	}
	if err != nil {
		return e.unready(r, id, err)
	}
	res.Reason = "the request has no " + x402.HeaderSignature
	if r.Method == http.MethodHead {
		res.Reason = "HEAD returns the offer and is never charged"
	}
	return res
}

// asks is the 402 of a quote with a new retry token.
func (e *Endpoint) asks(q *quote, refused *fault.Error) (Response, error) {
	token, err := x402.NewToken(e.seller.config.Random)
	if err != nil {
		return Response{}, err
	}
	return q.respond(refused, token)
}

// refused answers 402 to a payment: the offer again, with the reason, and the failed
// settlement when there was one.
func (e *Endpoint) refused(r *http.Request, id string, q *quote, out x402.Outcome) Response {
	res, err := e.asks(q, out.Fault)
	if err != nil {
		return e.unready(r, id, err)
	}
	receipt(res.Header, out.Receipt)
	if out.Trace.Reason == "" { // the Gate was not asked
		out.Trace.Reason = out.Fault.Public()
	}
	res.Trace = &out.Trace
	return res
}

// paid answers a payment with any outcome but a 402 of ours.
func (e *Endpoint) paid(out x402.Outcome) Response {
	h := http.Header{}
	if out.Fault != nil {
		h = errorHeader(out.Fault)
	}
	h.Set("Cache-Control", "private, no-store")
	if out.Status >= http.StatusBadRequest {
		h.Set("Cache-Control", "no-store")
	}
	h.Set("Content-Type", TypeJSON)
	own := out.Header
	if f, ok := ownOf(out.Fault); ok {
		own = f.header
	}
	for name, values := range own {
		h[name] = values
	}
	if out.Replayed {
		h.Set(x402.HeaderReplayed, "true")
		if !out.Answered.IsZero() {
			h.Set(x402.HeaderAge, strconv.Itoa(age(out.Answered, e.seller.config.Now())))
		}
	}
	if len(out.Owed) > 0 {
		h.Set(x402.HeaderOwed, strings.Join(out.Owed, ", "))
	}
	receipt(h, out.Receipt)
	return Response{Status: out.Status, Header: h, Body: out.Body, Fault: out.Fault, Trace: &out.Trace, Replayed: out.Replayed}
}

// age is how old a stored answer is in whole seconds (RFC 9111 §5.1), and not below 0:
// the clocks of two machines may differ.
func age(answered, now time.Time) int { return max(int(now.Sub(answered)/time.Second), 0) }

// unready answers when no offer could be made, which is a bug.
func (e *Endpoint) unready(r *http.Request, id string, err error) Response {
	return e.seller.config.Failed(r, id, fault.New(fault.InternalError, err))
}

func receipt(h http.Header, s *x402.SettleResponse) {
	if s == nil {
		return
	}
	if v, err := x402.EncodeHeader(s); err == nil {
		h.Set(x402.HeaderResponse, v)
	}
}
