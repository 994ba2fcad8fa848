package origin

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"time"

	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// headPatience is how long Fetch waits for the answer to HEAD before it starts a GET as well.
// Some servers never answer HEAD.
const headPatience = 2 * time.Second

// outcome is the result of a request.
type outcome struct {
	answer     Answer
	err        error
	panicValue any // the value of the panic, or nil
}

// repanic returns o. If the request panicked, repanic panics with the same value in the
// goroutine of its caller, which can recover.
func (o outcome) repanic() outcome {
	if o.panicValue != nil {
		panic(o.panicValue)
	}
	return o
}

// isFinal reports whether this outcome of HEAD is final. If not, GET is needed, because the
// server refused HEAD (spec §3.2), closed the connection, or sent something that is not HTTP.
func (o outcome) isFinal() bool {
	if o.err != nil {
		return fault.From(o.err).Code != lookup.HTTPFailed
	}
	return !o.answer.refusesHead()
}

// refusesHead reports whether this is the answer of a server that refuses HEAD.
func (a Answer) refusesHead() bool {
	if a.Method != http.MethodHead {
		return false
	}
	return a.Status == http.StatusMethodNotAllowed || a.Status == http.StatusNotImplemented
}

// Fetch requests a path with HEAD, and with GET if the outcome of HEAD is not final. The path
// must be absolute and printable ASCII without spaces; it may have a query. If HEAD is not
// answered within headPatience, Fetch sends GET in parallel, and the first answer counts. An
// error of Fetch may have no code; Fault gives it one.
func (h *Host) Fetch(ctx context.Context, path string) (Answer, error) {
	if h.conn == nil {
		if err := h.connect(ctx); err != nil {
			return Answer{}, err
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	heads := h.startRequest(ctx, http.MethodHead, path)
	patience := time.NewTimer(headPatience)
	defer patience.Stop()
	select {
	case head := <-heads:
		if head.repanic().isFinal() {
			return head.answer, head.err
		}
		get := <-h.startRequest(ctx, http.MethodGet, path)
		return outcomeOfGet(head, get.repanic())
	case <-patience.C:
	}
	other := h.client.Host(h.target, nil, netip.Addr{})
	gets := other.startRequest(ctx, http.MethodGet, path)
	var head, get outcome
	select {
	case head = <-heads:
		if head.isFinal() {
			cancel()
		}
		get = <-gets
	case get = <-gets:
		if get.err == nil {
			cancel()
		}
		head = <-heads
	}
	head = head.repanic()
	get = get.repanic()
	if head.isFinal() && (head.err == nil || get.err != nil) {
		other.Close()
		return head.answer, head.err
	}
	h.replace(other)
	return outcomeOfGet(head, get)
}

// outcomeOfGet returns the outcome of GET. It is called when the outcome of HEAD does not
// count. If HEAD failed and no connection could be made for GET, the error is http_failed and
// mentions both failures.
func outcomeOfGet(head, get outcome) (Answer, error) {
	if head.err == nil || get.err == nil {
		return get.answer, get.err
	}
	code := fault.From(get.err).Code
	if code == lookup.ConnectFailed || code == lookup.HandshakeFailed {
		cause := fmt.Errorf("%w; then %w", head.err, get.err)
		return head.answer, lookup.Faultf(lookup.HTTPFailed, cause,
			"The HTTPS request with HEAD failed, and there was no connection for one with GET.")
	}
	return get.answer, get.err
}

// replace closes the connection of h and gives h the state of another Host for the same
// target.
func (h *Host) replace(other *Host) {
	h.Close()
	*h = *other
}

// startRequest makes one request in a goroutine. The caller must receive the outcome before it
// uses the Host again, and must call the method repanic of the outcome.
func (h *Host) startRequest(ctx context.Context, method, path string) <-chan outcome {
	ended := make(chan outcome, 1)
	go func() {
		var o outcome
		defer func() {
			o.panicValue = recover()
			ended <- o
		}()
		o.answer, o.err = h.request(ctx, method, path)
	}()
	return ended
}

// request makes one request. If the connection has been used before, the request may fail: the
// connection may be dead, or out of step because some servers send a body after HEAD. In that
// case request makes the request once more over a new connection.
func (h *Host) request(ctx context.Context, method, path string) (Answer, error) {
	if h.conn != nil && h.mayBeDead {
		if a, err := h.exchange(ctx, method, path); err == nil || ctx.Err() != nil {
			return a, err
		}
	}
	if h.conn == nil {
		if err := h.connect(ctx); err != nil {
			return Answer{}, err
		}
	}
	return h.exchange(ctx, method, path)
}
