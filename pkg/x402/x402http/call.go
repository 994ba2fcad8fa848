package x402http

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"time"
	"unicode/utf8"

	"github.com/hostfacts/hostfacts/pkg/mcp"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/limit"
)

// toolRequest is one call of a tool.
type toolRequest struct {
	box     *Toolbox
	r       *http.Request
	id      string
	arrived time.Time
	q       *mcp.Request
	call    *mcp.Call
	meter   *Meter
	tool    *tool
}

// answer is the result of the call; limited says that its client is over the
// limit, or is nil.
func (t *toolRequest) answer(limited *fault.Error) (res Response) {
	defer func() {
		if p := recover(); p != nil {
			res = t.fail(t.box.seller.config.panicked(t.r.Context(), t.id, p))
		}
	}()
	if limited != nil {
		return t.fail(limited)
	}
	o, err := t.tool.quotes.of(t.tool.Product.At(t.r))
	if err != nil {
		return t.fail(fault.New(fault.InternalError, err))
	}
	if !t.call.Paid() {
		return t.challenge(o)
	}
	if err := t.call.BadPayment; err != nil {
		return t.refused(o, x402.Outcome{Fault: fault.Newf(fault.PaymentRequired, nil, "%s", err)})
	}
	out := t.tool.gate.Serve(t.r.Context(), x402.Request{
		Payload: t.call.Payment, Offer: o.offer, Arrived: t.arrived, Deadline: t.arrived.Add(deadline),
		Keys: t.keys(), Window: t.tool.Product.Window, Client: client(t.r), Meter: t.meter,
		Prepare: func() (x402.Job, error) { return t.tool.call(t.call.Arguments) }, Error: t.errorJSON,
	})
	if out.Status == http.StatusPaymentRequired {
		return t.refused(o, out)
	}
	return t.paid(out)
}

// keys are the purchase key by whatever carries it; the header comes first.
func (t *toolRequest) keys() []string {
	if h := t.r.Header.Values(x402.HeaderKey); len(h) > 0 {
		return h
	}
	return t.call.Keys
}

// challenge answers a call without a payment. What is wrong with its arguments
// comes before the price: a model can correct it, and need not pay for that.
func (t *toolRequest) challenge(o *quote) Response {
	if _, err := t.tool.call(t.call.Arguments); err != nil {
		return t.fail(fault.From(err))
	}
	return t.unpaid(o, nil, nil)
}

// refused answers a payment that was not accepted: the offer again, with the
// reason.
func (t *toolRequest) refused(o *quote, out x402.Outcome) Response {
	res := t.unpaid(o, out.Fault, out.Receipt)
	res.Trace = &out.Trace
	return res
}

// unpaid asks for the payment, and says why an earlier one was refused.
func (t *toolRequest) unpaid(o *quote, refused *fault.Error, receipt *x402.SettleResponse) Response {
	f, reason := refused, ""
	if f == nil {
		f = fault.New(fault.PaymentRequired, nil)
	} else {
		reason = mcp.Words(f.Public())
	}
	token, err := x402.NewToken(t.box.seller.config.Random)
	if err != nil {
		return t.fail(fault.New(fault.InternalError, err))
	}
	res := t.result(http.StatusPaymentRequired, mcp.Result{
		Text: o.text(refused, reason, token), Structured: true, IsError: true, Meta: mcp.Meta{Payment: receipt},
	})
	res.Fault = f
	return res
}

// paid answers a payment that was accepted, whatever came of it. Only a result of
// the tool has structured content: clients hold that of an error to the output
// schema, and look in it for a price.
func (t *toolRequest) paid(out x402.Outcome) Response {
	meta := mcp.Meta{Payment: out.Receipt, Replayed: out.Replayed, Owed: out.Owed}
	if out.Replayed && !out.Answered.IsZero() {
		meta.Age = new(int)
		*meta.Age = age(out.Answered, t.box.seller.config.Now())
	}
	failed := out.Status >= http.StatusBadRequest
	if out.Fault != nil {
		meta.RetryAfter = seconds(out.Fault)
	}
	result := mcp.Result{Text: out.Body, Structured: !failed, IsError: failed, Meta: meta}
	if out.Header != nil { // a handler's answer is text, JSON, or anything
		result.Structured = !failed && bytes.HasPrefix(out.Body, []byte("{")) && json.Valid(out.Body)
		if !utf8.Valid(out.Body) {
			result.Text = []byte(base64.StdEncoding.EncodeToString(out.Body))
		}
	}
	res := t.result(out.Status, result)
	res.Fault, res.Trace, res.Replayed = out.Fault, &out.Trace, out.Replayed
	return res
}

// fail answers an error outside the payment flow.
func (t *toolRequest) fail(f *fault.Error) Response {
	standing := x402.PaymentStatus{Retryable: f.Info().Retry}
	if !t.call.Paid() {
		standing.Charged = new(bool)
	}
	res := t.result(f.Info().Status, mcp.Result{
		Text: t.errorJSON(f, standing), IsError: true, Meta: mcp.Meta{RetryAfter: seconds(f)},
	})
	res.Fault = f
	return res
}

func (t *toolRequest) result(status int, result mcp.Result) Response {
	limits := t.meter.Header()
	result.Meta.RateLimit, result.Meta.RateLimitPolicy = limits.Get(limit.HeaderLimit), limits.Get(limit.HeaderPolicy)
	result.Meta.RequestID = t.id
	res := rpc(t.box.bare().Answer(t.q, result))
	res.Status = status
	res.Call = &Call{Product: t.tool.Product.Name, Tool: t.tool.Name, Receipted: result.Meta.Payment != nil}
	return res
}

// errorJSON is the text of an error: the body that HTTP has, in the words of this
// transport, and with what a header says there.
func (t *toolRequest) errorJSON(f *fault.Error, s x402.PaymentStatus) []byte {
	return JSON(fault.Body{
		Error: fault.Detail{
			Code: f.Info().Code, Message: mcp.Words(f.Public()), Charged: s.Charged, Retryable: s.Retryable, RetryAfter: seconds(f),
		},
		RequestID: t.id, DocsURL: t.box.seller.config.docs(t.r, f),
	})
}

// seconds is the wait that an error asks for; 0 is none.
func seconds(f *fault.Error) int {
	if wait := f.Wait(); wait > 0 {
		return wholeSeconds(wait)
	}
	return 0
}
