package x402

import (
	"context"
	"errors"
	"fmt"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// Outstanding calls owed for each payment whose answer is owed and that no attempt
// holds: first those whose last lookup ended, least recently written first, and
// then those whose lookup died, 10,000 at most of each. spent says that no lookup
// is left, so that a refund is due. It calls doubt for each payment in doubt that no
// attempt holds, least recently written first, 1,000 at most. missed is how many
// records could not be read, or not before ctx ended; the error is that of the index,
// or of the ledger on some record. A corrupt record is counted in missed and logged,
// and is no error.
func (c *Reconciler) Outstanding(ctx context.Context, owed func(r ledger.Record, spent bool), doubt func(ledger.Record)) (missed int, err error) {
	// In this order: a lookup that ends in between moves its record from the
	// first list to the second.
	open, errOpen := c.index.Open(ctx, c.now(), maxListed)
	doubts := 0
	missed, err = c.outstanding(ctx, open, func(r ledger.Record) {
		switch {
		case c.ledger.Unclaimed(r):
			owed(r, ledger.Spent(r, c.now()))
		case c.ledger.Sleeping(r) && doubts < maxJudged:
			doubts++
			doubt(r)
		}
	})
	return missed, errors.Join(unlisted("open", errOpen), err)
}

// owed calls visit for what is owed, as Outstanding does, with the keys of the list
// of open records that may be.
func (c *Reconciler) owed(ctx context.Context, open []string, visit func(r ledger.Record, spent bool)) (missed int, err error) {
	return c.outstanding(ctx, open, func(r ledger.Record) {
		if c.ledger.Unclaimed(r) {
			visit(r, ledger.Spent(r, c.now()))
		}
	})
}

// outstanding visits the records of the index's other list, and then the open ones.
func (c *Reconciler) outstanding(ctx context.Context, open []string, visit func(ledger.Record)) (missed int, err error) {
	ended, err := c.index.Owed(ctx, maxListed)
	if err != nil {
		return 0, unlisted("owed", err)
	}
	return c.Each(ctx, append(ended, open...), visit)
}

// unlisted is the error of a list that could not be read.
func unlisted(list string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("list %s records: %w", list, err)
}

// Each fetches records and calls visit once for each of those that there are. What
// it returns is as with Outstanding.
func (c *Reconciler) Each(ctx context.Context, keys []string, visit func(ledger.Record)) (missed int, err error) {
	var broken error
	seen := make(map[string]bool, len(keys))
	for i, key := range keys {
		if seen[key] { // it moved from list to list meanwhile
			continue
		}
		seen[key] = true
		r, err := c.ledger.Fetch(ctx, key)
		switch {
		case timeUp(ctx):
			return missed + len(keys) - i, broken
		case err != nil:
			missed++
			broken = c.failed(ctx, key, err, broken)
		case r != nil:
			visit(*r)
		}
	}
	return missed, broken
}
