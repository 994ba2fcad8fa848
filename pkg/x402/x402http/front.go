package x402http

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/mcp"
	"github.com/hostfacts/hostfacts/pkg/printable"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/limit"
)

// Path answers the requests for a path. It returns a response, which a Front writes.
type Path interface {
	// Methods are those that a request's path takes; nil leaves all of them to Serve.
	Methods(r *http.Request) []string
	Serve(r *http.Request, id string) Response
}

// Front is what every response has in common, whatever it answers: a name, the answer
// to a wrong method and to a panic, headers, and one report. The zero value is usable.
type Front struct {
	// Docs is where an error code is explained; nil is nowhere.
	Docs func(*http.Request, fault.Code) string
	// RequestID is the name of a request; nil draws one.
	RequestID func(*http.Request) string
	// Options answers OPTIONS with the headers that it returns; nil refuses the method.
	Options func(methods []string) http.Header
	// Header adds to the headers of a response before it is written.
	Header func(http.Header)
	// Observe is told every response after it is written; nil writes Response.Line to Log.
	Observe func(r *http.Request, name, id string, res Response, took time.Duration)
	Log     *slog.Logger     // nil is slog.Default
	Now     func() time.Time // nil is time.Now
}

// fill sets what has a default.
func (f *Front) fill() {
	f.Log = cmp.Or(f.Log, slog.Default())
	if f.Now == nil {
		f.Now = time.Now
	}
	if f.RequestID == nil {
		f.RequestID = func(*http.Request) string { return rand.Text() }
	}
	if f.Header == nil {
		f.Header = func(http.Header) {}
	}
	if f.Docs == nil {
		f.Docs = func(*http.Request, fault.Code) string { return "" }
	}
	if f.Observe == nil {
		f.Observe = func(r *http.Request, name, id string, res Response, took time.Duration) {
			level, attrs := res.Line(r, name, id, took)
			f.Log.LogAttrs(context.WithoutCancel(r.Context()), level, "request", attrs...)
		}
	}
}

// Handler answers requests by a path, whose name is for logs. They are free: each counts
// in a tally of its client's that is apart from that of its other requests. A nil rate is
// no limit.
func (f Front) Handler(name string, p Path, rate *limit.Rate) http.Handler {
	f.fill()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { f.serve(w, r, name, free{p, &f, rate}) })
}

// free is a path whose requests cost nothing.
type free struct {
	Path
	front *Front
	rate  *limit.Rate
}

// Serve implements Path.
func (p free) Serve(r *http.Request, id string) Response {
	m := newMeter(p.front.Log, p.rate, r, id, false)
	m.client = limit.DocumentsKey(r.RemoteAddr)
	return m.count(r, func(f *fault.Error) Response {
		res := Failed(f)
		res.Header.Set("Vary", "Accept-Encoding") // as what it stands for
		return res
	}, func() Response { return p.Path.Serve(r, id) })
}

func (f *Front) serve(w http.ResponseWriter, r *http.Request, name string, p Path) {
	begun, id := f.Now(), f.RequestID(r)
	res := f.answer(r, id, p)
	if res.Status == 0 {
		res.Status = res.Fault.Info().Status
		res.Body = f.errorBody(r, id, res.Fault, x402.PaymentStatus{Charged: unpaid(r), Retryable: res.Fault.Info().Retry}, false)
	}
	h := w.Header()
	for key, values := range res.Header {
		h[key] = values
	}
	h.Set("X-Request-Id", id)
	f.Header(h)
	if r.Method != http.MethodHead && res.Wire() != http.StatusNoContent && res.Wire() != http.StatusNotModified {
		h.Set("Content-Length", strconv.Itoa(len(res.Body)))
	}
	w.WriteHeader(res.Wire())
	if r.Method != http.MethodHead {
		if _, err := w.Write(res.Body); err != nil {
			f.Log.DebugContext(r.Context(), "client went away", "request_id", id, "error", err)
		}
	}
	f.Observe(r, name, id, res, f.Now().Sub(begun))
}

func (f *Front) answer(r *http.Request, id string, p Path) (res Response) {
	defer func() {
		if v := recover(); v != nil {
			res = Failed(f.panicked(r.Context(), id, v))
		}
	}()
	methods := p.Methods(r)
	if f.Options != nil && r.Method == http.MethodOptions {
		return Response{Status: http.StatusNoContent, Header: f.Options(methods)}
	}
	if methods == nil || slices.Contains(methods, r.Method) {
		return p.Serve(r, id)
	}
	if f.Options != nil {
		methods = append(methods, http.MethodOptions)
	}
	allow := strings.Join(methods, ", ")
	res = Failed(fault.Newf(fault.MethodNotAllowed, nil, "This path takes %s.", allow))
	res.Header.Set("Allow", allow)
	return res
}

// panicked logs a panic, and is the fault that it is answered with.
func (f *Front) panicked(ctx context.Context, id string, v any) *fault.Error {
	f.Log.ErrorContext(ctx, "panic", "request_id", id, "panic", fmt.Sprint(v), "stack", printable.Own(debug.Stack()))
	return fault.New(fault.InternalError, fmt.Errorf("panic: %v", v))
}

// unpaid is the charged of an answer for which no payment was read: false, or nil (not
// known) if the request carries one.
func unpaid(r *http.Request) *bool {
	if len(r.Header.Values(x402.HeaderSignature)) > 0 {
		return nil
	}
	return new(bool)
}

// errorBody is the JSON of an error. That of a tool's call is in the words of its
// transport, and says how long to wait, which is in a header elsewhere.
func (f *Front) errorBody(r *http.Request, id string, e *fault.Error, s x402.PaymentStatus, tool bool) []byte {
	body := fault.Body{
		Error:     fault.Detail{Code: e.Info().Code, Message: e.Public(), Charged: s.Charged, Retryable: s.Retryable},
		RequestID: id, DocsURL: f.Docs(r, e.Info().Code),
	}
	if tool {
		body.Error.Message, body.Error.RetryAfter = mcp.Words(body.Error.Message), seconds(e)
	}
	return printable.Marshal(body)
}
