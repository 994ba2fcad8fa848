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

// Response is the answer to a request, with what a log line and metrics say of it.
type Response struct {
	// Status 0 means that of Fault, whose JSON is then the body.
	Status int
	Header http.Header // never nil
	Body   []byte
	Fault  *fault.Error // nil for an answer
	Trace  *x402.Trace  // nil where no payment was read
	// Reason says why a 402 was answered without a Trace.
	Reason string
	// Receipt is the settlement that the answer names; nil without one.
	Receipt *x402.SettleResponse
	// Replayed says that the answer comes from the ledger.
	Replayed bool
	// Public says that caches may give the answer to other clients: nothing about the
	// client's own limit is in it.
	Public bool
	// Product and Tool are set where the answer is the result of a tool's call: then
	// Status is the one that HTTP would have, and the answer is 200.
	Product, Tool string

	isOffer bool  // of a 402, which asks for a payment
	charged *bool // whether a payment that was refused has moved money; nil is not known
	// finish is called when the response has been sent, where work for it goes on; else nil.
	finish func()
	// offers are the values that PAYMENT-REQUIRED can have, the longest first: the head gets
	// the first one that it has room for.
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

// retryAfter is how long a client should wait after an error, in seconds and rounded up, as
// Retry-After says it; 0 is no wait.
func retryAfter(f *fault.Error) int {
	return int((f.Wait() + time.Second - 1) / time.Second)
}

// WireStatus returns the HTTP status that is sent: 200 for the result of a tool's call.
func (r Response) WireStatus() int {
	if r.Tool != "" {
		return http.StatusOK
	}
	return r.Status
}

// hasLength reports whether the response to a method has a Content-Length.
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
