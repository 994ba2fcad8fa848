package service

import (
	"encoding/json"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/limit"
	"github.com/hostfacts/hostfacts/pkg/mcp"
	"github.com/hostfacts/hostfacts/pkg/printable"
	"github.com/hostfacts/hostfacts/pkg/strictjson"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// visit is one call of a tool.
type visit struct {
	box     *toolbox
	r       *http.Request
	id      string
	arrived time.Time
	q       *mcp.Request
	call    *mcp.Call
	meter   *meter
	tool    *tool
}

// answer is the result of the call; limited says that its client is over the
// limit, or is nil.
func (v *visit) answer(limited *fault.Error) (res response) {
	defer func() {
		if p := recover(); p != nil {
			res = v.fail(v.box.platform.panicked(v.r.Context(), v.id, p))
		}
	}()
	if limited != nil {
		return v.fail(limited)
	}
	o, err := v.counter().of(v.tool.op.entry)
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
		Keys: v.keys(), Window: 2 * v.box.offering.DuplicateWindow, Client: client(v.r), Meter: v.meter, Prepare: v.job, Error: v.errorJSON,
	})
	if out.Status == http.StatusPaymentRequired {
		return v.refused(o, out)
	}
	return v.paid(out)
}

func (v *visit) counter() *counter { return v.box.at(v.box.platform.Origin(v.r)) }

// keys are the purchase key by whatever carries it; the header comes first.
func (v *visit) keys() []string {
	if h := v.r.Header.Values(x402.HeaderKey); len(h) > 0 {
		return h
	}
	return v.call.Keys
}

// job is the work that the arguments ask for: that of the same parameters on the
// operation's path.
func (v *visit) job() (x402.Job, error) {
	values, err := arguments(v.tool.op.entry, v.call.Arguments)
	if err != nil {
		return x402.Job{}, err
	}
	return v.tool.op.job(values.Encode())
}

// challenge answers a call without a payment. What is wrong with its arguments
// comes before the price: a model can correct it, and need not pay for that.
func (v *visit) challenge(o *toolOffer) response {
	if _, err := v.job(); err != nil {
		return v.fail(fault.From(err))
	}
	return v.unpaid(o, "", fault.New(fault.PaymentRequired, nil), nil)
}

// refused answers a payment that was not accepted: the offer again, with the
// reason.
func (v *visit) refused(o *toolOffer, out x402.Outcome) response {
	res := v.unpaid(o, mcp.Words(out.Fault.Public()), out.Fault, out.Receipt)
	res.trace = &out.Trace
	return res
}

func (v *visit) unpaid(o *toolOffer, reason string, f *fault.Error, receipt *x402.SettleResponse) response {
	token, err := x402.NewToken(v.box.platform.Random)
	if err != nil {
		return v.fail(fault.New(fault.InternalError, err))
	}
	res := v.result(http.StatusPaymentRequired, mcp.Result{
		Text: o.required(reason, token), Structured: true, IsError: true, Meta: mcp.Meta{Payment: receipt},
	})
	res.fault = f
	return res
}

// paid answers a payment that was accepted, whatever came of it. Only a result of
// the tool has structured content: clients hold that of an error to the output
// schema, and look in it for a price.
func (v *visit) paid(out x402.Outcome) response {
	meta := mcp.Meta{Payment: out.Receipt, Replayed: out.Replayed, Owed: out.Owed}
	if out.Replayed && !out.Answered.IsZero() {
		meta.Age = new(int)
		*meta.Age = age(out.Answered, v.box.platform.Now())
	}
	failed := out.Status >= http.StatusBadRequest
	if out.Fault != nil {
		meta.RetryAfter = seconds(out.Fault)
	}
	res := v.result(out.Status, mcp.Result{Text: out.Body, Structured: !failed, IsError: failed, Meta: meta})
	res.fault, res.trace, res.replayed = out.Fault, &out.Trace, out.Replayed
	return res
}

// fail answers an error outside the payment flow.
func (v *visit) fail(f *fault.Error) response {
	standing := x402.Standing{Retryable: f.Info().Retry}
	if !v.call.Paid() {
		standing.Charged = uncharged()
	}
	res := v.result(f.Info().Status, mcp.Result{
		Text: v.errorJSON(f, standing), IsError: true, Meta: mcp.Meta{RetryAfter: seconds(f)},
	})
	res.fault = f
	return res
}

func (v *visit) result(status int, result mcp.Result) response {
	limits := v.meter.header()
	result.Meta.RateLimit, result.Meta.RateLimitPolicy = limits.Get(limit.HeaderLimit), limits.Get(limit.HeaderPolicy)
	result.Meta.RequestID = v.id
	res := rpc(v.counter().server.Answer(v.q, result))
	res.status = status
	res.call = &toolCall{operation: v.tool.op.entry.Slug, tool: v.tool.op.entry.Tool, receipted: result.Meta.Payment != nil}
	return res
}

// errorJSON is the text of an error: the body that HTTP has, in the words of this
// transport, and with what a header says there.
func (v *visit) errorJSON(f *fault.Error, s x402.Standing) []byte {
	return mustJSON(fault.Body{
		Error: fault.Detail{
			Code: f.Info().Code, Message: mcp.Words(f.Public()), Charged: s.Charged, Retryable: s.Retryable, RetryAfter: seconds(f),
		},
		RequestID: v.id, DocsURL: catalog.ErrorURL(v.box.platform.Origin(v.r), f.Info().Code),
	})
}

// seconds is the wait that an error asks for; 0 is none.
func seconds(f *fault.Error) int {
	if wait := f.Wait(); wait > 0 {
		return wholeSeconds(wait)
	}
	return 0
}

// arguments are a tool's arguments as the parameters of its operation. null is a
// parameter that is left out. A name that the operation does not have is refused,
// where HTTP ignores one that is no slip: a model that misspells one should hear of
// it before it pays.
func arguments(op catalog.Operation, args strictjson.Object) (url.Values, error) {
	values, names := url.Values{}, []string{}
	for _, p := range op.Params {
		names = append(names, p.Name)
		value := args[p.Name]
		text, ok := scalar(value)
		if !ok {
			return nil, fault.Newf(fault.InvalidArguments, nil, "The argument %s must be one value, not a list or an object.", p.Name)
		}
		if value != nil {
			values.Set(p.Name, text)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(args)) {
		if !slices.Contains(names, name) {
			return nil, fault.Newf(fault.InvalidArguments, nil, "There is no argument %s: %s takes %s.",
				printable.Quote(name, 40), op.Tool, strings.Join(names, ", "))
		}
	}
	return values, nil
}

// scalar is a JSON value as a query string has it.
func scalar(v any) (text string, ok bool) {
	switch x := v.(type) {
	case nil:
		return "", true
	case string:
		return x, true
	case json.Number:
		return whole(x), true
	case bool:
		return strconv.FormatBool(x), true
	}
	return "", false
}

// whole writes a number without a fraction as an integer: 443.0 and 4.43e2 are
// integers in JSON Schema.
func whole(n json.Number) string {
	if f, err := n.Float64(); err == nil && f == math.Trunc(f) && math.Abs(f) < 1<<53 {
		return strconv.FormatInt(int64(f), 10)
	}
	return n.String()
}
