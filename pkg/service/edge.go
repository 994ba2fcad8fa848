package service

import (
	"context"
	"encoding/json"
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
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// response is what a handler answers. Only edge writes it to the client.
type response struct {
	status int
	header http.Header
	body   []byte
	fault  *fault.Error
	trace  *x402.Trace
	// reason says in the log why a 402 was answered where there is no trace.
	reason string
	// replayed says that the answer comes from the ledger.
	replayed bool
	// call is set where the answer is the result of a tool's call: then status is
	// what it would be by HTTP, and the answer is 200.
	call *toolCall
}

// wire is the HTTP status of the answer.
func (r response) wire() int {
	if r.call != nil {
		return http.StatusOK
	}
	return r.status
}

// handler answers one path. It does not write, but returns a response.
type handler interface {
	// methods lists what the request's path takes, for 405 and CORS. It is nil for
	// an unknown path, which serve answers.
	methods(r *http.Request) []string
	serve(r *http.Request, id string) response
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

func (e edge) answer(r *http.Request, id string) (res response) {
	defer func() {
		if p := recover(); p != nil {
			res = e.platform.fault(r, id, e.platform.panicked(r.Context(), id, p), x402.Standing{Charged: unpaid(r)})
		}
	}()
	methods := e.next.methods(r)
	switch {
	case r.Method == http.MethodOptions:
		return response{status: http.StatusNoContent, header: preflight(methods)}
	case methods == nil || slices.Contains(methods, r.Method):
		return e.next.serve(r, id)
	}
	f := fault.Newf(fault.MethodNotAllowed, nil, "This path takes %s.", allow(methods))
	res = e.platform.fault(r, id, f, x402.Standing{Charged: unpaid(r)})
	res.header.Set("Allow", allow(methods))
	return res
}

// panicked notes what a handler panicked with.
func (p Platform) panicked(ctx context.Context, id string, v any) *fault.Error {
	p.Log.ErrorContext(ctx, "panic", "request_id", id, "panic", fmt.Sprint(v), "stack", printable.Own(debug.Stack()))
	return fault.New(fault.InternalError, fmt.Errorf("panic: %v", v))
}

// unpaid is the charged of an answer for which no payment was read: false, or nil
// (not known) if the request carries one.
func unpaid(r *http.Request) *bool {
	if len(r.Header.Values(x402.HeaderSignature)) > 0 {
		return nil
	}
	return uncharged()
}

func (e edge) write(w http.ResponseWriter, r *http.Request, res response, id string) {
	h := w.Header()
	for k, v := range res.header {
		h[k] = v
	}
	h.Set("Access-Control-Allow-Origin", "*")
	h.Set("Access-Control-Expose-Headers", strings.Join(exposedHeaders(), ", "))
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set(headerRequestID, id)
	if strings.HasPrefix(h.Get("Content-Type"), "text/html") {
		protectPage(h)
	}
	if r.Method != http.MethodHead && res.wire() != http.StatusNoContent && res.wire() != http.StatusNotModified {
		h.Set("Content-Length", strconv.Itoa(len(res.body)))
	}
	w.WriteHeader(res.wire())
	if r.Method != http.MethodHead {
		if _, err := w.Write(res.body); err != nil {
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
func (e edge) record(r *http.Request, res response, id string, took time.Duration) {
	name, priced, dimensions := e.name, e.priced, []string{DimensionOperation}
	if res.call != nil {
		name, priced, dimensions = res.call.operation, true, append(dimensions, DimensionTransport)
	}
	attrs := []slog.Attr{
		slog.String("request_id", id), slog.String(DimensionOperation, name),
		slog.String("method", r.Method), slog.Int("status", res.status), milliseconds("ms", took),
	}
	if res.call != nil {
		attrs = append(attrs, slog.String(DimensionTransport, TransportMCP), slog.String("tool", res.call.tool))
	}
	level := slog.LevelInfo
	if f := res.fault; f != nil {
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
		if res.status >= http.StatusInternalServerError {
			level = slog.LevelWarn
		}
	}
	if res.reason != "" {
		attrs = append(attrs, slog.String("reason", res.reason))
	}
	if t := res.trace; t != nil {
		attrs = append(attrs, traceAttrs(*t)...)
	}
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

func traceAttrs(t x402.Trace) []slog.Attr {
	var attrs []slog.Attr
	text := func(key, value string) {
		if value != "" {
			attrs = append(attrs, slog.String(key, value))
		}
	}
	text("payer", t.Payer)
	text("nonce", t.Nonce)
	text("amount", t.Amount)
	text("transaction", t.Transaction)
	states := make([]string, len(t.States))
	for i, s := range t.States {
		states[i] = string(s)
	}
	text("states", strings.Join(states, ">"))
	text("purchase", t.Purchase)
	text("settlement", t.Class)
	if len(t.Asked) > 0 {
		attrs = append(attrs, slog.Any("facilitators", askedAttr(t.Asked)))
	}
	text("evidence", t.Verdict)
	text("reason", t.Reason)
	if len(t.Extensions) > 0 {
		attrs = append(attrs, slog.Any("extension_responses", t.Extensions))
	}
	if t.Cause != nil {
		text("cause", t.Cause.Error())
	}
	if t.UsedAsPaid {
		attrs = append(attrs, slog.Bool("used_as_paid", true))
	}
	if t.Unreceipted {
		attrs = append(attrs, slog.Bool("unreceipted", true))
	}
	if t.Unrecorded {
		attrs = append(attrs, slog.Bool("unrecorded", true))
	}
	for _, phase := range []struct {
		name string
		took time.Duration
	}{
		{"verify_ms", t.Verify}, {"claim_ms", t.Claim}, {"slot_ms", t.Slot}, {"settle_ms", t.Settle},
		{"evidence_ms", t.Evidence}, {"lookup_ms", t.Lookup}, {"record_ms", t.Record},
	} {
		if phase.took > 0 {
			attrs = append(attrs, milliseconds(phase.name, phase.took))
		}
	}
	return attrs
}

// askedAttr is the member of a log line that says what came of each facilitator,
// in the order in which they were asked.
func askedAttr(asked []x402.Ask) []map[string]any {
	all := make([]map[string]any, len(asked))
	for i, a := range asked {
		all[i] = map[string]any{"name": a.Facilitator, "settlement": a.Class, "ms": float64(a.Took.Microseconds()) / 1000}
		if a.Reason != "" {
			all[i]["reason"] = a.Reason
		}
	}
	return all
}

func milliseconds(key string, d time.Duration) slog.Attr {
	return slog.Float64(key, float64(d.Microseconds())/1000)
}

func (p Platform) errorJSON(r *http.Request, id string, f *fault.Error, s x402.Standing) []byte {
	return errorBody(id, f, s, catalog.ErrorURL(p.Origin(r), f.Info().Code))
}

// errorBody is the same without a request. docs may be empty.
func errorBody(id string, f *fault.Error, s x402.Standing, docs string) []byte {
	return mustJSON(fault.Body{
		Error:     fault.Detail{Code: f.Info().Code, Message: f.Public(), Charged: s.Charged, Retryable: s.Retryable},
		RequestID: id, DocsURL: docs,
	})
}

// fault is the response to an error outside the payment flow.
func (p Platform) fault(r *http.Request, id string, f *fault.Error, s x402.Standing) response {
	s.Retryable = f.Info().Retry
	return response{status: f.Info().Status, header: errorHeader(f), body: p.errorJSON(r, id, f, s), fault: f}
}

// errorHeader are the headers of an error answer.
func errorHeader(f *fault.Error) http.Header {
	h := http.Header{}
	h.Set("Content-Type", jsonType)
	h.Set("Cache-Control", "no-store")
	if wait := f.Wait(); wait > 0 {
		h.Set(fault.HeaderRetryAfter, strconv.Itoa(wholeSeconds(wait)))
	}
	return h
}

const jsonType = "application/json; charset=utf-8"

// wholeSeconds rounds a wait up to what Retry-After can say, at least 1.
func wholeSeconds(d time.Duration) int { return max(int((d+time.Second-1)/time.Second), 1) }

func uncharged() *bool { return new(bool) }

// mustJSON encodes a value whose encoding cannot fail.
func mustJSON(v any) []byte {
	b, err := encode(v)
	if err != nil {
		panic(fmt.Sprintf("encode %T: %v", v, err))
	}
	return b
}

// encode is the JSON of an answer or an error, whose text may be a stranger's. What
// a reader would not see, or what steers what he sees, is written as an escape: a
// record, a registry or a certificate tells nobody, and no model, what he cannot see.
// These bytes are what is stored, digested for receipts, and sent, over HTTP and MCP.
func encode(v any) ([]byte, error) {
	b, err := json.Marshal(v)
	return printable.JSON(b), err
}
