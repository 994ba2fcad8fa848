package x402http

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"time"
	"unicode/utf8"

	"github.com/hostfacts/hostfacts/pkg/mcp"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/limit"
)

// call is a call of a tool, which is an exchange over the Model Context Protocol.
type call struct {
	*mcp.Call
	Tool  Tool
	q     *mcp.Request
	r     *http.Request
	id    string
	box   *Toolbox
	meter *meter
}

// answer is the result of the call. What is wrong with the arguments of one without a
// payment comes before the price: a model can correct it, and need not pay for that.
func (c *call) answer(arrived time.Time) (res Response) {
	defer func() {
		if p := recover(); p != nil {
			res = c.fails(c.box.seller.config.Front.panicked(c.r.Context(), c.id, p))
		}
	}()
	if !c.Paid() {
		if _, err := c.job(); err != nil {
			return c.fails(fault.From(err))
		}
	}
	e := c.Tool.Endpoint
	return e.sell(c, c.r, e.product.At(c.get(nil)), arrived, c.meter)
}

// get is the GET that the call stands for.
func (c *call) get(values url.Values) *http.Request {
	at := &url.URL{Path: c.Tool.Path, RawQuery: values.Encode()}
	r := &http.Request{Method: http.MethodGet, URL: at, Host: c.r.Host, TLS: c.r.TLS, RemoteAddr: c.r.RemoteAddr, Header: http.Header{}, Body: http.NoBody}
	return r.WithContext(c.r.Context())
}

func (c *call) job() (x402.Job, error) {
	values, err := c.Tool.values(c.Arguments)
	if err != nil {
		return x402.Job{}, err
	}
	return c.Tool.Endpoint.product.Job(c.get(values))
}

// payment has the purchase key by whatever carries it; the header comes first.
func (c *call) payment(q *x402.Request) (paid bool, err error) {
	q.Payload, q.Keys = c.Payment, c.Keys
	if h := c.r.Header.Values(x402.HeaderKey); len(h) > 0 {
		q.Keys = h
	}
	return c.Paid(), c.BadPayment
}

func (c *call) asks(q *quote, token string, refused *fault.Error, receipt *x402.SettleResponse) (Response, error) {
	reason := ""
	if refused != nil {
		reason = mcp.Words(refused.Public())
	}
	res := c.result(http.StatusPaymentRequired, mcp.Result{
		Text: q.text(refused, reason, token), Structured: true, IsError: true, Meta: mcp.Meta{Payment: receipt},
	})
	res.Reason = "the call has no payment"
	return res, nil
}

// paid has structured content only for a result of the tool: clients hold that of an
// error to the output schema, and look in it for a price.
func (c *call) paid(out x402.Outcome) Response {
	meta := mcp.Meta{Payment: out.Receipt, Replayed: out.Replayed, Owed: out.Owed}
	if out.Replayed && !out.Answered.IsZero() {
		meta.Age = new(age(out.Answered, c.box.seller.config.Front.Now()))
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
	res := c.result(out.Status, result)
	res.Fault, res.Trace, res.Replayed = out.Fault, &out.Trace, out.Replayed
	return res
}

func (c *call) fails(f *fault.Error) Response {
	status := x402.PaymentStatus{Retryable: f.Info().Retry}
	if !c.Paid() {
		status.Charged = new(bool)
	}
	res := c.result(f.Info().Status, mcp.Result{
		Text: c.errorBody(f, status), IsError: true, Meta: mcp.Meta{RetryAfter: seconds(f)},
	})
	res.Fault = f
	return res
}

func (c *call) result(status int, result mcp.Result) Response {
	limits := c.meter.verdict.Headers()
	result.Meta.RateLimit, result.Meta.RateLimitPolicy = limits[limit.HeaderLimit], limits[limit.HeaderPolicy]
	result.Meta.RequestID = c.id
	res := rpc(c.box.server.Answer(c.q, result))
	res.Status = status
	res.Call = &Call{Product: c.Tool.Endpoint.product.Name, Tool: c.Tool.Name, Receipted: result.Meta.Payment != nil}
	return res
}

// errorBody is the body that HTTP has, in the words of this transport, and with what a
// header says there.
func (c *call) errorBody(f *fault.Error, s x402.PaymentStatus) []byte {
	return c.box.seller.config.Front.errorBody(c.r, c.id, f, s, true)
}
