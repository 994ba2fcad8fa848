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

// toolCall is the call of a tool on its way through the router to the endpoint.
type toolCall struct {
	tool   *Tool
	call   *mcp.Call
	id     string
	bad    error // what is wrong with the arguments
	taken  atomic.Bool
	result func(x *exchange, res Response) Response
	answer chan Response // has room for one
}

type callKey struct{}

// takeCall returns the call that a request stands for, to the first endpoint that asks; nil
// where there is none. What a handler asks for with the context of its request is not a call.
func takeCall(ctx context.Context) *toolCall {
	c, _ := ctx.Value(callKey{}).(*toolCall)
	if c == nil || !c.taken.CompareAndSwap(false, true) {
		return nil
	}
	return c
}

// errOtherEndpoint says that the router does not lead to the tool's endpoint.
var errOtherEndpoint = errors.New("the router leads the path of the tool to another endpoint: correct the Path or the Endpoint of the tool")

// serve answers the call as the request for an endpoint that it stands for, and returns when
// the work for it has ended. What is wrong with the arguments of one without a payment comes
// before the price: a model can correct it, and need not pay for that.
func (c *toolCall) serve(e *Endpoint, r *http.Request) {
	front := &e.shop.Front
	x := c.exchange(e, r)
	res := front.metered(r, x.meter, func(f *fault.Error) Response { return c.result(x, Failed(f)) }, func() Response {
		return c.result(x, front.guarded(r, c.id, func() Response {
			if e != c.tool.Endpoint {
				return Failed(fault.New(fault.InternalError, errOtherEndpoint))
			}
			if !c.call.Paid() {
				if err := x.refusal(); err != nil {
					return Failed(fault.From(err))
				}
			}
			return x.sell()
		}))
	})
	c.answer <- res
	if res.finish != nil {
		res.finish()
	}
}

func (c *toolCall) exchange(e *Endpoint, r *http.Request) *exchange {
	x := e.exchange(r, c.id, c.call.Paid())
	x.call = c.call
	x.bad = c.bad
	return x
}

// call answers the call of a tool by the request that it stands for.
func (b *Toolbox) call(r *http.Request, id string, q *mcp.Request, c *mcp.Call) Response {
	tool := b.tools[c.Tool]
	t := &toolCall{tool: tool, call: c, id: id, answer: make(chan Response, 1)}
	t.result = func(x *exchange, res Response) Response { return b.result(x, q, res) }
	target, body, bad := tool.Request(c.Arguments)
	router := b.server.Router
	if bad != nil { // there is no path to lead
		router = tool.Endpoint
	}
	t.bad = bad
	asked := b.asked(r, tool, target, body)
	asked = asked.WithContext(context.WithValue(unrouted{asked.Context()}, callKey{}, t))
	w := NewRecorder(r.Context())
	ended := make(chan error, 1)
	go func() { ended <- route(router, w, asked) }()
	select {
	case res := <-t.answer:
		leave := func() { b.left(asked, id, <-ended) }
		if res.finish == nil {
			leave()
			return res
		}
		res.finish = leave
		return res
	case err := <-ended:
		select {
		case res := <-t.answer:
			return res
		default:
			return b.unsold(t, asked, w, err)
		}
	}
}

// unrouted is the context of a request that no router has led yet. Where chi finds what it keeps
// of the message's route it goes on with that, as a router below another one does, and takes
// the call for a POST to a path below that of the message.
type unrouted struct{ context.Context }

// Value implements context.Context.
func (c unrouted) Value(key any) any {
	value := c.Context.Value(key)
	if _, routed := value.(interface {
		RoutePattern() string
		URLParam(name string) string
	}); routed {
		return nil
	}
	return value
}

// left logs a panic of a router on the way back from the endpoint, which has answered.
func (b *Toolbox) left(asked *http.Request, id string, err error) {
	if err != nil {
		b.shop.Front.Log.ErrorContext(asked.Context(), "panic after a tool has answered", "request_id", id, "error", err)
	}
}

// route has a router serve a request. Its error is a panic.
func route(router http.Handler, w http.ResponseWriter, r *http.Request) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the router panicked: %v", p)
		}
	}()
	router.ServeHTTP(w, r)
	return nil
}

// unsold answers a call that the router did not lead to an endpoint, by what the router has
// said, such as the 401 of a middleware.
func (b *Toolbox) unsold(t *toolCall, asked *http.Request, w *Recorder, err error) Response {
	front := &b.shop.Front
	x := t.exchange(t.tool.Endpoint, asked)
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
	case err != nil:
		res = Failed(fault.New(fault.InternalError, err))
	case w.Status < http.StatusBadRequest:
		res = Failed(fault.New(fault.InternalError, fmt.Errorf("the router does not lead %s to the endpoint of the tool %s", asked.URL.Path, t.tool.Name)))
	}
	return front.metered(asked, x.meter, func(f *fault.Error) Response { return t.result(x, Failed(f)) }, func() Response { return t.result(x, res) })
}

// ofTheMessage are headers of the message that a call came in, which say nothing about the
// request that it stands for.
func ofTheMessage() []string {
	return []string{
		"Accept", "Accept-Encoding", "Connection", "Content-Encoding", "Content-Length", "Content-Type", "Expect", "Last-Event-Id", "Te", "Trailer",
		"Transfer-Encoding", "Upgrade", "Mcp-Session-Id", mcp.HeaderVersion, mcp.HeaderMethod, mcp.HeaderName, x402.HeaderSignature,
	}
}

// asked is the request that a call stands for.
func (b *Toolbox) asked(r *http.Request, t *Tool, target *url.URL, body []byte) *http.Request {
	asked := &http.Request{
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
	asked = asked.WithContext(r.Context())
	for _, name := range ofTheMessage() {
		asked.Header.Del(name)
	}
	if len(body) > 0 {
		asked.Body = io.NopCloser(bytes.NewReader(body))
		asked.Header.Set("Content-Type", "application/json")
	}
	return asked
}

// result is a response to the request as the result of the call. Only a result of the tool
// and an offer have structured content: clients would check that of an error against the
// output schema, and look in it for a price.
func (b *Toolbox) result(x *exchange, q *mcp.Request, res Response) Response {
	if res.Status == 0 {
		var charged *bool
		if !x.call.Paid() {
			charged = new(bool)
		}
		b.shop.Front.fail(&res, x.r, x.id, charged, true)
	}
	failed := res.Status >= http.StatusBadRequest
	object := bytes.HasPrefix(res.Body, []byte("{")) && json.Valid(res.Body)
	answer := rpc(b.server.Answer(q, mcp.Result{
		Body:       res.Body,
		MediaType:  res.Header.Get("Content-Type"),
		URI:        x.shop.Origin(x.r) + x.r.URL.RequestURI(),
		IsError:    failed,
		Meta:       b.meta(x, res),
		Structured: res.asks || !failed && object,
	}))
	res.Header = answer.Header
	res.Body = answer.Body
	res.Product = x.product.Route(x.r)
	res.Tool = x.call.Tool
	return res
}

// meta is what HTTP says in headers.
func (b *Toolbox) meta(x *exchange, res Response) map[string]any {
	own := b.server.Name + "/"
	meta := map[string]any{own + "request-id": x.id}
	if res.Receipt != nil {
		meta[mcp.KeyResponse] = res.Receipt
	}
	if res.Replayed {
		meta[own+"replayed"] = true
	}
	if age := res.Header.Get(x402.HeaderAge); age != "" {
		meta[own+"age"] = json.Number(age)
	}
	if owed := res.Header.Get(x402.HeaderOwed); owed != "" {
		meta[own+"owed"] = strings.Split(owed, ", ")
	}
	if res.charged != nil { // the body is the offer, which has no place for it
		meta[own+"charged"] = *res.charged
	}
	if res.Fault != nil && !res.asks && seconds(res.Fault) > 0 {
		meta[own+"retry-after"] = seconds(res.Fault)
	}
	policy, state := x.meter.Headers()
	if state != "" {
		meta[own+"rate-limit"] = state
		meta[own+"rate-limit-policy"] = policy
	}
	return meta
}
