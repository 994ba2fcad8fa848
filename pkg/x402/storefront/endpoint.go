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

// Product is what an endpoint sells.
type Product struct {
	// Name names it among what shares Shop.Limits, and in logs unless Route does.
	Name string
	// Route names what a request asks for in logs; nil is Name.
	Route func(*http.Request) string
	// Method is the method that is sold; empty is GET, which HEAD comes with.
	Method string
	// MaxBody is the most bytes of a body that a request may have; 0 where none is read.
	MaxBody int64
	// At returns the place of a request, such as its origin, and Offer the offer at a
	// place, which is kept.
	At    func(*http.Request) string
	Offer func(at string) (*x402.Offer, error)
	// Says returns the body of a 402; nil means that the offer itself is the body.
	Says func(x402.PaymentRequired, *fault.Error) any
	// Ready says that a request can be sold, with a payment or without one. Its error is
	// answered: internal_error unless it is a *fault.Error. Nil is always.
	Ready func(*http.Request) error
	// Job validates a request and returns its work. Its error is a *fault.Error, which is
	// answered without a charge.
	Job func(*http.Request) (x402.Job, error)
	// Cap is how many jobs of products of this name run at once, in all processes that
	// share Shop.Limits; 0 means any number.
	Cap int
	// Page may replace the response to a request without a payment by a page for people, which
	// is told the offer. Nil leaves every response as it is.
	Page func(*http.Request, Response, x402.PaymentRequired) (Response, error)
	// Window is how long an answer stands for a purchase without a key.
	Window time.Duration
}

// AnyPath is the length of the URL of an endpoint, without its query, that every offer has to
// have room for, in bytes.
const AnyPath = 512

// Endpoint sells one product over HTTP, and as a tool.
type Endpoint struct {
	shop    *Shop
	product Product
	gate    *x402.Gate
	quotes  Places[quote]
}

// Endpoint returns the endpoint of a product.
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
	if p.Says == nil {
		p.Says = func(required x402.PaymentRequired, _ *fault.Error) any { return required }
	}
	if p.Route == nil {
		p.Route = func(*http.Request) string { return p.Name }
	}
	p.Method = cmp.Or(p.Method, http.MethodGet)
	return &Endpoint{shop: s, product: p, gate: gate}
}

// Method is the method that is sold.
func (e *Endpoint) Method() string { return e.product.Method }

// methods are the methods that are answered. HEAD mirrors the offer of a GET and never
// settles, because its answer has no body.
func (e *Endpoint) methods(r *http.Request) []string {
	if e.product.Method == http.MethodGet {
		return Reads(r)
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
	e.shop.Front.serve(w, r, e.product.Route(r), e.methods, func(r *http.Request, id string) Response {
		x := e.exchange(r, id, r.Method != http.MethodHead && len(r.Header.Values(x402.HeaderSignature)) > 0)
		res := e.shop.Front.metered(r, x.meter, Failed, x.sell)
		res.Header["Vary"] = []string{"Accept, Accept-Encoding, " + x402.HeaderSignature + ", " + x402.HeaderKey}
		return res
	})
}

// exchange is a request for what an endpoint sells, or the call of a tool, which stands for
// one.
type exchange struct {
	*Endpoint
	r       *http.Request
	id      string
	arrived time.Time
	meter   *limit.Request
	call    *mcp.Call // nil over HTTP
	bad     error     // what is wrong with the arguments of the call
}

func (e *Endpoint) exchange(r *http.Request, id string, paid bool) *exchange {
	front := &e.shop.Front
	return &exchange{
		Endpoint: e,
		r:        r,
		id:       id,
		arrived:  front.Now(),
		meter:    front.meter(e.shop.Rate, r, id, paid),
	}
}

// deadline is how long a request may take, from its arrival. API Gateway ends one after
// 30 s, and the functions time out after 29 s.
const deadline = 27 * time.Second

// sell answers the exchange. A payment goes through the Gate, and a request without one is
// answered with the offer.
func (x *exchange) sell() Response {
	if x.product.Ready != nil {
		if err := x.product.Ready(x.r); err != nil {
			return Failed(fault.From(err))
		}
	}
	at := x.product.At(x.r)
	q, err := x.quote(at)
	var res Response
	switch {
	case err != nil:
	case x.meter.Paid:
		out := x.settle(q.offer)
		if out.Status != http.StatusPaymentRequired || out.Fault == nil {
			return x.answer(out)
		}
		res, err = x.challenge(q, &out)
	default:
		res, err = x.challenge(q, nil)
	}
	switch {
	case errors.Is(err, x402.ErrOfferSize) && len(at) > AnyPath: // not what the seller says, but the path
		return Failed(fault.Newf(fault.InvalidArguments, err, "The path is too long."))
	case err != nil:
		return Failed(fault.New(fault.InternalError, err))
	}
	return res
}

// settle passes the payment through the Gate, unless something is wrong with how it came.
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

// payment is the payment with its purchase key, as the Gate is asked about it. The error
// says what is wrong with how it came.
func (x *exchange) payment(offer *x402.Offer) (x402.Request, error) {
	window := x.product.Window
	if x.call != nil {
		window *= 2 // the official clients give up after 60 s, and their host may call again
	}
	x.meter.Site = x.shop.Front.clientKey(x.r, limit.SiteKey)
	q := x402.Request{
		Offer:    offer,
		Arrived:  x.arrived,
		Deadline: x.arrived.Add(deadline),
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
		if q.Payload = x.call.Payment; len(q.Keys) == 0 {
			q.Keys = x.call.Keys
		}
		return q, x.call.BadPayment
	}
	sent := x.r.Header.Values(x402.HeaderSignature)
	if q.Signature = sent[0]; len(sent) > 1 {
		return q, fmt.Errorf("%s was sent %d times", x402.HeaderSignature, len(sent))
	}
	return q, nil
}

// job is the work that the request asks for.
func (x *exchange) job() (x402.Job, error) {
	if x.bad != nil {
		return x402.Job{}, x.bad
	}
	return x.product.Job(x.r)
}

// refusal is why the request could not be answered if it was paid now; nil where it could.
func (x *exchange) refusal() error {
	job, err := x.job()
	if err != nil || job.Check == nil {
		return err
	}
	return job.Check(x.r.Context())
}

// challenge answers 402: the offer with a retry token, and why a payment was refused.
// refused is nil when there was no payment.
func (x *exchange) challenge(q *quote, refused *x402.Outcome) (Response, error) {
	token, err := x402.NewToken(x.shop.Random)
	if err != nil {
		return Response{}, err
	}
	res := Response{Status: http.StatusPaymentRequired, asks: true}
	res.Header = http.Header{"Content-Type": {TypeJSON}, "Cache-Control": {"no-store"}}
	offer := q.offer
	body := q.body
	reason := ""
	if x.call != nil { // a model reads what a signature is made of twice, and has no use for it
		offer = q.offer.Unsigned()
		body = q.unsigned
	}
	switch {
	case refused != nil:
		res.Fault = refused.Fault
		res.Receipt = refused.Receipt
		res.Trace = &refused.Trace
		res.charged = refused.Payment.Charged
		reason = res.Fault.Public()
	case x.call != nil:
		res.Reason = "the call has no payment"
	case x.r.Method == http.MethodHead:
		res.Reason = "HEAD returns the offer and is never charged"
	default:
		res.Reason = "the request has no " + x402.HeaderSignature
	}
	if x.call != nil {
		reason = mcp.Words(reason)
	} else {
		if res.offers, err = q.offer.Challenges(reason, token); err != nil {
			return Response{}, err
		}
		setReceipt(res.Header, res.Receipt)
	}
	if refused != nil {
		res.Body = untrusted.Marshal(x.product.Says(offer.Required(reason).WithToken(token), res.Fault))
		return res, nil
	}
	res.Fault = q.unpaid
	res.Body = body.JSON(token)
	if x.call == nil && x.product.Page != nil {
		return x.product.Page(x.r, res, offer.Required("").WithToken(token))
	}
	return res, nil
}

// answer answers a payment with any outcome but a 402 of ours.
func (x *exchange) answer(out x402.Outcome) Response {
	res := Response{Header: http.Header{"Content-Type": {TypeJSON}}}
	own := out.Header
	if out.Fault != nil {
		res = Failed(out.Fault)
		if said := wordsOf(out.Fault, out.Payment); said != nil {
			own = said.Header
		}
	}
	h := res.Header
	h.Set("Cache-Control", "private, no-store")
	if out.Status >= http.StatusBadRequest {
		h.Set("Cache-Control", "no-store")
	}
	for name, values := range own {
		if name != fault.HeaderRetryAfter || h[name] == nil { // when the next run is allowed
			h[name] = values
		}
	}
	if out.Replayed {
		h.Set(x402.HeaderReplayed, "true")
		if !out.Answered.IsZero() { // in whole seconds (RFC 9111 §5.1); the clocks of two machines may differ
			age := x.shop.Front.Now().Sub(out.Answered) / time.Second
			h.Set(x402.HeaderAge, strconv.Itoa(max(int(age), 0)))
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

// errorBody is the body of an error, or what a handler has said itself.
func (x *exchange) errorBody(f *fault.Error, s x402.PaymentStatus) []byte {
	if own := wordsOf(f, s); own != nil && x.call == nil {
		return own.Body
	}
	return x.shop.Front.errorBody(x.r, x.id, f, s, x.call != nil)
}

func setReceipt(h http.Header, s *x402.SettleResponse) {
	if s == nil {
		return
	}
	if v, err := x402.EncodeHeader(s); err == nil {
		h.Set(x402.HeaderResponse, v)
	}
}

// quote is an offer with the bodies that carry it, as it is and without a signature, encoded
// once but for the retry token, and the fault of a request without a payment.
type quote struct {
	offer          *x402.Offer
	body, unsigned x402.Form
	unpaid         *fault.Error
}

// quote is the quote at a place, made again when its offer can be signed.
func (e *Endpoint) quote(at string) (*quote, error) {
	return e.quotes.Of(at, func(had *quote) (*quote, error) {
		var offer *x402.Offer
		var err error
		if had != nil {
			offer = had.offer
		} else if offer, err = e.product.Offer(at); err != nil {
			return nil, err
		}
		if offer, err = offer.Signed(e.shop.Receipts); err != nil || had != nil && offer == had.offer {
			return had, err
		}
		unpaid := fault.New(fault.PaymentRequired, nil)
		form := func(offer *x402.Offer) (x402.Form, error) {
			return x402.NewForm(func(token string) any { return e.product.Says(offer.Required("").WithToken(token), unpaid) })
		}
		body, err := form(offer)
		if err != nil {
			return nil, err
		}
		unsigned, err := form(offer.Unsigned())
		return &quote{offer, body, unsigned, unpaid}, err
	})
}
