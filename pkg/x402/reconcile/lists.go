package reconcile

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// pageOfPlaces is how many places of a list are read by one call of the index and kept in
// memory.
const pageOfPlaces = 1000

// Outstanding walks through the index to its end. It calls see for every outstanding record
// that no attempt holds. Three kinds of records are outstanding: a payment in doubt
// (Payment.InDoubt) that may have been sent, money without a known request (Payment.Unasked),
// and a payment that is paid and not answered. A payment whose answer is the target's silence
// (ledger.StandingSilent) is not outstanding.
//
// missed is the number of records that could not be read. A corrupt record is counted in
// missed and logged, and is not an error. Outstanding returns an error if the index failed, if
// the ledger failed for some record, or if ctx ended before the index was read to its end.
func (c *Reconciler) Outstanding(ctx context.Context, see func(ledger.Payment)) (missed int, err error) {
	open, owed := c.walk(ctx, visitFuncs{
		open: func(r ledger.Payment) error {
			if !c.Ledger.Sleeping(r) {
				return nil
			}
			sending, err := c.Ledger.Sending(ctx, r)
			if sending == ledger.MayBeSent {
				see(r)
			}
			return err
		},
		between: func() {},
		owed: func(r ledger.Payment) error {
			if ledger.Stand(&r, ledger.View{Now: c.Now()}) != ledger.StandingSilent {
				see(r)
			}
			return nil
		},
	})
	missed = open.failed + open.notReached + owed.failed + owed.notReached
	err = errors.Join(open.err, owed.err)
	whole := open.isWhole && owed.isWhole
	if err == nil && !whole {
		err = fmt.Errorf("the index was not read to its end: %w", ctx.Err())
	}
	return missed, err
}

// Unproven returns the number of payments that a facilitator refused while the seller had no
// node to confirm the refusal. Such a payment may have moved money nevertheless. Unproven
// calls see for the payments that changed last, the oldest change first. maxSeen is the
// largest number of these calls. The error comes from the index or the ledger, or says that
// ctx ended.
func (c *Reconciler) Unproven(ctx context.Context, maxSeen int, see func(ledger.Payment)) (n int, err error) {
	var keys []string
	var after ledger.Place
	for {
		page, err := c.Index.List(ctx, ledger.ListUnproven, time.Time{}, after, pageOfPlaces)
		if err != nil {
			return n, fmt.Errorf("list %s records: %w", ledger.ListUnproven, err)
		}
		for _, place := range page {
			keys = append(keys, place.Key)
			after = place
		}
		n += len(page)
		older := max(0, len(keys)-maxSeen)
		keys = keys[older:]
		if len(page) < pageOfPlaces {
			break
		}
	}
	missed, err := c.Each(ctx, keys, see)
	if err == nil && missed > 0 {
		err = fmt.Errorf("%d refused payments could not be read: %w", missed, ctx.Err())
	}
	return n, err
}

// Each fetches the records with the given keys, and calls see for each record that exists.
// missed is the number of records that could not be read, or that were not reached before ctx
// ended. The error is the first one that the ledger has returned. A corrupt record is counted
// in missed and logged, and is not an error.
func (c *Reconciler) Each(ctx context.Context, keys []string, see func(ledger.Payment)) (missed int, err error) {
	var v visitCounts
	seeOne := func(r ledger.Payment) error {
		see(r)
		return nil
	}
	for _, key := range keys {
		c.visit(ctx, key, &v, seeOne)
	}
	return v.failed + v.notReached, v.err
}

// visitFuncs holds the functions that a walk through the index calls.
type visitFuncs struct {
	open    func(ledger.Payment) error // called for each record of ledger.ListOpen
	between func()                     // called after ListOpen and before ledger.ListOwed
	owed    func(ledger.Payment) error // called once for each record of either list, if its answer is owed and no attempt holds it
}

// walk goes through two lists of the index, ledger.ListOpen and then ledger.ListOwed, each
// from the record that was written longest ago. It leaves out records of ListOpen that are
// written after the walk began. A lookup that ends during the walk moves its record from
// ListOpen to ListOwed. ListOwed is read last, so that the walk does not miss this record.
func (c *Reconciler) walk(ctx context.Context, do visitFuncs) (first, second visitCounts) {
	begun := c.Now()
	seen := map[string]bool{}
	once := func(r ledger.Payment) error {
		if !c.Ledger.Unclaimed(r) || seen[r.Key] {
			return nil
		}
		seen[r.Key] = true
		return do.owed(r)
	}
	first = c.list(ctx, ledger.ListOpen, begun, func(r ledger.Payment) error {
		if err := once(r); err != nil {
			return err
		}
		return do.open(r)
	})
	do.between()
	return first, c.list(ctx, ledger.ListOwed, time.Time{}, once)
}

// visitCounts counts the records that were visited, by result.
type visitCounts struct {
	gone       int   // records that do not exist any more
	failed     int   // records that could not be read, or for which the function see returned an error
	notReached int   // records that were not read before ctx ended
	isWhole    bool  // whether the list was read to its end
	err        error // the error of the index, joined with the first error of the store
}

// list reads a list of the index page by page, until the list or ctx ends, and calls see for
// each record.
func (c *Reconciler) list(ctx context.Context, name string, before time.Time, see func(ledger.Payment) error) (v visitCounts) {
	var after ledger.Place
	for !v.isWhole {
		page, err := c.Index.List(ctx, name, before, after, pageOfPlaces)
		if err != nil {
			firstPage := after == ledger.Place{}
			if firstPage || ctx.Err() == nil {
				v.err = errors.Join(fmt.Errorf("list %s records: %w", name, err), v.err)
			}
			return v
		}
		for _, place := range page {
			c.visit(ctx, place.Key, &v, see)
			after = place
		}
		v.isWhole = len(page) < pageOfPlaces
	}
	return v
}

// visit fetches a record, and calls see if the record exists.
func (c *Reconciler) visit(ctx context.Context, key string, v *visitCounts, see func(ledger.Payment) error) {
	r, err := c.Ledger.Fetch(ctx, key)
	switch {
	case timeUp(ctx):
		v.notReached++
		return
	case err == nil && r == nil:
		v.gone++
		return
	case err == nil:
		err = see(*r)
	}
	if err == nil {
		return
	}
	v.failed++
	c.Log.ErrorContext(ctx, "not reconciled", "key", key, "error", err)
	if v.err == nil && !errors.Is(err, ledger.ErrCorrupt) {
		v.err = fmt.Errorf("reconcile %s: %w", key, err)
	}
}
