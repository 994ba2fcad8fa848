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

// visit is one call of a tool.
type visit struct {
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
func (v *visit) answer(limited *fault.Error) (res Response) {
	defer func() {
		if p := recover(); p != nil {
			res = v.fail(v.box.seller.panicked(v.r.Context(), v.id, p))
		}
	}()
	if limited != nil {
		return v.fail(limited)
	}
	o, err := v.tool.quotes.of(v.tool.Product.At(v.r))
	if err != nil {
		return v.fail(fault.New(fault.InternalError, err))
	}
	if !v.call.Paid() {
		return v.challenge(o)
	}
	if err := v.call.BadPayment; err != nil {
		return v.refused(o, x402.Outcome{Fault: fault.Newf(fault.PaymentRequired, nil, "%s", err)})
	}
	out := v.tool.gate.Serve(v.r.Context(), x402.Request{
		Payload: v.call.Payment, Offer: o.offer, Arrived: v.arrived, Deadline: v.arrived.Add(deadline),
		Keys: v.keys(), Window: v.tool.Product.Window, Client: client(v.r), Meter: v.meter,
		Prepare: func() (x402.Job, error) { return v.tool.Call(v.call.Arguments) }, Error: v.errorJSON,
	})
	if out.Status == http.StatusPaymentRequired {
		return v.refused(o, out)
	}
	return v.paid(out)
}

// keys are the purchase key by whatever carries it; the header comes first.
func (v *visit) keys() []string {
	if h := v.r.Header.Values(x402.HeaderKey); len(h) > 0 {
		return h
	}
	return v.call.Keys
}

// challenge answers a call without a payment. What is wrong with its arguments
// comes before the price: a model can correct it, and need not pay for that.
func (v *visit) challenge(o *quote) Response {
	if _, err := v.tool.Call(v.call.Arguments); err != nil {
		return v.fail(fault.From(err))
	}
	return v.unpaid(o, nil, nil)
}

// refused answers a payment that was not accepted: the offer again, with the
// reason.
func (v *visit) refused(o *quote, out x402.Outcome) Response {
	res := v.unpaid(o, out.Fault, out.Receipt)
	res.Trace = &out.Trace
	return res
}

// unpaid asks for the payment, and says why an earlier one was refused.
func (v *visit) unpaid(o *quote, refused *fault.Error, receipt *x402.SettleResponse) Response {
	f, reason := refused, ""
	if f == nil {
		f = fault.New(fault.PaymentRequired, nil)
	} else {
		reason = mcp.Words(f.Public())
	}
	token, err := x402.NewToken(v.box.seller.config.Random)
	if err != nil {
		return v.fail(fault.New(fault.InternalError, err))
	}
	res := v.result(http.StatusPaymentRequired, mcp.Result{
		Text: o.text(refused, reason, token), Structured: true, IsError: true, Meta: mcp.Meta{Payment: receipt},
	})
	res.Fault = f
	return res
}

// paid answers a payment that was accepted, whatever came of it. Only a result of
// the tool has structured content: clients hold that of an error to the output
// schema, and look in it for a price.
func (v *visit) paid(out x402.Outcome) Response {
	meta := mcp.Meta{Payment: out.Receipt, Replayed: out.Replayed, Owed: out.Owed}
	if out.Replayed && !out.Answered.IsZero() {
		meta.Age = new(int)
		*meta.Age = age(out.Answered, v.box.seller.config.Now())
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
	res := v.result(out.Status, result)
	res.Fault, res.Trace, res.Replayed = out.Fault, &out.Trace, out.Replayed
	return res
}

// fail answers an error outside the payment flow.
func (v *visit) fail(f *fault.Error) Response {
	standing := x402.Standing{Retryable: f.Info().Retry}
	if !v.call.Paid() {
		standing.Charged = new(bool)
	}
	res := v.result(f.Info().Status, mcp.Result{
		Text: v.errorJSON(f, standing), IsError: true, Meta: mcp.Meta{RetryAfter: seconds(f)},
	})
	res.Fault = f
	return res
}

func (v *visit) result(status int, result mcp.Result) Response {
	limits := v.meter.Header()
	result.Meta.RateLimit, result.Meta.RateLimitPolicy = limits.Get(limit.HeaderLimit), limits.Get(limit.HeaderPolicy)
	result.Meta.RequestID = v.id
	res := rpc(v.box.bare().Answer(v.q, result))
	res.Status = status
	res.Call = &Call{Product: v.tool.Product.Name, Tool: v.tool.Name, Receipted: result.Meta.Payment != nil}
	return res
}

// errorJSON is the text of an error: the body that HTTP has, in the words of this
// transport, and with what a header says there.
func (v *visit) errorJSON(f *fault.Error, s x402.Standing) []byte {
	return mustJSON(fault.Body{
		Error: fault.Detail{
			Code: f.Info().Code, Message: mcp.Words(f.Public()), Charged: s.Charged, Retryable: s.Retryable, RetryAfter: seconds(f),
		},
		RequestID: v.id, DocsURL: v.box.seller.config.Docs(v.r, f.Info().Code),
	})
}

// seconds is the wait that an error asks for; 0 is none.
func seconds(f *fault.Error) int {
	if wait := f.Wait(); wait > 0 {
		return wholeSeconds(wait)
	}
	return 0
}
