package x402http

import (
	"cmp"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/limit"
)

// Product is what an endpoint sells. Sell makes one of a handler.
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
	// Cap is how many jobs of products of this name run at once, in all processes that
	// share Config.Limits; 0 means any number.
	Cap int
	// Page answers a request without a payment in place of the 402's body, or leaves the
	// response as it is; nil is never.
	Page func(*http.Request, Response) (Response, error)
	// Window is for how long an answer stands for a purchase without a key.
	Window time.Duration
}

// Endpoint sells one product over HTTP, and as a tool.
type Endpoint struct {
	seller  *Seller
	product Product
	gate    *x402.Gate
	quotes  places[quote]
}

// Endpoint returns the endpoint of a product.
func (s *Seller) Endpoint(p Product) *Endpoint {
	c := x402.GateConfig{
		Ledger: s.ledger, Facilitator: s.config.Settler, Fallback: s.config.Fallback, Evidence: s.config.Evidence,
		Receipts: s.config.Receipts, Now: s.config.Front.Now, Log: s.config.Front.Log,
	}
	if p.Cap > 0 {
		c.Slots = gateSlots{limit.NewSlots(p.Name, p.Cap, s.config.Limits, s.config.Front.Now)}
	}
	return &Endpoint{seller: s, product: p, gate: x402.NewGate(c)}
}

// exchange is a request for what an endpoint sells, over one of the two transports.
type exchange interface {
	// payment puts the payment into the request of the Gate; paid is false without one.
	// The error says what is wrong with how it came.
	payment(q *x402.Request) (paid bool, err error)
	// job is the work that is asked for.
	job() (x402.Job, error)
	// asks answers 402: the offer with a retry token, and why a payment was refused, which
	// is nil for a request without one.
	asks(q *quote, token string, refused *fault.Error, receipt *x402.SettleResponse) (Response, error)
	// paid answers a payment with any outcome but a 402 of ours.
	paid(out x402.Outcome) Response
	// fails answers an error outside the flow of a payment.
	fails(f *fault.Error) Response
	// errorBody is the body of any error.
	errorBody(f *fault.Error, s x402.PaymentStatus) []byte
}

// deadline is how long a request may take, from its arrival. API Gateway ends one after
// 30 s, and the functions time out after 29 s.
const deadline = 27 * time.Second

// sell answers a request at a place.
func (e *Endpoint) sell(x exchange, r *http.Request, at string, arrived time.Time, m *meter) Response {
	q, err := e.quote(at)
	if err != nil {
		return x.fails(fault.New(fault.InternalError, err))
	}
	request := x402.Request{
		Offer: q.offer, Arrived: arrived, Deadline: arrived.Add(deadline), Window: e.product.Window,
		Client: m.site, Meter: m, Prepare: x.job, Error: x.errorBody,
	}
	var out x402.Outcome
	paid, bad := x.payment(&request)
	switch {
	case bad != nil:
		out.Fault = fault.Newf(fault.PaymentRequired, nil, "%s", bad)
		out.Trace.Reason = out.Fault.Public()
	case paid:
		out = e.gate.Serve(r.Context(), request)
		if out.Status != http.StatusPaymentRequired || out.Fault == nil {
			return x.paid(out)
		}
	}
	token, err := x402.NewToken(e.seller.config.Random)
	if err != nil {
		return x.fails(fault.New(fault.InternalError, err))
	}
	res, err := x.asks(q, token, out.Fault, out.Receipt)
	if err != nil {
		return x.fails(fault.New(fault.InternalError, err))
	}
	if res.Fault = cmp.Or(out.Fault, fault.New(fault.PaymentRequired, nil)); paid {
		res.Trace, res.Reason = &out.Trace, "" // which is in the trace
	}
	return res
}

// Methods implements Path. HEAD mirrors the offer and never settles, because its answer
// has no body.
func (e *Endpoint) Methods(*http.Request) []string { return []string{http.MethodGet, http.MethodHead} }

// ServeHTTP implements http.Handler.
func (e *Endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e.seller.config.Front.serve(w, r, e.product.Name, e)
}

// vary names the request headers that the answers of an endpoint depend on.
const vary = "Accept, Accept-Encoding, " + x402.HeaderSignature + ", " + x402.HeaderKey

// Serve implements Path.
func (e *Endpoint) Serve(r *http.Request, id string) Response {
	x := &get{e: e, r: r, id: id}
	if r.Method != http.MethodHead {
		x.signatures = r.Header.Values(x402.HeaderSignature)
	}
	arrived := e.seller.config.Front.Now()
	m := newMeter(e.seller.config.Front.Log, e.seller.config.Rate, r, id, len(x.signatures) > 0)
	res := m.count(r, x.fails, func() Response { return e.sell(x, r, e.product.At(r), arrived, m) })
	res.Header.Set("Vary", vary)
	return res
}

// get is a request over HTTP: a GET, or HEAD.
type get struct {
	e          *Endpoint
	r          *http.Request
	id         string
	signatures []string
}

func (x *get) payment(q *x402.Request) (paid bool, err error) {
	if n := len(x.signatures); n != 1 {
		if n > 1 {
			err = fmt.Errorf("%s was sent %d times", x402.HeaderSignature, n)
		}
		return n > 1, err
	}
	q.Signature, q.Keys = x.signatures[0], x.r.Header.Values(x402.HeaderKey)
	return true, nil
}

func (x *get) job() (x402.Job, error) { return x.e.product.Job(x.r) }

func (x *get) asks(q *quote, token string, refused *fault.Error, receipt *x402.SettleResponse) (Response, error) {
	reason := ""
	if refused != nil {
		reason = refused.Public()
	}
	header, err := q.offer.Challenge(q.offer.Required(reason).Error, token)
	if err != nil {
		return Response{}, err
	}
	h := http.Header{}
	h.Set("Content-Type", TypeJSON)
	h.Set("Cache-Control", "no-store")
	h.Set(x402.HeaderRequired, header)
	setReceipt(h, receipt)
	res := Response{Status: http.StatusPaymentRequired, Header: h, Body: q.text(refused, reason, token)}
	res.Reason = "the request has no " + x402.HeaderSignature
	if x.r.Method == http.MethodHead {
		res.Reason = "HEAD returns the offer and is never charged"
	}
	if refused == nil && x.e.product.Page != nil {
		return x.e.product.Page(x.r, res)
	}
	return res, nil
}

func (x *get) paid(out x402.Outcome) Response {
	res := Response{Header: http.Header{}}
	if out.Fault != nil {
		res = Failed(out.Fault)
	}
	h := res.Header
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
			h.Set(x402.HeaderAge, strconv.Itoa(age(out.Answered, x.e.seller.config.Front.Now())))
		}
	}
	if len(out.Owed) > 0 {
		h.Set(x402.HeaderOwed, strings.Join(out.Owed, ", "))
	}
	setReceipt(h, out.Receipt)
	res.Status, res.Body, res.Trace, res.Replayed = out.Status, out.Body, &out.Trace, out.Replayed
	return res
}

// fails: the record was not read, so of a payment it is not known whether it was charged
// before.
func (x *get) fails(f *fault.Error) Response { return Failed(f) }

func (x *get) errorBody(f *fault.Error, s x402.PaymentStatus) []byte {
	if own, ok := ownOf(f); ok {
		return own.body
	}
	return x.e.seller.config.Front.errorBody(x.r, x.id, f, s, false)
}

// age is how old a stored answer is in whole seconds (RFC 9111 §5.1), and not below 0:
// the clocks of two machines may differ.
func age(answered, now time.Time) int { return max(int(now.Sub(answered)/time.Second), 0) }

func setReceipt(h http.Header, s *x402.SettleResponse) {
	if s == nil {
		return
	}
	if v, err := x402.EncodeHeader(s); err == nil {
		h.Set(x402.HeaderResponse, v)
	}
}
