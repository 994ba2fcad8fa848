package storefront

import (
	"cmp"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// Line appends the attributes of a response's log line to attrs, and returns them with the
// level of the line. name is the operation that was requested. The line never has a signature,
// a payload or a whole header. The line of a 402 has a reason.
func (r Response) Line(
	attrs []slog.Attr, request *http.Request, name, id string, took time.Duration,
) (slog.Level, []slog.Attr) {
	level := slog.LevelInfo
	if r.Fault != nil && r.Status >= http.StatusInternalServerError {
		level = slog.LevelWarn
	}
	attrs = append(attrs,
		slog.String("request_id", id),
		slog.String("operation", cmp.Or(r.Product, name)),
		slog.String("method", request.Method),
		slog.Int("status", r.Status),
		slog.Float64("ms", Milliseconds(took)),
	)
	if r.Tool != "" {
		attrs = append(attrs, slog.String("transport", "mcp"), slog.String("tool", r.Tool))
	}
	if r.Fault != nil {
		attrs = appendFault(attrs, r.Fault)
	}
	if r.Reason != "" {
		attrs = append(attrs, slog.String("reason", r.Reason))
	}
	if r.Trace != nil {
		attrs = appendPayment(attrs, r.Trace)
	}
	return level, attrs
}

// appendFault appends a fault's code, its cause and, if the fault is a bug, the stack where
// the bug was found. For a 402 it appends only the code, because a 402 is not a failure.
func appendFault(attrs []slog.Attr, f *fault.Error) []slog.Attr {
	attrs = append(attrs, slog.String("code", string(f.Code)))
	if f.Code == fault.PaymentRequired {
		return attrs
	}
	attrs = append(attrs, slog.String("error", f.Error()))
	type withStack interface {
		error
		Stack() string
	}
	if bug, ok := errors.AsType[withStack](f); ok {
		attrs = append(attrs, slog.Any("stack", stackTrace(bug.Stack())))
	}
	return attrs
}

// appendPayment appends the attributes of a payment, without those that are empty.
func appendPayment(attrs []slog.Attr, t *x402.Trace) []slog.Attr {
	var states []string
	for _, state := range t.States {
		states = append(states, string(state))
	}
	cause := ""
	if t.Cause != nil {
		cause = t.Cause.Error()
	}
	for _, attr := range [...]slog.Attr{
		slog.String("payer", t.Payer),
		slog.String("nonce", t.Nonce),
		slog.String("amount", t.Amount),
		slog.String("transaction", t.Transaction),
		slog.String("states", strings.Join(states, ">")),
		slog.String("purchase", t.Purchase),
		slog.String("settlement", t.Class),
		slog.String("evidence", t.Fate),
		slog.String("reason", t.Reason),
		slog.String("cause", cause),
		slog.Bool("used_as_paid", t.UsedAsPaid),
		slog.Bool("unreceipted", t.Unreceipted),
		slog.Bool("unrecorded", t.Unrecorded),
		slog.Float64("verify_ms", Milliseconds(t.Verify)),
		slog.Float64("claim_ms", Milliseconds(t.Claim)),
		slog.Float64("slot_ms", Milliseconds(t.Slot)),
		slog.Float64("settle_ms", Milliseconds(t.Settle)),
		slog.Float64("evidence_ms", Milliseconds(t.Evidence)),
		slog.Float64("lookup_ms", Milliseconds(t.Lookup)),
		slog.Float64("record_ms", Milliseconds(t.Record)),
	} {
		switch attr.Value.Any() {
		case "", false, 0.0:
		default:
			attrs = append(attrs, attr)
		}
	}
	if len(t.Asked) > 0 {
		attrs = append(attrs, slog.Any("facilitators", facilitatorsAsked(t.Asked)))
	}
	if len(t.Extensions) > 0 {
		attrs = append(attrs, slog.Any("extension_responses", t.Extensions))
	}
	return attrs
}

// facilitatorsAsked returns a log entry for each facilitator that was asked about one payment,
// in the order in which they were asked.
func facilitatorsAsked(asks []x402.Ask) []map[string]any {
	var list []map[string]any
	for _, ask := range asks {
		entry := map[string]any{
			"name":       ask.Facilitator,
			"settlement": ask.Class,
			"ms":         Milliseconds(ask.Took),
		}
		if ask.Reason != "" {
			entry["reason"] = ask.Reason
		}
		list = append(list, entry)
	}
	return list
}

// Milliseconds returns a duration in milliseconds, the unit of log lines and metrics.
func Milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
