package storefront

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/mcp"
	"github.com/hostfacts/hostfacts/pkg/untrusted"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/limit"
)

// Product describes what an endpoint sells.
type Product struct {
	// Name identifies the product among those that share Shop.Limits. Logs use it unless Route
	// is set.
	Name string
	// Route returns the name of a request for logs; nil means Name.
	Route func(*http.Request) string
	// Method is the method that the endpoint takes. If it is empty, the endpoint takes GET and
	// HEAD.
	Method string
	// MaxBody is the largest body that a request may have, in bytes; 0 means that no body is
	// read.
	MaxBody int64
	// At returns the place where a request is sold, such as its origin. Offer returns the
	// offer at a place; the endpoint keeps that offer and uses it again.
	At    func(*http.Request) string
	Offer func(at string) (*x402.Offer, error)
	// ChallengeBody returns the body of a 402; nil means that the offer itself is the body.
	ChallengeBody func(x402.PaymentRequired, *fault.Error) any
	// Ready returns an error if a request cannot be sold, whether or not it has a payment. If
	// the error is a *fault.Error, the client gets it; otherwise the client gets
	// internal_error. Nil means that every request can be sold.
	Ready func(*http.Request) error
	// Job validates a request and returns the work for it. The error is a *fault.Error, which
	// the client gets without being charged.
	Job func(*http.Request) (x402.Job, error)
	// Cap is how many jobs of products with this Name may run at once, in all processes that
	// share Shop.Limits; 0 means no limit.
	Cap int
	// Page may replace the response to a request without a payment with a web page that shows
	// the offer to a person. Nil leaves every response unchanged.
	Page func(*http.Request, Response, x402.PaymentRequired) (Response, error)
	// Window is how long after an answer another payment for the same request still counts as
	// the same purchase, if that payment has no purchase key.
	Window time.Duration
}

// AnyPath is a length of a URL without its query, in bytes. Every offer must have room for a
// URL of that length.
const AnyPath = 512

// Endpoint sells one product over HTTP and as a tool.
type Endpoint struct {
	shop    *Shop
	product Product
	gate    *x402.Gate
	quotes  Places[quote]
}

// Endpoint returns a new endpoint of the shop that sells a product.
func (s *Shop) Endpoint(p Product) *Endpoint {
	gate := &x402.Gate{
		Ledger:   s.Ledger,
		Settler:  s.Settler,
		Evidence: s.Evidence,
		Receipts: s.Receipts,
		Now:      s.Front.Now,
		Log:      s.Front.Log,
		Payees:   s.Payees,
	}
	if p.Cap > 0 {
		shared := limit.NewSlots(p.Name, p.Cap, s.Limits, s.Front.Now)
		gate.Slots = &localSlots{shared: shared, running: s.Running}
	}
	if p.ChallengeBody == nil {
		p.ChallengeBody = func(required x402.PaymentRequired, _ *fault.Error) any { return required }
	}
	if p.Route == nil {
		p.Route = func(*http.Request) string { return p.Name }
	}
	p.Method = cmp.Or(p.Method, http.MethodGet)
	return &Endpoint{shop: s, product: p, gate: gate}
}

// Method returns the HTTP method that the endpoint takes.
func (e *Endpoint) Method() string { return e.product.Method }

// methods returns the methods that are answered. HEAD gets the same offer as GET and never
// settles a payment, because its answer has no body.
func (e *Endpoint) methods(r *http.Request) []string {
	if e.product.Method == http.MethodGet {
		return GetAndHead(r)
	}
	return []string{e.product.Method}
}

// ServeHTTP implements http.Handler.
func (e *Endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if c := takeCall(r.Context()); c != nil {
		c.serve(e, r)
		return
	}
	if e.product.MaxBody > 0 {
		var end func()
		r, end = withTimedBody(w, r, e.product.MaxBody)
		defer end()
	}
	e.shop.Front.serve(w, r, e.product.Route(r), e.methods, e.answer)
}

// answer returns the response to a request over HTTP.
func (e *Endpoint) answer(r *http.Request, id string) Response {
	paid := r.Method != http.MethodHead && len(r.Header.Values(x402.HeaderSignature)) > 0
	x := e.exchange(r, id, paid)
	res := e.shop.Front.serveMetered(r, x.meter, Failed, x.sell)
	res.Header["Vary"] = []string{"Accept, Accept-Encoding, " + x402.HeaderSignature + ", " + x402.HeaderKey}
	return res
}

// exchange is one request to an endpoint and its answer. The request may have been made for a
// tool call.
type exchange struct {
	*Endpoint
	r           *http.Request
	id          string
	arrivalTime time.Time
	meter       *limit.Request
	call        *mcp.Call // nil over HTTP
	argsErr     error     // what is wrong with the call's arguments; nil if they are right
}

func (e *Endpoint) exchange(r *http.Request, id string, paid bool) *exchange {
	front := &e.shop.Front
	return &exchange{
		Endpoint:    e,
		r:           r,
		id:          id,
		arrivalTime: front.Now(),
		meter:       front.meter(e.shop.Rate, r, id, paid),
	}
}

// deadline is how long after its arrival a request must be answered. API Gateway ends a
// request after 30 s, and the Lambda functions that answer requests time out after 29 s.
const deadline = 27 * time.Second

// sell answers the request.
func (x *exchange) sell() Response {
	if x.product.Ready != nil {
		if err := x.product.Ready(x.r); err != nil {
			return Failed(fault.From(err))
		}
	}
	at := x.product.At(x.r)
	res, err := x.sellAt(at)
	if err == nil {
		return res
	}
	if errors.Is(err, x402.ErrOfferSize) && len(at) > AnyPath { // the path made the offer too long
		return Failed(fault.Newf(fault.InvalidArguments, err, "The path is too long."))
	}
	return Failed(fault.New(fault.InternalError, err))
}

// sellAt answers the request at a place. A payment goes through the Gate, and a request
// without a payment gets the offer.
func (x *exchange) sellAt(at string) (Response, error) {
	q, err := x.quote(at)
	if err != nil {
		return Response{}, err
	}
	if !x.meter.Paid {
		return x.challenge(q)
	}
	out := x.settle(q.offer)
	if out.Status != http.StatusPaymentRequired || out.Fault == nil {
		return x.render(out), nil
	}
	return x.renderRefusal(q, out)
}

// settle passes the payment through the Gate, or refuses it if it was sent in the wrong form.
func (x *exchange) settle(offer *x402.Offer) x402.Outcome {
	request, err := x.payment(offer)
	if err == nil {
		return x.gate.Serve(x.r.Context(), request)
	}
	f := fault.Newf(fault.PaymentRequired, nil, "%s", err)
	return x402.Outcome{
		Status: http.StatusPaymentRequired,
		Fault:  f,
		Trace:  x402.Trace{Reason: f.Public()},
	}
}

// payment returns the payment, with its purchase key, in the form that the Gate takes. It
// returns an error if the payment was sent in a wrong form.
func (x *exchange) payment(offer *x402.Offer) (x402.Request, error) {
	window := x.product.Window
	if x.call != nil {
		window *= 2 // the official clients give up after 60 s, and their hosts may then repeat the call
	}
	x.meter.Site = x.shop.Front.clientKey(x.r, limit.SiteKey)
	q := x402.Request{
		Offer:    offer,
		Arrived:  x.arrivalTime,
		Deadline: x.arrivalTime.Add(deadline),
		Window:   window,
		Client:   x.meter.Site,
		Keys:     x.r.Header.Values(x402.HeaderKey),
		Prepare:  x.job,
		Error:    x.errorBody,
	}
	if x.meter.Rate != nil {
		q.Meter = x.meter
	}
	if x.call != nil {
		q.Payload = x.call.Payment
		if len(q.Keys) == 0 {
			q.Keys = x.call.Keys
		}
		return q, x.call.BadPayment
	}
	signatures := x.r.Header.Values(x402.HeaderSignature)
	q.Signature = signatures[0]
	if len(signatures) > 1 {
		return q, fmt.Errorf("%s was sent %d times", x402.HeaderSignature, len(signatures))
	}
	return q, nil
}

// job returns the work that the request asks for.
func (x *exchange) job() (x402.Job, error) {
	if x.argsErr != nil {
		return x402.Job{}, x.argsErr
	}
	return x.product.Job(x.r)
}

// refusal returns the error that the request would get if it were paid now, or nil if it could
// be answered.
func (x *exchange) refusal() error {
	job, err := x.job()
	if err != nil || job.Check == nil {
		return err
	}
	return job.Check(x.r.Context())
}

// challenge answers a request without a payment: 402, with the offer and a retry token.
func (x *exchange) challenge(q *quote) (Response, error) {
	token, err := x402.NewToken(x.shop.Random)
	if err != nil {
		return Response{}, err
	}
	res := newChallenge(q.unpaid)
	if x.call != nil { // a model has no use for signatures, which repeat the contents of the offer
		res.Reason = "the call has no payment"
		res.Body = q.unsigned.JSON(token)
		return res, nil
	}
	res.Reason = "the request has no " + x402.HeaderSignature
	if x.r.Method == http.MethodHead {
		res.Reason = "HEAD returns the offer and is never charged"
	}
	res.Body = q.body.JSON(token)
	res.offers, err = q.offer.Challenges("", token)
	if err != nil {
		return Response{}, err
	}
	if x.product.Page == nil {
		return res, nil
	}
	return x.product.Page(x.r, res, q.offer.Required("").WithToken(token))
}

// renderRefusal answers a payment that was refused: 402, with the reason, the offer and a
// retry token.
func (x *exchange) renderRefusal(q *quote, out x402.Outcome) (Response, error) {
	token, err := x402.NewToken(x.shop.Random)
	if err != nil {
		return Response{}, err
	}
	res := newChallenge(out.Fault)
	res.Receipt = out.Receipt
	res.Trace = &out.Trace
	res.charged = out.Payment.Charged
	reason := out.Fault.Public()
	if x.call != nil {
		required := q.offer.Unsigned().Required(mcp.Rephrase(reason)).WithToken(token)
		res.Body = untrusted.Marshal(x.product.ChallengeBody(required, out.Fault))
		return res, nil
	}
	required := q.offer.Required(reason).WithToken(token)
	res.Body = untrusted.Marshal(x.product.ChallengeBody(required, out.Fault))
	res.offers, err = q.offer.Challenges(reason, token)
	if err != nil {
		return Response{}, err
	}
	setReceipt(res.Header, out.Receipt)
	return res, nil
}

// newChallenge returns a 402 without its body.
func newChallenge(f *fault.Error) Response {
	return Response{
		Status:  http.StatusPaymentRequired,
		Header:  http.Header{"Content-Type": {TypeJSON}, "Cache-Control": {"no-store"}},
		Fault:   f,
		isOffer: true,
	}
}

// render returns the response to a payment that was not refused. renderRefusal answers a
// refused payment.
func (x *exchange) render(out x402.Outcome) Response {
	res := Response{Header: http.Header{"Content-Type": {TypeJSON}}}
	fromHandler := out.Header
	if out.Fault != nil {
		res = Failed(out.Fault)
		if answer := handlerAnswer(out.Fault, out.Payment); answer != nil {
			fromHandler = answer.Header
		}
	}
	h := res.Header
	h.Set("Cache-Control", "private, no-store")
	if out.Status >= http.StatusBadRequest {
		h.Set("Cache-Control", "no-store")
	}
	for name, values := range fromHandler {
		if name == fault.HeaderRetryAfter && h[name] != nil {
			continue // keep the Retry-After of Failed, which says when the next run is allowed
		}
		h[name] = values
	}
	if out.Replayed {
		h.Set(x402.HeaderReplayed, "true")
		if !out.Answered.IsZero() {
			h.Set(x402.HeaderAge, x.age(out.Answered))
		}
	}
	if len(out.Owed) > 0 {
		h.Set(x402.HeaderOwed, strings.Join(out.Owed, ", "))
	}
	setReceipt(h, out.Receipt)
	res.Status = out.Status
	res.Body = out.Body
	res.Trace = &out.Trace
	res.Receipt = out.Receipt
	res.Replayed = out.Replayed
	res.finish = out.Finish
	return res
}

// age returns the age of an answer in whole seconds (RFC 9111 §5.1). It is never negative,
// even if the clocks of two machines differ.
func (x *exchange) age(answered time.Time) string {
	seconds := x.shop.Front.Now().Sub(answered) / time.Second
	return strconv.Itoa(max(int(seconds), 0))
}

// errorBody returns the body of an error: the body that the handler wrote or, if it wrote
// none, the JSON of this package.
func (x *exchange) errorBody(f *fault.Error, s x402.PaymentStatus) []byte {
	overHTTP := x.call == nil
	if answer := handlerAnswer(f, s); answer != nil && overHTTP {
		return answer.Body
	}
	return x.shop.Front.errorBody(x.r, x.id, f, s, !overHTTP)
}

// setReceipt sets the header PAYMENT-RESPONSE to a settlement, unless s is nil.
func setReceipt(h http.Header, s *x402.SettleResponse) {
	if s == nil {
		return
	}
	if v, err := x402.EncodeHeader(s); err == nil {
		h.Set(x402.HeaderResponse, v)
	}
}
