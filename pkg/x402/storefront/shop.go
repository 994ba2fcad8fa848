// Package storefront answers the requests for everything that this module sells, over HTTP
// and as tools of the Model Context Protocol. Every request gets a log line, counts against one
// limit, and is answered in one form. Package x402http uses it to sell handlers, and package
// service to sell the operations. Only the programs of this module should use it: it may change
// at any time, and a seller needs only x402http.
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
	Front    Front // Fill was called
	Ledger   *ledger.Ledger
	Payees   *ledger.Payees // records in the ledger which accounts are paid
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

// Service has the settings that only the programs of this module may set.
type Service struct {
	// Front replaces the Front that is made from a seller's settings.
	Front Front
	// Rate replaces the limit that is made from the seller's settings.
	Rate *limit.Rate
	// Describe replaces the seller's description of the tools, and Compress compresses the
	// description.
	Describe func(origin string) mcp.Description
	Compress func(*http.Request, Response) Response
}

// Special is a handler of this module that is not sold in the same way as the handlers of
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
	// Whole means that the normalized name of a request is the whole name of its purchase.
	Whole bool
	// Punctual means that the handler ends when its context ends. The package then waits for
	// the handler, and the answer that the handler gives at that time counts.
	Punctual bool
	// Product overrides these fields of the endpoint's product: Name, Cap, ChallengeBody and
	// Page. If it has Offer, it overrides Offer and At.
	Product Product
	// Job overrides these fields of the handler's jobs: NoImplicitRetry and, if it has Budget,
	// Budget and Timeout.
	Job x402.Job
}

// Reconciler returns a copy of c that renders errors as they are rendered for requests. Their
// request_id is "reconcile". They have no docs_url, because the origin may be known from
// requests only.
func Reconciler(c reconcile.Reconciler) *reconcile.Reconciler {
	c.Error = func(f *fault.Error, s x402.PaymentStatus) []byte {
		front := Front{}
		front.Fill()
		return front.errorBody(nil, "reconcile", f, s, false)
	}
	return &c
}
