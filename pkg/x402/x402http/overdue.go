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
	// overdueAfter is how long a payment may be in doubt before an error is logged. The error
	// says that Reconcile must be called. It is logged at most once in each period of this
	// length.
	overdueAfter = 15 * time.Minute
	// mostOverdue is how many records a check reads at most.
	mostOverdue = 50
)

// overdue notices that no process calls Reconcile. It reads the ledger after a request has
// been answered, at most once in a quarter of an hour, and not if this process has called
// Reconcile in that time. Calls in other processes leave traces in the ledger: when Reconcile
// asks the chain about a payment in doubt, it writes the payment's record. Records that were
// written within the last quarter of an hour are therefore not counted. Without a node
// Reconcile writes nothing, so other processes cannot see that it was called.
type overdue struct {
	seller *Seller
	index  ledger.Index // nil if the ledger has no index; then nothing is checked

	mu   sync.Mutex
	next time.Time // when the next check may begin
}

// watchDoubts makes a seller check for overdue payments after its responses.
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

// reconciled puts off the next check, because Reconcile has run or the process has just
// started.
func (o *overdue) reconciled() {
	now := o.seller.config.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.next = now.Add(overdueAfter)
}

// served starts a check in the background if it is time for one. The response, which may not
// have been sent yet, does not wait for the check.
func (o *overdue) served(ctx context.Context) {
	now := o.seller.config.Now()
	if !o.due(now) {
		return
	}
	// A cloud function may be frozen between two requests. The check then continues during the
	// next request.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), overdueAfter)
	go func() {
		defer cancel()
		o.look(ctx, now)
	}()
}

// due reports whether it is time for a check. If it is, due sets the time of the next check,
// so that only one of several concurrent requests starts a check.
func (o *overdue) due(now time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if now.Before(o.next) {
		return false
	}
	o.next = now.Add(overdueAfter)
	return true
}

// look logs an error with the number of overdue payments, if there are any.
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

// doubtful reports whether a payment is overdue: it is in doubt, and its record was not
// written within the time overdueAfter. If the record cannot be read, doubtful returns false
// and leaves the error to Reconcile.
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
