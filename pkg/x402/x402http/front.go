package x402http

import (
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

	"github.com/hostfacts/hostfacts/pkg/printable"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
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
	if f.Log == nil {
		f.Log = slog.Default()
	}
	if f.Now == nil {
		f.Now = time.Now
	}
	if f.RequestID == nil {
		f.RequestID = func(*http.Request) string { return rand.Text() }
	}
	if f.Header == nil {
		f.Header = func(http.Header) {}
	}
	if f.Observe == nil {
		f.Observe = func(r *http.Request, name, id string, res Response, took time.Duration) {
			level, attrs := res.Line(r, name, id, took)
			f.Log.LogAttrs(context.WithoutCancel(r.Context()), level, "request", attrs...)
		}
	}
}

// Handler answers requests by a path, whose name is for logs.
func (f Front) Handler(name string, p Path) http.Handler {
	f.fill()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { f.serve(w, r, name, p) })
}

func (f *Front) serve(w http.ResponseWriter, r *http.Request, name string, p Path) {
	begun, id := f.Now(), f.RequestID(r)
	res := f.answer(r, id, p)
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
			res = f.Failed(r, id, f.panicked(r.Context(), id, v))
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
	res = f.Failed(r, id, fault.Newf(fault.MethodNotAllowed, nil, "This path takes %s.", allow))
	res.Header.Set("Allow", allow)
	return res
}

// panicked logs a panic, and is the fault that it is answered with.
func (f *Front) panicked(ctx context.Context, id string, v any) *fault.Error {
	f.Log.ErrorContext(ctx, "panic", "request_id", id, "panic", fmt.Sprint(v), "stack", printable.Own(debug.Stack()))
	return fault.New(fault.InternalError, fmt.Errorf("panic: %v", v))
}
