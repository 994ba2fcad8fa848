package x402http

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/printable"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// Response is the answer to a request, with what a log line and metrics say of it.
type Response struct {
	Status int
	Header http.Header
	Body   []byte
	Fault  *fault.Error // nil for an answer
	Trace  *x402.Trace  // nil where no payment was read
	// Reason says why a 402 was answered where there is no Trace.
	Reason string
	// Replayed says that the answer comes from the ledger.
	Replayed bool
	// Call is set where the answer is the result of a tool's call: then Status is what
	// it would be by HTTP, and the answer is 200.
	Call *Call
}

// Call is the call of a tool.
type Call struct {
	Product, Tool string
	Receipted     bool // it names a settlement
}

// Wire is the HTTP status of the answer.
func (r Response) Wire() int {
	if r.Call != nil {
		return http.StatusOK
	}
	return r.Status
}

// Line is the log line of a response, which never holds a signature, a payload or a
// whole header. The line of a 402 has a reason. name says what was asked for.
func (r Response) Line(q *http.Request, name, id string, took time.Duration) (slog.Level, []slog.Attr) {
	level := slog.LevelInfo
	attrs := []slog.Attr{
		slog.String("request_id", id), slog.String("operation", name),
		slog.String("method", q.Method), slog.Int("status", r.Status), milliseconds("ms", took),
	}
	if r.Call != nil {
		attrs[1] = slog.String("operation", r.Call.Product)
		attrs = append(attrs, slog.String("transport", "mcp"), slog.String("tool", r.Call.Tool))
	}
	if f := r.Fault; f != nil {
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
		if r.Status >= http.StatusInternalServerError {
			level = slog.LevelWarn
		}
	}
	if r.Reason != "" {
		attrs = append(attrs, slog.String("reason", r.Reason))
	}
	return level, append(attrs, r.payment()...)
}

// payment is the part of the log line that says what happened to the payment.
func (r Response) payment() []slog.Attr {
	if r.Trace == nil {
		return nil
	}
	t := *r.Trace
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
	for _, mark := range []struct {
		name string
		set  bool
	}{{"used_as_paid", t.UsedAsPaid}, {"unreceipted", t.Unreceipted}, {"unrecorded", t.Unrecorded}} {
		if mark.set {
			attrs = append(attrs, slog.Bool(mark.name, true))
		}
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

// askedAttr says what came of each facilitator, in the order in which they were asked.
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

// milliseconds is a duration as log lines have it.
func milliseconds(key string, d time.Duration) slog.Attr {
	return slog.Float64(key, float64(d.Microseconds())/1000)
}

// Failed is the response to an error outside the flow of a payment.
func (f Front) Failed(r *http.Request, id string, e *fault.Error) Response {
	standing := x402.PaymentStatus{Charged: unpaid(r), Retryable: e.Info().Retry}
	return Response{Status: e.Info().Status, Header: errorHeader(e), Body: ErrorBody(id, f.docs(r, e), e, standing), Fault: e}
}

// docs is where an error is explained.
func (f Front) docs(r *http.Request, e *fault.Error) string {
	if f.Docs == nil {
		return ""
	}
	return f.Docs(r, e.Info().Code)
}

// unpaid is the charged of an answer for which no payment was read: false, or nil (not
// known) if the request carries one.
func unpaid(r *http.Request) *bool {
	if len(r.Header.Values(x402.HeaderSignature)) > 0 {
		return nil
	}
	return new(bool)
}

// ErrorBody is the JSON of an error.
func ErrorBody(id, docs string, f *fault.Error, s x402.PaymentStatus) []byte {
	return JSON(fault.Body{
		Error:     fault.Detail{Code: f.Info().Code, Message: f.Public(), Charged: s.Charged, Retryable: s.Retryable},
		RequestID: id, DocsURL: docs,
	})
}

// errorHeader are the headers of an error.
func errorHeader(f *fault.Error) http.Header {
	h := http.Header{}
	h.Set("Content-Type", TypeJSON)
	h.Set("Cache-Control", "no-store")
	if wait := f.Wait(); wait > 0 {
		h.Set(fault.HeaderRetryAfter, strconv.Itoa(wholeSeconds(wait)))
	}
	return h
}

// TypeJSON is the Content-Type of JSON answers.
const TypeJSON = "application/json; charset=utf-8"

// wholeSeconds rounds a wait up to what Retry-After can say, at least 1.
func wholeSeconds(d time.Duration) int { return max(int((d+time.Second-1)/time.Second), 1) }

// JSON encodes an answer whose text may be a stranger's. What a reader would not see, or
// what steers what he sees, is written as an escape, so that a record, a registry or a
// certificate cannot show a person or a model something else than it says. These bytes
// are what is stored, digested for receipts, and sent, over HTTP and MCP. It panics for a
// value that JSON does not have, which is a bug.
func JSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("encode %T: %v", v, err))
	}
	return printable.JSON(b)
}
