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

// GetAndHead returns GET and HEAD, the methods of a resource that can only be read.
func GetAndHead(*http.Request) []string { return []string{http.MethodGet, http.MethodHead} }

// Front has the settings that apply to every response: the id of the request, the answers to a
// wrong method and to a panic, common headers, and the log line. Handler works with the zero
// value; before any other use, call Fill to set the defaults.
type Front struct {
	// Docs returns the URL of the text that explains an error code; nil means that there is no
	// such text.
	Docs func(*http.Request, fault.Code) string
	// RequestID returns the id of a request; nil means a random id.
	RequestID func(*http.Request) string
	// Options returns the headers of the response to OPTIONS; nil refuses the method.
	Options func(methods []string) http.Header
	// Header may add headers to a response before it is written; nil adds none.
	Header func(*http.Request, http.Header)
	// Client returns the name of the client that sent a request, as x402http.Config.Client
	// does; nil means the address from which the connection came.
	Client func(*http.Request) string
	// Observe is called with every response after it is written; nil writes Response.Line to
	// Log.
	Observe func(r *http.Request, name, id string, res Response, took time.Duration)
	Log     *slog.Logger     // nil means slog.Default
	Now     func() time.Time // nil means time.Now
}

// Fill sets the defaults of fields that are nil. The default of Docs is a function that
// returns an empty URL.
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

// Handler returns a handler for free requests, which are logged under name. A client's free
// requests are counted separately from its priced requests; a nil rate means no limit. methods
// returns the methods that are allowed on a request's path; if it returns nil, every method is
// allowed.
func (f Front) Handler(
	name string, rate *limit.Rate, methods func(*http.Request) []string, answer func(*http.Request) Response,
) http.Handler {
	f.Fill()
	limited := func(overLimit *fault.Error) Response {
		res := Failed(overLimit)
		res.Header.Set("Vary", "Accept-Encoding") // as in the answer that the client would have got
		return res
	}
	counted := func(r *http.Request, id string) Response {
		meter := f.meter(rate, r, id, false)
		meter.Client = limit.DocumentsKey(f.Client(r))
		return f.serveMetered(r, meter, limited, func() Response { return answer(r) })
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.serve(w, r, name, methods, counted)
	})
}

// answerer answers a request with the given id.
type answerer func(r *http.Request, id string) Response

// serve calls answer for a request, and sends the response that answer returns. If the
// request's method is not allowed, serve sends a refusal instead.
func (f *Front) serve(
	w http.ResponseWriter, r *http.Request, name string, methods func(*http.Request) []string, answer answerer,
) {
	begun := f.Now()
	id := f.RequestID(r)
	res := f.recoverPanic(r, id, func() Response { return f.dispatch(r, id, methods(r), answer) })
	if res.Status == 0 {
		var charged *bool // nil means unknown: a payment was sent, but not read
		if len(r.Header.Values(x402.HeaderSignature)) == 0 {
			charged = new(false)
		}
		f.renderFault(&res, r, id, charged, false)
	}
	f.write(w, r, id, res)
	f.Observe(r, name, id, res, f.Now().Sub(begun))
	if res.finish != nil {
		_ = http.NewResponseController(w).Flush() // where the connection cannot be flushed, the response is sent after finish
		res.finish()
	}
}

// dispatch returns the response to a request. If methods contains the request's method or is
// nil, the response comes from answer. Otherwise it is a refusal. If Front.Options is set,
// dispatch answers OPTIONS itself.
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

// write sends a response, with the headers that every response has.
func (f *Front) write(w http.ResponseWriter, r *http.Request, id string, res Response) {
	h := w.Header()
	maps.Copy(h, res.Header)
	h.Set("X-Request-Id", id)
	f.Header(r, h)
	if res.hasLength(r.Method) {
		h.Set("Content-Length", strconv.Itoa(len(res.Body)))
	}
	if res.finish != nil && r.ProtoMajor == 1 {
		h.Set("Connection", "close") // the next request on this connection would have to wait until finish returns
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

// stackTrace is the text of a stack. It is a separate type because untrusted.Attr shortens
// values of type string.
type stackTrace string

// recoverPanic calls answer and returns its result. If answer panics, recoverPanic returns
// internal_error.
func (f *Front) recoverPanic(r *http.Request, id string, answer func() Response) (res Response) {
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

// renderFault sets the status and the body of a response from its Fault.
func (f *Front) renderFault(res *Response, r *http.Request, id string, charged *bool, tool bool) {
	info := res.Fault.Info()
	status := x402.PaymentStatus{Charged: charged, Retryable: info.Retry}
	res.Status = info.Status
	res.Body = f.errorBody(r, id, res.Fault, status, tool)
}

// errorBody returns the JSON of an error. If the error is for a tool call, its message uses
// the terms of MCP, and the JSON says how long to wait, because there is no Retry-After.
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

// meter returns the meter that counts a request; a nil rate means that nothing is counted.
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

// clientKey returns the key under which a request's client is counted. The key comes from the
// client's address, or from the name that Client returns.
func (f *Front) clientKey(r *http.Request, keyOf func(address string) string) string {
	name := f.Client(r)
	key := keyOf(name)
	if key == limit.Unknown && name != r.RemoteAddr && name != "" {
		return limit.NameKey(name)
	}
	return key
}

// serveMetered answers a request by calling serve or, if the client is over its limit, by
// calling limited. The headers of the response say how many units the client has left.
func (f *Front) serveMetered(
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
