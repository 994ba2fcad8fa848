package x402http

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/storefront"
)

const (
	// overdueAfter is how long a payment may be in doubt before somebody has to hear that
	// nobody runs Reconcile, and how often they hear it.
	overdueAfter = 15 * time.Minute
	// mostOverdue bounds how many records are read for that.
	mostOverdue = 50
)

// overdue notices that nobody runs Reconcile. It looks at the ledger when a request has been
// answered, at most every quarter of an hour, and not while this process runs Reconcile. Runs
// of other processes show in the ledger: a run writes each record in doubt that it asks the
// chain about, and what was written within the quarter of an hour is not counted. Without a
// node a run writes nothing, and is known only to the process that runs it.
type overdue struct {
	seller *Seller
	index  ledger.Index // nil where the ledger has none, and nothing is looked at

	mu   sync.Mutex
	next time.Time // when to look
}

// watchDoubts has a seller look for overdue doubts after its responses.
func watchDoubts(s *Seller) *overdue {
	o := &overdue{seller: s}
	o.index, _ = s.config.Ledger.(ledger.Index)
	o.reconciled()
	if o.index == nil {
		return o
	}
	observe := s.shop.Front.Observe
	s.shop.Front.Observe = func(r *http.Request, name, id string, res storefront.Response, took time.Duration) {
		observe(r, name, id, res, took)
		o.served(r.Context())
	}
	return o
}

// reconciled puts the next look off: Reconcile has run, or the process has just begun.
func (o *overdue) reconciled() {
	now := o.seller.config.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.next = now.Add(overdueAfter)
}

// served looks when it is time. The response may not have been sent yet, and does not wait for
// the look.
func (o *overdue) served(ctx context.Context) {
	now := o.seller.config.Now()
	if !o.due(now) {
		return
	}
	// A function that is frozen between two requests goes on with the next one.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), overdueAfter)
	go func() {
		defer cancel()
		o.look(ctx, now)
	}()
}

// due reports to one request that it is time to look.
func (o *overdue) due(now time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if now.Before(o.next) {
		return false
	}
	o.next = now.Add(overdueAfter)
	return true
}

// look logs how many payments are overdue at a time.
func (o *overdue) look(ctx context.Context, now time.Time) {
	log := o.seller.config.Log
	page, err := o.index.List(ctx, ledger.ListOpen, now.Add(-overdueAfter), ledger.Place{}, mostOverdue)
	if err != nil {
		log.WarnContext(ctx, "the ledger could not be asked for payments in doubt", "error", err)
		return
	}
	count := 0
	for _, place := range page {
		if o.doubtful(ctx, place.Key, now) {
			count++
		}
	}
	if count == 0 {
		return
	}
	log.ErrorContext(ctx, "payments are in doubt for longer than 15 minutes: call Seller.Reconcile every few minutes, in one process",
		"payments", count, "more", len(page) == mostOverdue)
}

// doubtful reports whether a record is one that Reconcile would have asked the chain about, and
// was not written lately. One that cannot be loaded is a matter for Reconcile.
func (o *overdue) doubtful(ctx context.Context, key string, now time.Time) bool {
	books := o.seller.shop.Ledger
	r, err := books.Fetch(ctx, key)
	if err != nil || r == nil {
		return false
	}
	if !books.Sleeping(*r) || r.UpdatedAt.After(now.Add(-overdueAfter)) {
		return false
	}
	sending, err := books.Sending(ctx, *r)
	return err == nil && sending == ledger.MayBeSent
}
