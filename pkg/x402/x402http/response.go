package x402http

import (
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/printable"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// TypeJSON is the Content-Type of JSON answers.
const TypeJSON = "application/json; charset=utf-8"

// Response is the answer to a request, with what a log line and metrics say of it.
type Response struct {
	// Status 0 is that of Fault, whose JSON is the body then.
	Status int
	Header http.Header // never nil
	Body   []byte
	Fault  *fault.Error // nil for an answer
	Trace  *x402.Trace  // nil where no payment was read
	// Reason says why a 402 was answered without a Trace.
	Reason string
	// Replayed says that the answer comes from the ledger.
	Replayed bool
	// Public says that caches may give the answer to other clients: nothing about the
	// client's own limit is in it.
	Public bool
	// Call is set where the answer is the result of a tool's call: then Status is what
	// it would be by HTTP, and the answer is 200.
	Call *Call
}

// Call is the call of a tool.
type Call struct {
	Product, Tool string
	Receipted     bool // it names a settlement
}

// Failed answers with an error.
func Failed(f *fault.Error) Response {
	h := http.Header{}
	h.Set("Content-Type", TypeJSON)
	h.Set("Cache-Control", "no-store")
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
	attrs := make([]slog.Attr, 0, 24)
	attrs = append(attrs,
		slog.String("request_id", id), slog.String("operation", name),
		slog.String("method", q.Method), slog.Int("status", r.Status), milliseconds("ms", took),
	)
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
	if r.Trace != nil {
		attrs = appendPayment(attrs, r.Trace)
	}
	return level, attrs
}

// appendPayment appends what happened to the payment, without what is empty.
func appendPayment(attrs []slog.Attr, t *x402.Trace) []slog.Attr {
	cause := ""
	if t.Cause != nil {
		cause = t.Cause.Error()
	}
	for _, a := range [...]slog.Attr{
		slog.String("payer", t.Payer), slog.String("nonce", t.Nonce), slog.String("amount", t.Amount), slog.String("transaction", t.Transaction),
		slog.String("states", joined(t.States)), slog.String("purchase", t.Purchase), slog.String("settlement", t.Class),
		slog.String("evidence", t.Verdict), slog.String("reason", t.Reason), slog.String("cause", cause),
		slog.Bool("used_as_paid", t.UsedAsPaid), slog.Bool("unreceipted", t.Unreceipted), slog.Bool("unrecorded", t.Unrecorded),
		milliseconds("verify_ms", t.Verify), milliseconds("claim_ms", t.Claim), milliseconds("slot_ms", t.Slot),
		milliseconds("settle_ms", t.Settle), milliseconds("evidence_ms", t.Evidence), milliseconds("lookup_ms", t.Lookup),
		milliseconds("record_ms", t.Record),
	} {
		v, empty := a.Value, false
		switch v.Kind() {
		case slog.KindString:
			empty = v.String() == ""
		case slog.KindBool:
			empty = !v.Bool()
		default:
			empty = v.Float64() <= 0
		}
		if !empty {
			attrs = append(attrs, a)
		}
	}
	if len(t.Asked) > 0 {
		attrs = append(attrs, slog.Any("facilitators", askedAttr(t.Asked)))
	}
	if len(t.Extensions) > 0 {
		attrs = append(attrs, slog.Any("extension_responses", t.Extensions))
	}
	return attrs
}

// joined are the states that the record went through.
func joined(states []ledger.State) string {
	words := make([]string, len(states))
	for i, s := range states {
		words[i] = string(s)
	}
	return strings.Join(words, ">")
}

// askedAttr says how each facilitator answered, in the order in which they were asked.
func askedAttr(asked []x402.Ask) []map[string]any {
	all := make([]map[string]any, len(asked))
	for i, a := range asked {
		all[i] = map[string]any{"name": a.Facilitator, "settlement": a.Class, "ms": inMilliseconds(a.Took)}
		if a.Reason != "" {
			all[i]["reason"] = a.Reason
		}
	}
	return all
}

// milliseconds is a duration as log lines have it.
func milliseconds(key string, d time.Duration) slog.Attr { return slog.Float64(key, inMilliseconds(d)) }

func inMilliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
