package x402

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// pageOfPlaces is how many places of a list are asked for, and kept, at once.
const pageOfPlaces = 1000

// Lists are told what Outstanding finds. None may be nil.
type Lists struct {
	// Owed is a payment whose answer is owed and that no attempt holds. spent says
	// that no lookup is left, so that a refund is due.
	Owed func(r ledger.Record, spent bool)
	// Unasked is money that came without a request that is known: a refund is due.
	Unasked func(r ledger.Record)
	// Doubt is a payment that may have moved money, of which that is not known, and
	// that no attempt holds.
	Doubt func(r ledger.Record)
}

// Outstanding reads the index to its end, and tells l of everything in it. missed is how
// many records could not be read; the error is that of the index, or of the ledger on
// some record, or says that ctx ended before the index did. A corrupt record is counted
// in missed and logged, and is not an error. What the target's silence answers
// (ledger.SilenceStands) is not outstanding.
func (c *Reconciler) Outstanding(ctx context.Context, l Lists) (missed int, err error) {
	open, owed := c.walk(ctx, func(r ledger.Record) error {
		if !c.Ledger.Sleeping(r) {
			return nil
		}
		sending, err := c.Ledger.Sending(ctx, r)
		if sending == ledger.MayBeSent {
			l.Doubt(r)
		}
		return err
	}, func(r ledger.Record) error {
		switch now := c.Now(); {
		case ledger.SilenceStands(r, now):
		case r.Unasked():
			l.Unasked(r)
		default:
			l.Owed(r, ledger.Spent(r, now))
		}
		return nil
	}, func() {})
	if err = errors.Join(open.err, owed.err); err == nil && !(open.whole && owed.whole) {
		err = fmt.Errorf("the index was not read to its end: %w", ctx.Err())
	}
	return open.failed + open.left + owed.failed + owed.left, err
}

// Each fetches records and calls see once for each of those that there are. missed
// is how many could not be read, or not before ctx ended; the error is as with
// Outstanding.
func (c *Reconciler) Each(ctx context.Context, keys []string, see func(ledger.Record)) (missed int, err error) {
	var v visited
	c.each(ctx, keys, &v, func(r ledger.Record) error { see(r); return nil })
	return v.failed + v.left, v.err
}

// walk reads the two lists of the index, each least recently written first, and calls
// between in between. What is written from now on is not in the first. It calls open for
// each record of that, and owed once for each of both that is owed and that no attempt
// holds. In this order: a lookup that ends meanwhile moves its record from the first list
// to the second.
func (c *Reconciler) walk(ctx context.Context, open, owed func(ledger.Record) error, between func()) (first, second visited) {
	begun, seen := c.Now(), map[string]bool{}
	once := func(r ledger.Record) error {
		if !c.Ledger.Unclaimed(r) || seen[r.Key] {
			return nil
		}
		seen[r.Key] = true
		return owed(r)
	}
	first = c.visit(ctx, ledger.ListOpen, begun, func(r ledger.Record) error {
		if err := once(r); err != nil {
			return err
		}
		return open(r)
	})
	between()
	return first, c.visit(ctx, ledger.ListOwed, time.Time{}, once)
}

// visited is the result of reading records.
type visited struct {
	gone   int   // that there are not
	failed int   // that could not be read, or seeing them failed
	left   int   // that were not reached before ctx ended
	whole  bool  // the list was read to its end
	err    error // of the index, and the first that was the store's
}

// visit reads a list of the index page by page, until it or ctx ends, and calls see for
// each record.
func (c *Reconciler) visit(ctx context.Context, list string, before time.Time, see func(ledger.Record) error) (v visited) {
	for after := (ledger.Place{}); !v.whole; {
		page, err := c.Index.List(ctx, list, before, after, pageOfPlaces)
		if err != nil {
			if after == (ledger.Place{}) || ctx.Err() == nil {
				v.err = errors.Join(fmt.Errorf("list %s records: %w", list, err), v.err)
			}
			return v
		}
		keys := make([]string, 0, len(page))
		for _, after = range page {
			keys = append(keys, after.Key)
		}
		c.each(ctx, keys, &v, see)
		v.whole = len(page) < pageOfPlaces
	}
	return v
}

// each fetches records and calls see for each of those that there are.
func (c *Reconciler) each(ctx context.Context, keys []string, v *visited, see func(ledger.Record) error) {
	for i, key := range keys {
		r, err := c.Ledger.Fetch(ctx, key)
		if ctx.Err() != nil {
			v.left += len(keys) - i
			return
		}
		if err == nil && r == nil {
			v.gone++
			continue
		}
		if err == nil {
			err = see(*r)
		}
		if err == nil {
			continue
		}
		v.failed++
		c.Log.ErrorContext(ctx, "not reconciled", "key", key, "error", err)
		if v.err == nil && !errors.Is(err, ledger.ErrCorrupt) && !errors.Is(err, ledger.ErrIllegal) {
			v.err = fmt.Errorf("reconcile %s: %w", key, err)
		}
	}
}
