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
	// maxOverdue is how many records a check reads at most.
	maxOverdue = 50
)

// overdueWatcher notices that no process calls Reconcile. It reads the ledger after a request
// has been answered, at most once in a quarter of an hour, and not if this process has called
// Reconcile in that time. Calls in other processes leave traces in the ledger: when Reconcile
// asks the chain about a payment in doubt, it writes the payment's record. Records that were
// written within the last quarter of an hour are therefore not counted. Without a node
// Reconcile writes nothing, so other processes cannot see that it was called.
type overdueWatcher struct {
	seller *Seller
	index  ledger.Index // nil if the ledger has no index; then nothing is checked

	mu        sync.Mutex
	nextCheck time.Time // when the next check may begin
}

// watchDoubts makes a seller check for overdue payments after its responses.
func watchDoubts(s *Seller) *overdueWatcher {
	o := &overdueWatcher{seller: s}
	o.index, _ = s.config.Ledger.(ledger.Index)
	o.postpone()
	if o.index == nil {
		return o
	}
	observe := s.shop.Front.Observe
	s.shop.Front.Observe = func(r *http.Request, name, id string, res storefront.Response, took time.Duration) {
		observe(r, name, id, res, took)
		o.checkIfDue(r.Context())
	}
	return o
}

// postpone puts off the next check, because Reconcile has run or the process has just
// started.
func (o *overdueWatcher) postpone() {
	now := o.seller.config.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.nextCheck = now.Add(overdueAfter)
}

// checkIfDue starts a check in the background if it is time for one. The response, which may
// not have been sent yet, does not wait for the check.
func (o *overdueWatcher) checkIfDue(ctx context.Context) {
	now := o.seller.config.Now()
	if !o.takeTurn(now) {
		return
	}
	// A cloud function may be frozen between two requests. The check then continues during the
	// next request.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), overdueAfter)
	go func() {
		defer cancel()
		o.logOverdue(ctx, now)
	}()
}

// takeTurn reports whether it is time for a check. If it is, takeTurn sets the time of the
// next check, so that only one of several concurrent requests starts a check.
func (o *overdueWatcher) takeTurn(now time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if now.Before(o.nextCheck) {
		return false
	}
	o.nextCheck = now.Add(overdueAfter)
	return true
}

// logOverdue logs an error with the number of overdue payments, if there are any.
func (o *overdueWatcher) logOverdue(ctx context.Context, now time.Time) {
	log := o.seller.config.Log
	page, err := o.index.List(ctx, ledger.ListOpen, now.Add(-overdueAfter), ledger.Place{}, maxOverdue)
	if err != nil {
		log.WarnContext(ctx, "the ledger could not be asked for payments in doubt", "error", err)
		return
	}
	count := 0
	for _, place := range page {
		if o.isOverdue(ctx, place.Key, now) {
			count++
		}
	}
	if count == 0 {
		return
	}
	log.ErrorContext(ctx, "payments are in doubt for longer than 15 minutes: call Seller.Reconcile every few minutes, in one process",
		"payments", count, "more", len(page) == maxOverdue)
}

// isOverdue reports whether a payment is overdue: it is in doubt, and its record was not
// written within the time overdueAfter. If the record cannot be read, isOverdue returns false
// and leaves the error to Reconcile.
func (o *overdueWatcher) isOverdue(ctx context.Context, key string, now time.Time) bool {
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
