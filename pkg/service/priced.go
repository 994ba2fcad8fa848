package service

import (
	"crypto/rand"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/discovery"
	"github.com/hostfacts/hostfacts/pkg/limit"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// priced is the handler of one priced operation.
type priced struct {
	platform Platform
	offering Offering
	rate     *limit.Rate
	op       Operation
	gate     *x402.Gate
	offers   *offers
}

func (p *priced) methods(*http.Request) []string { return []string{http.MethodGet, http.MethodHead} }

func (p *priced) serve(r *http.Request, id string) response {
	arrived := p.platform.Now()
	signature := r.Header.Values(x402.HeaderSignature)
	m := newMeter(p.platform.Log, p.rate, r, id, len(signature) > 0 && r.Method != http.MethodHead)
	var res response
	if f := m.enter(r.Context()); f != nil {
		res = p.platform.limited(r, id, f)
	} else {
		res = p.answer(r, id, arrived, signature, m)
		m.leave(r.Context())
		m.sent(r, res)
	}
	for name, values := range m.header() {
		res.header[name] = values
	}
	res.header.Set("Vary", vary)
	return res
}

func (p *priced) answer(r *http.Request, id string, arrived time.Time, signature []string, m *meter) response {
	quote, err := p.offers.of(p.platform.Origin(r))
	if err != nil {
		return p.unready(r, id, err)
	}
	// HEAD mirrors the offer and never settles: its answer has no body.
	if len(signature) == 0 || r.Method == http.MethodHead {
		var res response
		if discovery.WantsHTML(strings.Join(r.Header.Values("Accept"), ", ")) {
			res = p.paywall(r, id, quote)
		} else {
			res = p.challenge(r, id, quote)
		}
		res.reason = whyUnread(r)
		return res
	}
	if len(signature) > 1 {
		return p.refused(r, id, quote, x402.Outcome{Fault: fault.Newf(fault.PaymentRequired, nil, "%s was sent %d times", x402.HeaderSignature, len(signature))})
	}
	out := p.gate.Serve(r.Context(), x402.Request{
		Signature: signature[0], Offer: quote.offer, Arrived: arrived, Deadline: arrived.Add(deadline),
		Keys: r.Header.Values(x402.HeaderKey), Window: p.offering.DuplicateWindow,
		Client: client(r), Meter: m,
		Prepare: func() (x402.Job, error) { return p.op.job(r.URL.RawQuery) },
		Error:   func(f *fault.Error, s x402.Standing) []byte { return p.platform.errorJSON(r, id, f, s) },
	})
	if out.Status == http.StatusPaymentRequired {
		return p.refused(r, id, quote, out)
	}
	return p.paid(out)
}

// whyUnread is the reason in the log line of a 402 for whose request no payment
// was read.
func whyUnread(r *http.Request) string {
	if r.Method == http.MethodHead {
		return "HEAD returns the offer and is never charged"
	}
	return "the request has no " + x402.HeaderSignature
}

// paid answers a payment with any outcome but a 402.
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
		if !out.Answered.IsZero() {
			h.Set(x402.HeaderAge, strconv.Itoa(age(out.Answered, p.platform.Now())))
		}
	}
	if len(out.Owed) > 0 {
		h.Set(x402.HeaderOwed, strings.Join(out.Owed, ", "))
	}
	receipt(h, out.Receipt)
	return response{status: out.Status, header: h, body: out.Body, fault: out.Fault, trace: &out.Trace, replayed: out.Replayed}
}

// age is how old a stored answer is in whole seconds (RFC 9111 §5.1), and not
// below 0: the clocks of two machines may differ.
func age(answered, now time.Time) int { return max(int(now.Sub(answered)/time.Second), 0) }

// refused answers 402 to a payment: the offer again, with the reason, and the
// failed settlement when there was one.
func (p *priced) refused(r *http.Request, id string, q *quote, out x402.Outcome) response {
	token, err := x402.NewToken(p.platform.Random)
	if err != nil {
		return p.unready(r, id, err)
	}
	res, err := q.refusal(out.Fault, token)
	if err != nil {
		return p.unready(r, id, err)
	}
	receipt(res.header, out.Receipt)
	if out.Trace.Reason == "" { // the Gate was not asked
		out.Trace.Reason = out.Fault.Public()
	}
	res.trace = &out.Trace
	return res
}

// challenge answers a request without a payment.
func (p *priced) challenge(r *http.Request, id string, q *quote) response {
	res, err := p.offered(q)
	if err != nil {
		return p.unready(r, id, err)
	}
	return res
}

// offered is the 402 of a quote, with a new retry token.
func (p *priced) offered(q *quote) (response, error) {
	token, err := x402.NewToken(p.platform.Random)
	if err != nil {
		return response{}, err
	}
	return q.challenge(token)
}

// unready answers when no offer could be made, which is a bug.
func (p *priced) unready(r *http.Request, id string, err error) response {
	return p.platform.fault(r, id, fault.New(fault.InternalError, err), x402.Standing{Charged: unpaid(r)})
}

func (p *priced) paywall(r *http.Request, id string, q *quote) response {
	res, err := p.offered(q)
	if err != nil {
		return p.unready(r, id, err)
	}
	values, request, refused := p.op.asked(r.URL.RawQuery)
	body, csp, err := discovery.Paywall(p.op.entry, p.platform.site(p.offering, p.platform.Origin(r)), discovery.Visit{
		Asked: values, Request: request, Refused: refused, Offer: res.header.Get(x402.HeaderRequired), Nonce: rand.Text(),
	})
	if err != nil {
		return p.unready(r, id, err)
	}
	h := res.header
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", csp)
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Robots-Tag", "noindex")
	res.body = body
	return res.zipped(r)
}

// vary names the request headers that the answers of a priced path depend on.
const vary = "Accept, Accept-Encoding, " + x402.HeaderSignature + ", " + x402.HeaderKey

func receipt(h http.Header, s *x402.SettleResponse) {
	if s == nil {
		return
	}
	if v, err := x402.EncodeHeader(s); err == nil {
		h.Set(x402.HeaderResponse, v)
	}
}

// quote is an offer with the 402 that carries it, encoded once but for the
// retry token.
type quote struct {
	offer *x402.Offer
	site  discovery.Site
	body  x402.Form
}

func newQuote(o *x402.Offer, s discovery.Site) (*quote, error) {
	unpaid := fault.New(fault.PaymentRequired, nil)
	body, err := x402.NewForm(func(token string) any { return discovery.ChallengeOf(s, o.Required("").WithToken(token), unpaid) })
	if err != nil {
		return nil, err
	}
	return &quote{offer: o, site: s, body: body}, nil
}

func (q *quote) challenge(token string) (response, error) {
	header, err := q.offer.Challenge(q.offer.Required("").Error, token)
	if err != nil {
		return response{}, err
	}
	return q.respond(header, q.body.JSON(token), fault.New(fault.PaymentRequired, nil)), nil
}

func (q *quote) refusal(f *fault.Error, token string) (response, error) {
	header, err := q.offer.Challenge(f.Public(), token)
	if err != nil {
		return response{}, err
	}
	return q.respond(header, mustJSON(discovery.ChallengeOf(q.site, q.offer.Required(f.Public()).WithToken(token), f)), f), nil
}

func (q *quote) respond(header string, body []byte, f *fault.Error) response {
	h := http.Header{}
	h.Set("Content-Type", jsonType)
	h.Set("Cache-Control", "no-store")
	h.Set(x402.HeaderRequired, header)
	return response{status: http.StatusPaymentRequired, header: h, body: body, fault: f}
}

// offers keeps the quote of each origin under which this environment is called.
type offers struct {
	platform Platform
	offering Offering
	op       catalog.Operation
	mu       sync.Mutex
	byOrigin map[string]*quote
}

// maxOrigins bounds the memory. A deployment has one or two origins, which the
// platform names and not the client.
const maxOrigins = 8

func newOffers(p Platform, o Offering, op catalog.Operation) *offers {
	return &offers{platform: p, offering: o, op: op, byOrigin: map[string]*quote{}}
}

// of is the quote at an origin, made again when its offer can be signed.
func (o *offers) of(origin string) (*quote, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	q, known := o.byOrigin[origin]
	if !known {
		site := o.platform.site(o.offering, origin)
		offer, err := o.offering.offer(o.op, site, discovery.Offer, discovery.ToolOffer)
		if err != nil {
			return nil, err
		}
		q = &quote{offer: offer, site: site}
	}
	offer, err := q.offer.Signed(o.offering.Receipts)
	if err != nil || known && offer == q.offer {
		return q, err
	}
	if q, err = newQuote(offer, q.site); err != nil {
		return nil, err
	}
	if known || len(o.byOrigin) < maxOrigins {
		o.byOrigin[origin] = q
	}
	return q, nil
}
