package storefront

import (
	"net/http"
	"strconv"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// TypeJSON is the Content-Type of JSON answers.
const TypeJSON = "application/json; charset=utf-8"

// Response is the response to a request, with details for logs and metrics.
type Response struct {
	// Status is the HTTP status. 0 means that status and body are made from Fault.
	Status int
	Header http.Header // never nil
	Body   []byte
	Fault  *fault.Error // nil if the request was answered
	Trace  *x402.Trace  // nil if no payment was read
	// Reason says why the client got this response, if there is no Trace.
	Reason string
	// Receipt is the settlement that the response tells the client about; nil means none.
	Receipt *x402.SettleResponse
	// Replayed means that the answer comes from the ledger.
	Replayed bool
	// Public means that caches may give the answer to other clients. Such an answer says
	// nothing about the limit of one client.
	Public bool
	// Product and Tool are set if the response is the result of a tool call. Status is then
	// the status that the same request would get over HTTP, although 200 is sent.
	Product, Tool string

	isOffer bool  // whether this response is a 402 with an offer
	charged *bool // whether a payment that was refused has moved money; nil means unknown
	// finish is called after the response has been sent, and waits for work that continues. It
	// is nil if there is no such work.
	finish func()
	// offers are the possible values of PAYMENT-REQUIRED, the longest first. The first one that
	// fits into the head is sent.
	offers []string
}

// Failed returns the response for an error.
func Failed(f *fault.Error) Response {
	h := http.Header{"Content-Type": {TypeJSON}, "Cache-Control": {"no-store"}}
	if wait := retryAfter(f); wait > 0 {
		h.Set(fault.HeaderRetryAfter, strconv.Itoa(wait))
	}
	return Response{Header: h, Fault: f}
}

// retryAfter returns the value of the header Retry-After for an error: how many seconds a
// client should wait, rounded up. 0 means that the client need not wait.
func retryAfter(f *fault.Error) int {
	return int((f.Wait() + time.Second - 1) / time.Second)
}

// WireStatus returns the HTTP status that is sent. It is always 200 for the result of a tool's
// call.
func (r Response) WireStatus() int {
	if r.Tool != "" {
		return http.StatusOK
	}
	return r.Status
}

// hasLength reports whether the response to a request with the given method has the header
// Content-Length.
func (r Response) hasLength(method string) bool {
	switch {
	case method == http.MethodHead:
		return false
	case r.WireStatus() == http.StatusNoContent, r.WireStatus() == http.StatusNotModified:
		return false
	default:
		return true
	}
}
