package storefront

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/mcp"
	"github.com/hostfacts/hostfacts/pkg/untrusted"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/limit"
)

// GetAndHead returns the methods of what can only be read.
func GetAndHead(*http.Request) []string { return []string{http.MethodGet, http.MethodHead} }

// Front is what every response has in common, whatever it answers: a name, the answer
// to a wrong method and to a panic, headers, and one report. The zero value is usable.
type Front struct {
	// Docs returns the URL where an error code is explained; nil means that there is none.
	Docs func(*http.Request, fault.Code) string
	// RequestID returns the name of a request; nil draws one at random.
	RequestID func(*http.Request) string
	// Options answers OPTIONS with the headers that it returns; nil refuses the method.
	Options func(methods []string) http.Header
	// Header adds to the headers of the response to a request before it is written.
	Header func(*http.Request, http.Header)
	// Client names the client of a request, as in Config; nil is where its connection came from.
	Client func(*http.Request) string
	// Observe is told every response after it is written; nil writes Response.Line to Log.
	Observe func(r *http.Request, name, id string, res Response, took time.Duration)
	Log     *slog.Logger     // nil is slog.Default
	Now     func() time.Time // nil is time.Now
}

// Fill sets what has a default.
func (f *Front) Fill() {
	f.Log = cmp.Or(f.Log, slog.Default())
	if f.Now == nil {
		f.Now = time.Now
	}
	if f.RequestID == nil {
		f.RequestID = func(*http.Request) string { return rand.Text() }
	}
	if f.Header == nil {
		f.Header = func(*http.Request, http.Header) {}
	}
	if f.Client == nil {
		f.Client = func(r *http.Request) string { return r.RemoteAddr }
	}
	if f.Docs == nil {
		f.Docs = func(*http.Request, fault.Code) string { return "" }
	}
	if f.Observe == nil {
		f.Observe = func(r *http.Request, name, id string, res Response, took time.Duration) {
			level, attrs := res.Line(nil, r, name, id, took)
			f.Log.LogAttrs(context.WithoutCancel(r.Context()), level, "request", attrs...)
		}
	}
}

// Handler returns a handler of free requests, with its name in logs. A client's free requests
// are counted apart from its priced ones; a nil rate means no limit. methods returns the
// methods that a request's path takes; nil leaves all of them to answer.
func (f Front) Handler(
	name string, rate *limit.Rate, methods func(*http.Request) []string, answer func(*http.Request) Response,
) http.Handler {
	f.Fill()
	limited := func(overLimit *fault.Error) Response {
		res := Failed(overLimit)
		res.Header.Set("Vary", "Accept-Encoding") // as the document in whose place it stands
		return res
	}
	counted := func(r *http.Request, id string) Response {
		meter := f.meter(rate, r, id, false)
		meter.Client = limit.DocumentsKey(f.Client(r))
		return f.metered(r, meter, limited, func() Response { return answer(r) })
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.serve(w, r, name, methods, counted)
	})
}

// answerer answers the request that has an id.
type answerer func(r *http.Request, id string) Response

// serve writes what answer returns to a request, unless its method is not one of methods.
func (f *Front) serve(
	w http.ResponseWriter, r *http.Request, name string, methods func(*http.Request) []string, answer answerer,
) {
	begun := f.Now()
	id := f.RequestID(r)
	res := f.recovered(r, id, func() Response { return f.dispatch(r, id, methods(r), answer) })
	if res.Status == 0 {
		var charged *bool // of a payment that was not read, this is not known
		if len(r.Header.Values(x402.HeaderSignature)) == 0 {
			charged = new(false)
		}
		f.renderFault(&res, r, id, charged, false)
	}
	f.write(w, r, id, res)
	f.Observe(r, name, id, res, f.Now().Sub(begun))
	if res.finish != nil {
		_ = http.NewResponseController(w).Flush() // where that cannot be done the response waits
		res.finish()
	}
}

// dispatch answers a request whose method is one of these, OPTIONS for all of them, and any
// other method with a refusal. methods may be nil for any method.
func (f *Front) dispatch(r *http.Request, id string, methods []string, answer answerer) Response {
	if r.Method == http.MethodOptions && f.Options != nil {
		return Response{Status: http.StatusNoContent, Header: f.Options(methods)}
	}
	if methods == nil || slices.Contains(methods, r.Method) {
		return answer(r, id)
	}
	if f.Options != nil {
		methods = append(methods, http.MethodOptions)
	}
	allow := strings.Join(methods, ", ")
	res := Failed(fault.Newf(fault.MethodNotAllowed, nil, "This path takes %s.", allow))
	res.Header.Set("Allow", allow)
	return res
}

// write writes a response, with the headers that every response has.
func (f *Front) write(w http.ResponseWriter, r *http.Request, id string, res Response) {
	h := w.Header()
	maps.Copy(h, res.Header)
	h.Set("X-Request-Id", id)
	f.Header(r, h)
	if res.hasLength(r.Method) {
		h.Set("Content-Length", strconv.Itoa(len(res.Body)))
	}
	if res.finish != nil && r.ProtoMajor == 1 {
		h.Set("Connection", "close") // the next request on it would wait for the work to end
	}
	if len(res.offers) > 0 {
		h.Set(x402.HeaderRequired, firstFitting(res.offers, maxHead-headSize(h)))
	}
	w.WriteHeader(res.WireStatus())
	if r.Method == http.MethodHead {
		return
	}
	if _, err := w.Write(res.Body); err != nil {
		f.Log.DebugContext(r.Context(), "client went away", "request_id", id, "error", err)
	}
}

// stackTrace is a type, because untrusted.Attr would cut a string.
type stackTrace string

// recovered returns the answer to a request, or internal_error where that panics.
func (f *Front) recovered(r *http.Request, id string, answer func() Response) (res Response) {
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		f.Log.ErrorContext(r.Context(), "panic",
			"request_id", id,
			"panic", fmt.Sprint(p),
			"stack", stackTrace(debug.Stack()))
		res = Failed(fault.New(fault.InternalError, fmt.Errorf("panic: %v", p)))
	}()
	return answer()
}

// renderFault gives a response the status and the body of its Fault.
func (f *Front) renderFault(res *Response, r *http.Request, id string, charged *bool, tool bool) {
	info := res.Fault.Info()
	status := x402.PaymentStatus{Charged: charged, Retryable: info.Retry}
	res.Status = info.Status
	res.Body = f.errorBody(r, id, res.Fault, status, tool)
}

// errorBody is the JSON of an error. That of a tool's call is in the words of its
// transport, and says how long to wait, which is in a header elsewhere.
func (f *Front) errorBody(r *http.Request, id string, e *fault.Error, s x402.PaymentStatus, tool bool) []byte {
	body := fault.Body{
		Error: fault.Detail{
			Code:      e.Info().Code,
			Message:   e.Public(),
			Charged:   s.Charged,
			Retryable: s.Retryable,
		},
		RequestID: id,
		DocsURL:   f.Docs(r, e.Info().Code),
	}
	if tool {
		body.Error.Message = mcp.Rephrase(body.Error.Message)
		body.Error.RetryAfter = retryAfter(e)
	}
	return untrusted.Marshal(body)
}

// meter returns the meter of a request, which counts it unless rate is nil.
func (f *Front) meter(rate *limit.Rate, r *http.Request, id string, paid bool) *limit.Request {
	warn := func(what string, err error) {
		f.Log.WarnContext(r.Context(), what, "request_id", id, "error", err)
	}
	return &limit.Request{
		Rate:   rate,
		Client: f.clientKey(r, limit.ClientKey),
		Paid:   paid,
		Warn:   warn,
	}
}

// clientKey names the tally of a request's client: by its address, or by the name that Client
// gives it instead.
func (f *Front) clientKey(r *http.Request, keyOf func(address string) string) string {
	name := f.Client(r)
	key := keyOf(name)
	if key == limit.Unknown && name != r.RemoteAddr && name != "" {
		return limit.NameKey(name)
	}
	return key
}

// metered answers a request by serve, or by limited if its client is over the limit. The
// headers of the response say how much the client may still use.
func (f *Front) metered(
	r *http.Request, meter *limit.Request, limited func(*fault.Error) Response, serve func() Response,
) Response {
	if meter.Rate == nil {
		return serve()
	}
	var res Response
	if overLimit := meter.Admit(r.Context()); overLimit != nil {
		res = limited(overLimit)
	} else {
		res = serve()
		size := len(res.Body)
		if r.Method == http.MethodHead {
			size = 0
		}
		meter.Served(r.Context(), size, res.Replayed)
	}
	policy, state := meter.Headers()
	if policy != "" && !res.Public {
		res.Header.Set(limit.HeaderPolicy, policy)
		res.Header.Set(limit.HeaderLimit, state)
	}
	return res
}
