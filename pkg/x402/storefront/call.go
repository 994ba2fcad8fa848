package storefront

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"

	"github.com/hostfacts/hostfacts/pkg/mcp"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// toolCall is a tool call on its way through the router to the tool's endpoint.
type toolCall struct {
	box     *Toolbox
	tool    *Tool
	call    *mcp.Call
	message *mcp.Request // the message that contains the call
	id      string
	argsErr error // what is wrong with the arguments; nil if they are right
	isTaken atomic.Bool
	answer  chan Response // gets the response to the call; its buffer has room for one
}

type callKey struct{}

// takeCall returns the tool call for which a request was made, or nil if the request was not
// made for one. Only the first endpoint gets the call. If a handler sends another request with
// the same context, takeCall returns nil for that request.
func takeCall(ctx context.Context) *toolCall {
	c, _ := ctx.Value(callKey{}).(*toolCall)
	if c == nil || !c.isTaken.CompareAndSwap(false, true) {
		return nil
	}
	return c
}

// errOtherEndpoint is the error for a router that leads the path of a tool to another
// endpoint.
var errOtherEndpoint = errors.New("the router leads the path of the tool to another endpoint: correct the Path or the Endpoint of the tool")

// serve answers the call through the endpoint e, as if it were a request over HTTP. It returns
// when all work for the call has ended.
func (c *toolCall) serve(e *Endpoint, r *http.Request) {
	front := &e.shop.Front
	x := c.exchange(e, r)
	limited := func(overLimit *fault.Error) Response { return c.result(x, Failed(overLimit)) }
	res := front.serveMetered(r, x.meter, limited, func() Response {
		sold := front.recoverPanic(r, c.id, func() Response { return c.sell(x) })
		return c.result(x, sold)
	})
	c.answer <- res
	if res.finish != nil {
		res.finish()
	}
}

// sell answers the call. If the call has no payment and its arguments are wrong, the client
// learns this before it learns the price: a model can correct the arguments without paying.
func (c *toolCall) sell(x *exchange) Response {
	if x.Endpoint != c.tool.Endpoint {
		return Failed(fault.New(fault.InternalError, errOtherEndpoint))
	}
	if !c.call.Paid() {
		if err := x.refusal(); err != nil {
			return Failed(fault.From(err))
		}
	}
	return x.sell()
}

// exchange returns the exchange between the client of the call and an endpoint.
func (c *toolCall) exchange(e *Endpoint, r *http.Request) *exchange {
	x := e.exchange(r, c.id, c.call.Paid())
	x.call = c.call
	x.argsErr = c.argsErr
	return x
}

// result returns the call's result, made from the response to the HTTP request.
func (c *toolCall) result(x *exchange, res Response) Response {
	return c.box.result(x, c.message, res)
}

// call answers a tool call. It makes the HTTP request that the call stands for, and sends this
// request through the router.
func (b *Toolbox) call(r *http.Request, id string, message *mcp.Request, call *mcp.Call) Response {
	tool := b.tools[call.Tool]
	target, body, bad := tool.Request(call.Arguments)
	router := b.server.Router
	if bad != nil { // a call with wrong arguments has no path that the router could use
		router = tool.Endpoint
	}
	c := &toolCall{
		box:     b,
		tool:    tool,
		call:    call,
		message: message,
		id:      id,
		argsErr: bad,
		answer:  make(chan Response, 1),
	}
	request := b.requestOf(r, tool, target, body)
	request = request.WithContext(context.WithValue(unroutedContext{request.Context()}, callKey{}, c))
	w := NewRecorder(r.Context())
	returned := make(chan error, 1)
	go func() { returned <- route(router, w, request) }()

	var panicked error // set if the router panicked
	select {
	case res := <-c.answer:
		awaitRouter := func() { b.logPanic(request, id, <-returned) }
		if res.finish == nil {
			awaitRouter()
			return res
		}
		res.finish = awaitRouter
		return res
	case panicked = <-returned:
	}
	select {
	case res := <-c.answer: // the endpoint has answered, and the router has returned
		b.logPanic(request, id, panicked)
		res.finish = nil // toolCall.serve has called it
		return res
	default:
		return b.answerUnrouted(c, request, w, panicked)
	}
}

// unroutedContext is the context of an HTTP request that is made for a call and has not yet
// passed through a router. If the message came through the router chi, the context has the
// message's route. unroutedContext hides this route. Otherwise chi would act as a router below
// another one, and take the request for a POST to a path below the path of the message.
type unroutedContext struct{ context.Context }

// Value implements context.Context.
func (c unroutedContext) Value(key any) any {
	type chiRoute interface {
		RoutePattern() string
		URLParam(name string) string
	}
	value := c.Context.Value(key)
	if _, routed := value.(chiRoute); routed {
		return nil
	}
	return value
}

// logPanic logs the panic of a router, if it panicked after the endpoint had answered.
func (b *Toolbox) logPanic(request *http.Request, id string, err error) {
	if err != nil {
		b.shop.Front.Log.ErrorContext(request.Context(), "panic after a tool has answered", "request_id", id, "error", err)
	}
}

// route passes a request to a router. It returns an error if the router panics.
func route(router http.Handler, w http.ResponseWriter, r *http.Request) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the router panicked: %v", p)
		}
	}()
	router.ServeHTTP(w, r)
	return nil
}

// answerUnrouted answers a call whose request the router did not lead to an endpoint. The
// client gets the answer of the router, such as the 401 of a middleware.
func (b *Toolbox) answerUnrouted(c *toolCall, request *http.Request, w *Recorder, panicked error) Response {
	front := &b.shop.Front
	x := c.exchange(c.tool.Endpoint, request)
	res := Response{
		Status: w.Status,
		Header: w.header,
		Body:   w.Body.Bytes(),
		Reason: "the router has answered",
	}
	if len(res.Body) == 0 {
		res.Body = []byte(http.StatusText(w.Status))
	}
	switch {
	case panicked != nil:
		res = Failed(fault.New(fault.InternalError, panicked))
	case w.Status < http.StatusBadRequest:
		lost := fmt.Errorf("the router does not lead %s to the endpoint of the tool %s", request.URL.Path, c.tool.Name)
		res = Failed(fault.New(fault.InternalError, lost))
	}
	limited := func(overLimit *fault.Error) Response { return c.result(x, Failed(overLimit)) }
	return front.serveMetered(request, x.meter, limited, func() Response { return c.result(x, res) })
}

// messageHeaders returns the headers that describe the message of a call. They do not belong
// on the HTTP request that the call stands for.
func messageHeaders() []string {
	return []string{
		"Accept",
		"Accept-Encoding",
		"Connection",
		"Content-Encoding",
		"Content-Length",
		"Content-Type",
		"Expect",
		"Last-Event-Id",
		"Te",
		"Trailer",
		"Transfer-Encoding",
		"Upgrade",
		"Mcp-Session-Id",
		mcp.HeaderVersion,
		mcp.HeaderMethod,
		mcp.HeaderName,
		x402.HeaderSignature,
	}
}

// requestOf returns the HTTP request that a call stands for.
func (b *Toolbox) requestOf(r *http.Request, t *Tool, target *url.URL, body []byte) *http.Request {
	request := &http.Request{
		Method:        t.Endpoint.product.Method,
		URL:           target,
		RequestURI:    target.RequestURI(),
		Host:          r.Host,
		RemoteAddr:    r.RemoteAddr,
		TLS:           r.TLS,
		Proto:         r.Proto,
		ProtoMajor:    r.ProtoMajor,
		ProtoMinor:    r.ProtoMinor,
		Header:        r.Header.Clone(),
		Body:          http.NoBody,
		ContentLength: int64(len(body)),
	}
	request = request.WithContext(r.Context())
	for _, name := range messageHeaders() {
		request.Header.Del(name)
	}
	if len(body) > 0 {
		request.Body = io.NopCloser(bytes.NewReader(body))
		request.Header.Set("Content-Type", "application/json")
	}
	return request
}

// result returns the result of a call, made from the response to the HTTP request. Only
// successful results and offers have structured content. Clients would check the structured
// content of an error against the output schema, and look in it for a price.
func (b *Toolbox) result(x *exchange, message *mcp.Request, res Response) Response {
	if res.Status == 0 {
		var charged *bool
		if !x.call.Paid() {
			charged = new(false)
		}
		b.shop.Front.renderFault(&res, x.r, x.id, charged, true)
	}
	failed := res.Status >= http.StatusBadRequest
	isObject := bytes.HasPrefix(res.Body, []byte("{")) && json.Valid(res.Body)
	isResult := isObject && !failed
	answer := responseOf(b.server.Answer(message, mcp.Result{
		Body:       res.Body,
		MediaType:  res.Header.Get("Content-Type"),
		URI:        x.shop.Origin(x.r) + x.r.URL.RequestURI(),
		IsError:    failed,
		Meta:       b.meta(x, res),
		Structured: res.isOffer || isResult,
	}))
	res.Header = answer.Header
	res.Body = answer.Body
	res.Product = x.product.Route(x.r)
	res.Tool = x.call.Tool
	return res
}

// meta returns the _meta of a result. The _meta has the information that a response over HTTP
// has in headers.
func (b *Toolbox) meta(x *exchange, res Response) map[string]any {
	prefix := b.server.Name + "/"
	meta := map[string]any{prefix + "request-id": x.id}
	if res.Receipt != nil {
		meta[mcp.KeyResponse] = res.Receipt
	}
	if res.Replayed {
		meta[prefix+"replayed"] = true
	}
	if age := res.Header.Get(x402.HeaderAge); age != "" {
		meta[prefix+"age"] = json.Number(age)
	}
	if owed := res.Header.Get(x402.HeaderOwed); owed != "" {
		meta[prefix+"owed"] = strings.Split(owed, ", ")
	}
	if res.charged != nil { // the body is an offer, which cannot say whether money has moved
		meta[prefix+"charged"] = *res.charged
	}
	if res.Fault != nil && !res.isOffer && retryAfter(res.Fault) > 0 {
		meta[prefix+"retry-after"] = retryAfter(res.Fault)
	}
	policy, state := x.meter.Headers()
	if state != "" {
		meta[prefix+"rate-limit"] = state
		meta[prefix+"rate-limit-policy"] = policy
	}
	return meta
}
