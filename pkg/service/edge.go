package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/printable"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/x402http"
)

// handler answers one path. It does not write, but returns a response.
type handler interface {
	// methods lists what the request's path takes, for 405 and CORS. It is nil for
	// an unknown path, which serve answers.
	methods(r *http.Request) []string
	serve(r *http.Request, id string) x402http.Response
}

// edge is the outermost layer of every function: request id, CORS, methods,
// panics, headers, and exactly one log record a request.
type edge struct {
	platform Platform
	name     string // operation, for the log
	next     handler
	priced   bool // counts in the metrics
}

func (e edge) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	begun := e.platform.Now()
	id := e.platform.RequestID(r)
	res := e.answer(r, id)
	e.write(w, r, res, id)
	e.record(r, res, id, e.platform.Now().Sub(begun))
}

func (e edge) answer(r *http.Request, id string) (res x402http.Response) {
	defer func() {
		if p := recover(); p != nil {
			res = e.platform.failed(r, id, e.platform.panicked(r.Context(), id, p))
		}
	}()
	methods := e.next.methods(r)
	switch {
	case r.Method == http.MethodOptions:
		return x402http.Response{Status: http.StatusNoContent, Header: preflight(methods)}
	case methods == nil || slices.Contains(methods, r.Method):
		return e.next.serve(r, id)
	}
	f := fault.Newf(fault.MethodNotAllowed, nil, "This path takes %s.", allow(methods))
	res = e.platform.failed(r, id, f)
	res.Header.Set("Allow", allow(methods))
	return res
}

// panicked notes what a handler panicked with.
func (p Platform) panicked(ctx context.Context, id string, v any) *fault.Error {
	p.Log.ErrorContext(ctx, "panic", "request_id", id, "panic", fmt.Sprint(v), "stack", printable.Own(debug.Stack()))
	return fault.New(fault.InternalError, fmt.Errorf("panic: %v", v))
}

func (e edge) write(w http.ResponseWriter, r *http.Request, res x402http.Response, id string) {
	h := w.Header()
	for k, v := range res.Header {
		h[k] = v
	}
	h.Set("Access-Control-Allow-Origin", "*")
	h.Set("Access-Control-Expose-Headers", strings.Join(exposedHeaders(), ", "))
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set(headerRequestID, id)
	if strings.HasPrefix(h.Get("Content-Type"), "text/html") {
		protectPage(h)
	}
	if r.Method != http.MethodHead && res.Wire() != http.StatusNoContent && res.Wire() != http.StatusNotModified {
		h.Set("Content-Length", strconv.Itoa(len(res.Body)))
	}
	w.WriteHeader(res.Wire())
	if r.Method != http.MethodHead {
		if _, err := w.Write(res.Body); err != nil {
			e.platform.Log.DebugContext(r.Context(), "client went away", "request_id", id, "error", err)
		}
	}
}

// protectPage adds the headers that protect pages in browsers. A window that a page
// opens keeps its opener, because some wallets are such a window. HSTS is for this
// host alone, because other hosts of the operator's domain are not ours.
func protectPage(h http.Header) {
	h.Set("Strict-Transport-Security", "max-age=31536000")
	h.Set("Cross-Origin-Opener-Policy", "same-origin-allow-popups")
	h.Set("Permissions-Policy", "camera=(), display-capture=(), geolocation=(), microphone=(), payment=()")
}

// record writes the request's log line. It never contains a signature, a payload
// or a full header. The line of a 402 has a reason.
func (e edge) record(r *http.Request, res x402http.Response, id string, took time.Duration) {
	name, priced, dimensions := e.name, e.priced, []string{DimensionOperation}
	if res.Call != nil {
		name, priced, dimensions = res.Call.Product, true, append(dimensions, DimensionTransport)
	}
	attrs := []slog.Attr{
		slog.String("request_id", id), slog.String(DimensionOperation, name),
		slog.String("method", r.Method), slog.Int("status", res.Status), x402http.Milliseconds("ms", took),
	}
	if res.Call != nil {
		attrs = append(attrs, slog.String(DimensionTransport, TransportMCP), slog.String("tool", res.Call.Tool))
	}
	level := slog.LevelInfo
	if f := res.Fault; f != nil {
		attrs = append(attrs, slog.String("code", string(f.Code)))
		if f.Code != fault.PaymentRequired {
			attrs = append(attrs, slog.String("error", f.Error()))
			if bug, ok := errors.AsType[interface {
				error
				Stack() string
			}](f); ok {
				attrs = append(attrs, slog.Any("stack", printable.Own(bug.Stack())))
			}
		}
		if res.Status >= http.StatusInternalServerError {
			level = slog.LevelWarn
		}
	}
	if res.Reason != "" {
		attrs = append(attrs, slog.String("reason", res.Reason))
	}
	attrs = append(attrs, res.Attrs()...)
	if priced {
		attrs = append(attrs, e.platform.emf(e.platform.measured(res), dimensions...)...)
	}
	ctx := context.WithoutCancel(r.Context())
	if priced {
		e.platform.logAlways(ctx, level, "request", attrs)
		return
	}
	e.platform.Log.LogAttrs(ctx, level, "request", attrs...)
}

// logAlways writes a record at any LOG_LEVEL, because alarms are computed from it.
func (p Platform) logAlways(ctx context.Context, level slog.Level, msg string, attrs []slog.Attr) {
	line := slog.NewRecord(p.Now(), level, msg, 0)
	line.AddAttrs(attrs...)
	if err := p.Log.Handler().Handle(ctx, line); err != nil {
		p.Log.ErrorContext(ctx, "a log line with metrics could not be written", "error", err)
	}
}

// failed is the response to an error outside the flow of a payment.
func (p Platform) failed(r *http.Request, id string, f *fault.Error) x402http.Response {
	return x402http.Failed(r, id, catalog.ErrorURL(p.Origin(r), f.Info().Code), f)
}

// mustJSON encodes a value whose encoding cannot fail.
func mustJSON(v any) []byte {
	b, err := x402http.JSON(v)
	if err != nil {
		panic(fmt.Sprintf("encode %T: %v", v, err))
	}
	return b
}
