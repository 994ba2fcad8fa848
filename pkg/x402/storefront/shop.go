// Package storefront is how everything that this module sells is answered: over HTTP and as
// tools, with one log line, one limit and one form of every response. Package x402http sells
// handlers with it, and package service the operations. It is for programs of this module
// alone: it may change at any time, and a seller needs nothing but x402http.
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
	Payees   *ledger.Payees // who is paid, as the ledger is told
	Settler  x402.Settler
	Evidence x402.Evidence
	Receipts x402.Receipts
	Rate     *limit.Rate
	Limits   limit.Store
	Random   io.Reader // where retry tokens come from
	// Origin returns the public origin of a request.
	Origin func(*http.Request) string
	// Running has room for as many handlers as may run in this process; nil for any number.
	Running chan struct{}
}

// Service is what a program of this module sets beside what every seller can set.
type Service struct {
	// Front takes the place of the one that is made of a seller's settings.
	Front Front
	// Rate takes the place of the seller's own count of requests.
	Rate *limit.Rate
	// Describe describes the tools in place of what a seller says of them, and Compress
	// compresses that.
	Describe func(origin string) mcp.Description
	Compress func(*http.Request, Response) Response
}

// Special is what a handler of this module can say of itself when it is sold: how it differs
// from any other.
type Special interface {
	http.Handler
	Special() Terms
}

// Terms are how a handler is sold that differs from any other. A zero value is what every
// handler has.
type Terms struct {
	// Endpoint names where the handler is sold in the ledger.
	Endpoint string
	// Whole says that the handler's normalised name is the whole name of a purchase.
	Whole bool
	// Punctual says that the handler ends when its context does, so that it is waited for, and
	// that what it says then counts.
	Punctual bool
	// Product has what its endpoint differs in: Name, Cap, Says and Page, and Offer with At.
	Product Product
	// Job has what its runs differ in: Budget with Timeout, and NoImplicitRetry.
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
