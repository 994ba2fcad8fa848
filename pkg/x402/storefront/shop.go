// Package storefront answers the requests for everything that this module sells, over HTTP
// and as tools of the Model Context Protocol. Every request gets a log line, counts against one
// limit, and is answered in one form. Package x402http sells handlers with it, and package
// service the operations. It is for the programs of this module alone: it may change at any
// time, and a seller needs only x402http.
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

// Shop is what everything that one program sells has in common. Rate, Evidence, Receipts and
// Running may be nil.
type Shop struct {
	Front    Front // filled
	Ledger   *ledger.Ledger
	Payees   *ledger.Payees // records in the ledger who is paid
	Settler  x402.Settler
	Evidence x402.Evidence
	Receipts x402.Receipts
	Rate     *limit.Rate
	Limits   limit.Store
	Random   io.Reader // where retry tokens come from
	// Origin returns the public origin of a request.
	Origin func(*http.Request) string
	// Running is a semaphore: it has room for as many handlers as may run in this process; nil
	// for any number.
	Running chan struct{}
}

// Service is what a program of this module sets beside what every seller can set.
type Service struct {
	// Front takes the place of the one that is made of a seller's settings.
	Front Front
	// Rate takes the place of the seller's own count of requests.
	Rate *limit.Rate
	// Describe takes the place of the seller's description of the tools, and Compress
	// compresses it.
	Describe func(origin string) mcp.Description
	Compress func(*http.Request, Response) Response
}

// Special is a handler of this module that is sold in another way than the handlers of other
// sellers.
type Special interface {
	http.Handler
	Special() Overrides
}

// Overrides take the place of what holds for every handler that is sold. A zero value leaves
// that as it is.
type Overrides struct {
	// Endpoint names where the handler is sold in the ledger.
	Endpoint string
	// Whole says that the handler's normalised name is the whole name of a purchase.
	Whole bool
	// Punctual says that the handler ends when its context does, so that it is waited for, and
	// that the answer which it gives then counts.
	Punctual bool
	// Product overrides parts of its endpoint's product: Name, Cap, ChallengeBody and Page, and
	// Offer with At.
	Product Product
	// Job overrides parts of its jobs: Budget with Timeout, and NoImplicitRetry.
	Job x402.Job
}

// Reconciler returns a copy of c that renders errors as requests do. Their request_id is
// "reconcile", and docs_url is left out, because the origin may be known from requests only.
func Reconciler(c reconcile.Reconciler) *reconcile.Reconciler {
	c.Error = func(f *fault.Error, s x402.PaymentStatus) []byte {
		front := Front{}
		front.Fill()
		return front.errorBody(nil, "reconcile", f, s, false)
	}
	return &c
}
