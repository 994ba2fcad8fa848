package x402

import (
	"context"
	"fmt"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// Owed calls visit for each payment whose answer is owed and that nobody is
// looking up, the longest untouched first, 10,000 at most. spent says that no
// lookup is left, so that what is owed is a refund. missed is how many could
// not be read, or not before ctx ended; the error is that of the index, or of
// the ledger on some record. A corrupt record is counted in missed, logged, and
// no error.
func (c *Reconciler) Owed(ctx context.Context, visit func(r ledger.Record, spent bool)) (missed int, err error) {
	keys, err := c.index.Owed(ctx, maxOwed)
	if err != nil {
		return 0, fmt.Errorf("list owed records: %w", err)
	}
	return c.Each(ctx, keys, func(r ledger.Record) {
		if c.ledger.Unclaimed(r) {
			visit(r, ledger.Spent(r, c.now()))
		}
	})
}

// InDoubt calls visit for each payment in doubt that nobody holds, the longest
// untouched first, 1,000 at most. The rest is as with Owed.
func (c *Reconciler) InDoubt(ctx context.Context, visit func(ledger.Record)) (missed int, err error) {
	keys, err := c.index.Open(ctx, c.now(), maxOpen)
	if err != nil {
		return 0, fmt.Errorf("list open records: %w", err)
	}
	return c.Each(ctx, keys, func(r ledger.Record) {
		if c.ledger.Sleeping(r) {
			visit(r)
		}
	})
}

// Each fetches records and calls visit for those that there are. What it returns
// is as with Owed.
func (c *Reconciler) Each(ctx context.Context, keys []string, visit func(ledger.Record)) (missed int, err error) {
	var broken error
	for i, key := range keys {
		r, err := c.ledger.Fetch(ctx, key)
		switch {
		case over(ctx):
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
