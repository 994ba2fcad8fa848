// Package storefront answers the requests for everything that this module sells, over HTTP and
// as tools of the Model Context Protocol. Every request gets a log line, counts against the
// same limit, and is answered in the same form. Package x402http uses this package to sell
// handlers, and package service uses it to sell the operations. Programs outside this module
// should not use it: it may change at any time, and a seller needs only x402http.
package storefront

import (
	"io"
	"net/http"

	"github.com/hostfacts/hostfacts/pkg/mcp"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/limit"
	"github.com/hostfacts/hostfacts/pkg/x402/reconcile"
)

// Shop has the settings that are common to everything that one program sells. Rate, Evidence,
// Receipts and Running may be nil.
type Shop struct {
	Front    Front // Fill has been called on it
	Ledger   *ledger.Ledger
	Payees   *ledger.Payees // the accounts that receive payments, as the ledger lists them
	Settler  x402.Settler
	Evidence x402.Evidence
	Receipts x402.Receipts
	Rate     *limit.Rate
	Limits   limit.Store
	Random   io.Reader // the source of retry tokens
	// Origin returns the public origin of a request.
	Origin func(*http.Request) string
	// Running is a semaphore. Its capacity is the number of handlers that may run in this
	// process at once; nil means no limit.
	Running chan struct{}
}

// Service has the settings of a seller that only the programs of this module may set.
type Service struct {
	// Front replaces the Front that is made from the seller's settings.
	Front Front
	// Rate replaces the limit that is made from the seller's settings.
	Rate *limit.Rate
	// Describe replaces the seller's description of the tools, and Compress compresses the
	// description.
	Describe func(origin string) mcp.Description
	Compress func(*http.Request, Response) Response
}

// Special is a handler of this module that is sold in a different way from the handlers of
// other sellers.
type Special interface {
	http.Handler
	Special() Overrides
}

// Overrides replace the usual settings of a handler. A field with its zero value changes
// nothing.
type Overrides struct {
	// Endpoint is the name of the endpoint in the ledger.
	Endpoint string
	// Whole means that the normalized name of a request is the whole name of its purchase,
	// without the method and the origin.
	Whole bool
	// Punctual means that the handler returns when its context ends. The handler is then
	// awaited, and the answer that it gives at that time counts.
	Punctual bool
	// Product overrides these fields of the endpoint's Product: Name, Cap, ChallengeBody and
	// Page. If Product.Offer is set, it overrides Offer and At as well.
	Product Product
	// Job overrides the field NoImplicitRetry of the handler's jobs. If Job.Budget is set, it
	// overrides Budget and Timeout as well.
	Job x402.Job
}

// Reconciler returns a copy of c whose errors have the same form as the errors for requests.
// Their request_id is "reconcile". They have no docs_url, because the origin may be known only
// from a request.
func Reconciler(c reconcile.Reconciler) *reconcile.Reconciler {
	c.Error = func(f *fault.Error, s x402.PaymentStatus) []byte {
		front := Front{}
		front.Fill()
		return front.errorBody(nil, "reconcile", f, s, false)
	}
	return &c
}
