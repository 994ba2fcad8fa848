package x402http

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hostfacts/hostfacts/pkg/printable"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// AnswerOwed is the code of an answer that a handler owes. While its payment may be
// repeated, the handler's own status and body are answered.
const AnswerOwed fault.Code = "answer_owed"

// Refused is the code of a request that a check has refused.
const Refused fault.Code = "refused"

// Option changes how a handler is sold.
type Option func(*sale)

// Check has a request checked before each time that its payment is sent, by a handler that
// calls Refuse for a request that cannot be answered, and otherwise writes nothing. A refused
// request is not charged. What is paid already is answered whatever the check says: the buyer
// of the last ticket gets it again after it is sold out.
func Check(check http.HandlerFunc) Option { return func(s *sale) { s.check = check } }

// Owed makes more statuses count as owed, such as the 404 of a store that is a moment
// behind: they do not use the payment up, and the handler runs again. A 402 is sent as 502,
// because clients would pay again.
func Owed(statuses ...int) Option { return func(s *sale) { s.owed = append(s.owed, statuses...) } }

// MostRuns limits how often the handler runs for one payment until it gives an answer, and is
// at least 1. After the last run the payment gets its error again, and a refund is due at once.
// Without this option an owed answer has no limit but the pauses between its runs.
func MostRuns(n int) Option { return func(s *sale) { s.mostRuns = n } }

// Describe says in the offer what is sold, and its media type.
func Describe(description, mimeType string) Option {
	return func(s *sale) { s.resource.Description, s.resource.MimeType = description, mimeType }
}

// Refuse is called by a check to refuse a request, with a status from 400 to 499. The body has
// the Content-Type in w's header, or else one that is detected.
func Refuse(w http.ResponseWriter, status int, body string) {
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
}

// sale is a handler and its price.
type sale struct {
	seller   *Seller
	handler  http.Handler
	amount   string // in atomic units
	check    http.HandlerFunc
	owed     []int
	mostRuns int // 0 is any number
	name     string
	unnamed  sync.Once // logs that there is neither a name nor a pattern
	resource x402.Resource
}

// Sell returns a handler that answers a client that has paid the price, a decimal number
// such as "0.01" of the seller's asset. Like http.ServeMux.Handle it panics when the price
// is wrong, which is a bug in the program, and must be called before the first request.
//
// It takes GET and HEAD. A purchase is the path with its query, sorted; no header counts.
func (s *Seller) Sell(price string, h http.Handler, options ...Option) *Endpoint {
	amount, err := atomic(price, s.config.Decimals)
	if err != nil {
		panic("x402http: " + err.Error())
	}
	if h == nil {
		panic("x402http: the handler is nil")
	}
	if s.cheapest == nil || amount.Cmp(s.cheapest) < 0 {
		s.cheapest = amount
	}
	x := &sale{seller: s, handler: h, amount: amount.String(), resource: x402.Resource{
		Description: s.config.Description, MimeType: "application/json", ServiceName: s.config.Name,
	}}
	for _, o := range options {
		o(x)
	}
	if x.mostRuns < 0 {
		panic(fmt.Sprintf("x402http: MostRuns is %d, and must be at least 1", x.mostRuns))
	}
	return s.Endpoint(Product{Name: "sold", At: s.at, Offer: x.offer, Ready: x.ready, Job: x.job, Cap: s.config.Concurrent, Window: s.config.Window})
}

// Handle registers a handler that is sold for a pattern of mux. It panics for a pattern
// whose method is not GET, as mux does for one that it cannot read.
func (s *Seller) Handle(mux *http.ServeMux, pattern, price string, h http.Handler, options ...Option) {
	if method, _, ok := strings.Cut(pattern, " "); ok && method != http.MethodGet {
		panic(fmt.Sprintf("x402http: %q: only GET is sold, because a purchase is named by its path and query", pattern))
	}
	mux.Handle(pattern, s.Sell(price, h, options...))
}

// at is the URL of a request without its query.
func (s *Seller) at(r *http.Request) string { return s.origin(r) + path(r) }

// path is the path of a request as its client sent it, which http.StripPrefix shortens in
// r.URL. The call of a tool has only that.
func path(r *http.Request) string {
	if u, err := url.ParseRequestURI(r.RequestURI); err == nil {
		return u.EscapedPath()
	}
	return r.URL.EscapedPath()
}

// named is the path that a purchase is named by. It differs for handlers that are sold at two
// paths, or for two hosts of a ServeMux: otherwise what was paid for one of them would be
// answered by the other.
func named(r *http.Request) string {
	host, _, _ := strings.Cut(r.Pattern[strings.LastIndexAny(r.Pattern, " \t")+1:], "/")
	sent, seen := path(r), r.URL.EscapedPath()
	if seen != sent {
		return host + sent + " as " + seen
	}
	return host + sent
}

// origin is the public origin of a request.
func (s *Seller) origin(r *http.Request) string {
	switch {
	case s.config.Origin != "":
		return s.config.Origin
	case r.TLS != nil:
		return "https://" + r.Host
	}
	return "http://" + r.Host
}

func (x *sale) offer(at string) (*x402.Offer, error) {
	resource := x.resource
	resource.URL = at
	return x402.NewOffer(x402.PaymentRequired{
		X402Version: x402.Version, Error: "Payment required", Resource: resource,
		Accepts: []x402.Requirements{x.seller.terms.Requirements(x.amount)},
	})
}

const (
	maxRequest = 4 << 10  // the path and query of a purchase
	maxHeader  = 4 << 10  // the headers that are kept with an answer
	maxAnswer  = 32 << 20 // what a handler may answer, which is in memory until it is sent
)

// job is the run of the handler for a request.
func (x *sale) job(r *http.Request) (x402.Job, error) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	name := "GET " + named(r) + "?" + query.Encode()
	if x.route(r) == "" {
		name += " for " + x.amount
	}
	if err != nil || len(name) > maxRequest {
		return x402.Job{}, fault.Newf(fault.InvalidArguments, err, "The query cannot be read, or is longer than %d bytes with its path.", maxRequest)
	}
	r = r.Clone(r.Context())
	for _, name := range []string{
		x402.HeaderSignature, x402.HeaderKey, "Range", "If-Range", "If-Match", "If-None-Match", "If-Modified-Since", "If-Unmodified-Since",
	} {
		r.Header.Del(name)
	}
	job := x402.Job{
		Fingerprint: name, Endpoint: x.endpoint(r), Budget: x.seller.config.Budget, Timeout: answerOwed(http.StatusGatewayTimeout), MostRuns: x.mostRuns,
		Run: func(ctx context.Context) (x402.Reply, error) { return x.run(ctx, r) },
	}
	if x.check != nil {
		job.Check = func(ctx context.Context) error { return x.refusal(r.WithContext(ctx)) }
	}
	return job, nil
}

// refusal is why the check refuses a request; nil where it does not.
func (x *sale) refusal(r *http.Request) error {
	w := newRecorder(r.Context())
	x.check(w, r)
	switch {
	case w.status == 0:
		return nil
	case w.status < http.StatusBadRequest || w.status >= http.StatusInternalServerError:
		return fault.New(fault.InternalError, fmt.Errorf("a check refused a request with status %d", w.status))
	}
	refused := fault.Info{Code: Refused, Status: w.status, Class: fault.NoCharge}
	return refused.Newf(w.own(), "%s", printable.Text(w.body.String()))
}

// answerOwed describes an answer that is owed with a status.
func answerOwed(status int) fault.Info {
	return fault.Info{
		Code: AnswerOwed, Status: status, Class: fault.Owed, Retry: true, After: time.Second,
		Message: "The seller could not answer. The payment stands, and the answer is owed.",
	}
}

// run runs the handler until the context ends, and judges its answer. What a handler writes
// after that is ignored.
func (x *sale) run(ctx context.Context, r *http.Request) (x402.Reply, error) {
	w, done := newRecorder(ctx), make(chan error, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil {
				done <- fmt.Errorf("the handler panicked: %v", p)
			}
		}()
		x.handler.ServeHTTP(w, r.Clone(ctx))
		done <- nil
	}()
	var err error
	select {
	case <-ctx.Done(): // w still belongs to the handler
	case err = <-done:
	}
	switch {
	case ctx.Err() != nil: // also if the handler has ended at the same moment, because it saw that
		return x402.Reply{}, answerOwed(http.StatusGatewayTimeout).New(ctx.Err())
	case err != nil:
		return x402.Reply{}, fault.New(fault.InternalError, err)
	case w.tooLong:
		return x402.Reply{}, fault.New(fault.InternalError, fmt.Errorf("the answer is longer than %d bytes", maxAnswer))
	}
	w.status = cmp.Or(w.status, http.StatusOK)
	if x.isOwed(w.status) {
		return x402.Reply{}, w.failure()
	}
	return x402.Reply{Status: w.status, Header: kept(w.header, w.body.Bytes()), Body: w.body.Bytes()}, nil
}

// longestPause is the most that a handler may ask to wait before it runs again.
const longestPause = time.Hour

// failure is the fault of an answer that the handler owes. Its own Retry-After, in seconds, is
// when it runs again.
func (w *recorder) failure() *fault.Error {
	status := max(w.status, http.StatusBadRequest)
	if status == http.StatusPaymentRequired { // which would ask for another payment
		status = http.StatusBadGateway
	}
	f := answerOwed(status).New(w.own())
	seconds, err := strconv.Atoi(w.header.Get(fault.HeaderRetryAfter))
	if err != nil || seconds < 1 {
		return f
	}
	return f.Paused(min(time.Duration(seconds)*time.Second, longestPause))
}

// isOwed says whether a status is not an answer: the handler may do better when it runs
// again.
func (x *sale) isOwed(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	}
	return status >= http.StatusInternalServerError || slices.Contains(x.owed, status)
}

// kept are the headers of an answer that are stored and replayed with it: those that the
// handler has set, but for what belongs to one connection or one client.
func kept(h http.Header, body []byte) map[string][]string {
	own := map[string][]string{}
	size := 0
	for _, name := range slices.Sorted(maps.Keys(h)) {
		switch http.CanonicalHeaderKey(name) {
		case "Connection", "Content-Length", "Date", "Keep-Alive", "Set-Cookie", "Trailer", "Transfer-Encoding", "Upgrade", "Cache-Control", "Age", "Vary",
			http.CanonicalHeaderKey(x402.HeaderRequired), http.CanonicalHeaderKey(x402.HeaderResponse), http.CanonicalHeaderKey(x402.HeaderReplayed):
			continue
		}
		size += len(name) + len(strings.Join(h[name], ""))
		if size <= maxHeader {
			own[name] = h[name]
		}
	}
	if len(own["Content-Type"]) == 0 {
		own["Content-Type"] = []string{http.DetectContentType(body)}
	}
	return own
}

// ownBody is the answer of a handler or a check, which replaces the body of the fault whose
// cause it is.
type ownBody struct {
	header map[string][]string
	body   []byte
}

// ownOf is what a handler or a check has said in place of a fault's body; nil for a fault of
// ours, and when no run is left for an answer that is owed, because a refund is due then.
func ownOf(f *fault.Error, s x402.PaymentStatus) *ownBody {
	own, _ := errors.AsType[*ownBody](f)
	if f.Info().Class == fault.Owed && !s.Retryable {
		return nil
	}
	return own
}

// Error is for logs.
func (o *ownBody) Error() string { return "the handler's own answer" }

// recorder is the http.ResponseWriter of a handler that is sold. Its answer is sent when
// it is complete, with the payment's response before it. It is the handler's alone until
// that returns.
type recorder struct {
	ctx     context.Context
	header  http.Header
	status  int // 0 until it is written
	body    bytes.Buffer
	tooLong bool
}

func newRecorder(ctx context.Context) *recorder { return &recorder{ctx: ctx, header: http.Header{}} }

// Respond returns a handler's answer to a request.
func Respond(h http.Handler, r *http.Request) Response {
	w := newRecorder(r.Context())
	h.ServeHTTP(w, r)
	return Response{Status: cmp.Or(w.status, http.StatusOK), Header: w.header, Body: w.body.Bytes()}
}

func (w *recorder) own() *ownBody {
	return &ownBody{header: kept(w.header, w.body.Bytes()), body: w.body.Bytes()}
}

// Header implements http.ResponseWriter.
func (w *recorder) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter. The first final status counts. It panics for
// what is no status, as that of net/http does.
func (w *recorder) WriteHeader(status int) {
	if status < 100 || status > 999 {
		panic(fmt.Sprintf("invalid WriteHeader code %d", status))
	}
	if w.status == 0 && status >= 200 {
		w.status = status
	}
}

// Write implements http.ResponseWriter. It fails once the time of the handler is over.
func (w *recorder) Write(b []byte) (int, error) {
	if w.ctx.Err() != nil {
		return 0, http.ErrHandlerTimeout
	}
	w.status = cmp.Or(w.status, http.StatusOK)
	if w.body.Len()+len(b) > maxAnswer {
		w.tooLong = true
		return 0, http.ErrContentLength
	}
	return w.body.Write(b)
}

// Flush implements http.Flusher, and sends nothing yet.
func (w *recorder) Flush() {}
