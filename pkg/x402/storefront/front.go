package storefront

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
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

// TypeJSON is the Content-Type of JSON answers.
const TypeJSON = "application/json; charset=utf-8"

// Response is the answer to a request, with what a log line and metrics say of it.
type Response struct {
	// Status 0 means that of Fault, whose JSON is then the body.
	Status int
	Header http.Header // never nil
	Body   []byte
	Fault  *fault.Error // nil for an answer
	Trace  *x402.Trace  // nil where no payment was read
	// Reason says why a 402 was answered without a Trace.
	Reason string
	// Receipt is the settlement that the answer names; nil without one.
	Receipt *x402.SettleResponse
	// Replayed says that the answer comes from the ledger.
	Replayed bool
	// Public says that caches may give the answer to other clients: nothing about the
	// client's own limit is in it.
	Public bool
	// Product and Tool are set where the answer is the result of a tool's call: then
	// Status is the one that HTTP would have, and the answer is 200.
	Product, Tool string

	asks    bool   // for a payment
	charged *bool  // of a payment that was refused: whether money has moved; nil is not known
	finish  func() // is called when the response is sent: work goes on; nil is none
	// offers are what PAYMENT-REQUIRED can be, from the longest: the head has the first that
	// it has room for.
	offers []string
}

// Failed returns the response for an error.
func Failed(f *fault.Error) Response {
	h := http.Header{"Content-Type": {TypeJSON}, "Cache-Control": {"no-store"}}
	if wait := seconds(f); wait > 0 {
		h.Set(fault.HeaderRetryAfter, strconv.Itoa(wait))
	}
	return Response{Header: h, Fault: f}
}

// seconds is the wait that an error asks for, rounded up to what Retry-After can say; 0
// is none.
func seconds(f *fault.Error) int {
	return int((f.Wait() + time.Second - 1) / time.Second)
}

// Wire returns the HTTP status that is sent: 200 for the result of a tool's call.
func (r Response) Wire() int {
	if r.Tool != "" {
		return http.StatusOK
	}
	return r.Status
}

// Reads returns the methods of what can only be read, GET and HEAD.
func Reads(*http.Request) []string { return []string{http.MethodGet, http.MethodHead} }

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
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.serve(w, r, name, methods, func(r *http.Request, id string) Response {
			m := f.meter(rate, r, id, false)
			m.Client = limit.DocumentsKey(f.Client(r))
			return f.metered(r, m, func(f *fault.Error) Response {
				res := Failed(f)
				res.Header.Set("Vary", "Accept-Encoding") // as what it stands for
				return res
			}, func() Response { return answer(r) })
		})
	})
}

// serve writes what answer returns to a request, unless its method is not one of methods.
func (f *Front) serve(
	w http.ResponseWriter, r *http.Request, name string, methods func(*http.Request) []string, answer func(*http.Request, string) Response,
) {
	begun := f.Now()
	id := f.RequestID(r)
	res := f.guarded(r, id, func() Response {
		takes := methods(r)
		switch {
		case f.Options != nil && r.Method == http.MethodOptions:
			return Response{Status: http.StatusNoContent, Header: f.Options(takes)}
		case takes == nil || slices.Contains(takes, r.Method):
			return answer(r, id)
		case f.Options != nil:
			takes = append(takes, http.MethodOptions)
		}
		allow := strings.Join(takes, ", ")
		res := Failed(fault.Newf(fault.MethodNotAllowed, nil, "This path takes %s.", allow))
		res.Header.Set("Allow", allow)
		return res
	})
	if res.Status == 0 {
		var charged *bool // not known of a request with a payment, which was not read
		if len(r.Header.Values(x402.HeaderSignature)) == 0 {
			charged = new(bool)
		}
		f.fail(&res, r, id, charged, false)
	}
	h := w.Header()
	maps.Copy(h, res.Header)
	h.Set("X-Request-Id", id)
	f.Header(r, h)
	if r.Method != http.MethodHead && res.Wire() != http.StatusNoContent && res.Wire() != http.StatusNotModified {
		h.Set("Content-Length", strconv.Itoa(len(res.Body)))
	}
	if res.finish != nil && r.ProtoMajor == 1 {
		h.Set("Connection", "close") // the next request on it would wait for the work to end
	}
	if len(res.offers) > 0 {
		h.Set(x402.HeaderRequired, firstFitting(res.offers, maxHead-headSize(h)))
	}
	w.WriteHeader(res.Wire())
	if r.Method != http.MethodHead {
		if _, err := w.Write(res.Body); err != nil {
			f.Log.DebugContext(r.Context(), "client went away", "request_id", id, "error", err)
		}
	}
	f.Observe(r, name, id, res, f.Now().Sub(begun))
	if res.finish != nil {
		_ = http.NewResponseController(w).Flush() // where that cannot be done the response waits
		res.finish()
	}
}

// stackTrace is a type, because untrusted.Attr would cut a string.
type stackTrace string

// guarded answers a panic with an error.
func (f *Front) guarded(r *http.Request, id string, answer func() Response) (res Response) {
	defer func() {
		if v := recover(); v != nil {
			f.Log.ErrorContext(r.Context(), "panic", "request_id", id, "panic", fmt.Sprint(v), "stack", stackTrace(debug.Stack()))
			res = Failed(fault.New(fault.InternalError, fmt.Errorf("panic: %v", v)))
		}
	}()
	return answer()
}

// fail gives a response its status and its body by its Fault.
func (f *Front) fail(res *Response, r *http.Request, id string, charged *bool, tool bool) {
	info := res.Fault.Info()
	res.Status = info.Status
	res.Body = f.errorBody(r, id, res.Fault, x402.PaymentStatus{Charged: charged, Retryable: info.Retry}, tool)
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
		body.Error.Message = mcp.Words(body.Error.Message)
		body.Error.RetryAfter = seconds(e)
	}
	return untrusted.Marshal(body)
}

// meter counts a request, unless it has no rate.
func (f *Front) meter(rate *limit.Rate, r *http.Request, id string, paid bool) *limit.Request {
	return &limit.Request{
		Rate:   rate,
		Client: f.clientKey(r, limit.ClientKey),
		Paid:   paid,
		Warn:   func(what string, err error) { f.Log.WarnContext(r.Context(), what, "request_id", id, "error", err) },
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

// metered serves a request, unless its client is over the limit.
func (f *Front) metered(r *http.Request, m *limit.Request, limited func(*fault.Error) Response, serve func() Response) Response {
	if m.Rate == nil {
		return serve()
	}
	var res Response
	if f := m.Admit(r.Context()); f != nil {
		res = limited(f)
	} else {
		res = serve()
		size := len(res.Body)
		if r.Method == http.MethodHead {
			size = 0
		}
		m.Served(r.Context(), size, res.Replayed)
	}
	if policy, state := m.Headers(); policy != "" && !res.Public {
		res.Header.Set(limit.HeaderPolicy, policy)
		res.Header.Set(limit.HeaderLimit, state)
	}
	return res
}

// Line appends the log line of a response, which never holds a signature, a payload or a
// whole header. The line of a 402 has a reason. name says what was asked for.
func (r Response) Line(attrs []slog.Attr, q *http.Request, name, id string, took time.Duration) (slog.Level, []slog.Attr) {
	level := slog.LevelInfo
	attrs = append(attrs,
		slog.String("request_id", id), slog.String("operation", cmp.Or(r.Product, name)),
		slog.String("method", q.Method), slog.Int("status", r.Status), slog.Float64("ms", Milliseconds(took)),
	)
	if r.Tool != "" {
		attrs = append(attrs, slog.String("transport", "mcp"), slog.String("tool", r.Tool))
	}
	if f := r.Fault; f != nil {
		attrs = append(attrs, slog.String("code", string(f.Code)))
		if f.Code != fault.PaymentRequired {
			attrs = append(attrs, slog.String("error", f.Error()))
			if bug, ok := errors.AsType[interface {
				error
				Stack() string
			}](f); ok {
				attrs = append(attrs, slog.Any("stack", stackTrace(bug.Stack())))
			}
		}
		if r.Status >= http.StatusInternalServerError {
			level = slog.LevelWarn
		}
	}
	if r.Reason != "" {
		attrs = append(attrs, slog.String("reason", r.Reason))
	}
	if r.Trace != nil {
		attrs = appendPayment(attrs, r.Trace)
	}
	return level, attrs
}

// appendPayment appends what happened to the payment, without what is empty.
func appendPayment(attrs []slog.Attr, t *x402.Trace) []slog.Attr {
	states := ""
	cause := ""
	for _, s := range t.States {
		states += ">" + string(s)
	}
	if t.Cause != nil {
		cause = t.Cause.Error()
	}
	ms := func(key string, d time.Duration) slog.Attr { return slog.Float64(key, Milliseconds(d)) }
	for _, a := range [...]slog.Attr{
		slog.String("payer", t.Payer), slog.String("nonce", t.Nonce), slog.String("amount", t.Amount), slog.String("transaction", t.Transaction),
		slog.String("states", strings.TrimPrefix(states, ">")), slog.String("purchase", t.Purchase), slog.String("settlement", t.Class),
		slog.String("evidence", t.Verdict), slog.String("reason", t.Reason), slog.String("cause", cause),
		slog.Bool("used_as_paid", t.UsedAsPaid), slog.Bool("unreceipted", t.Unreceipted), slog.Bool("unrecorded", t.Unrecorded),
		ms("verify_ms", t.Verify), ms("claim_ms", t.Claim), ms("slot_ms", t.Slot), ms("settle_ms", t.Settle),
		ms("evidence_ms", t.Evidence), ms("lookup_ms", t.Lookup), ms("record_ms", t.Record),
	} {
		switch a.Value.Any() {
		case "", false, 0.0:
		default:
			attrs = append(attrs, a)
		}
	}
	if len(t.Asked) > 0 { // in this order
		asked := make([]map[string]any, len(t.Asked))
		for i, a := range t.Asked {
			asked[i] = map[string]any{"name": a.Facilitator, "settlement": a.Class, "ms": Milliseconds(a.Took)}
			if a.Reason != "" {
				asked[i]["reason"] = a.Reason
			}
		}
		attrs = append(attrs, slog.Any("facilitators", asked))
	}
	if len(t.Extensions) > 0 {
		attrs = append(attrs, slog.Any("extension_responses", t.Extensions))
	}
	return attrs
}

// Milliseconds is a duration as log lines and metrics have it.
func Milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
