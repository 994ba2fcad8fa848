package x402

import (
	"context"
	"errors"
	"fmt"

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

// Outstanding reads the index to its end, and tells l of everything in it: first what
// is in doubt and what is owed because a lookup died, and then what else is owed, each
// least recently written first. missed is how many records could not be read; the
// error is that of the index, or of the ledger on some record, or says that ctx ended
// before the index did. A corrupt record is counted in missed and logged, and is no
// error. What the target's silence answers (ledger.SilenceStands) is not outstanding.
func (c *Reconciler) Outstanding(ctx context.Context, l Lists) (missed int, err error) {
	died := map[string]bool{}
	owed := func(r ledger.Record) {
		switch {
		case !c.ledger.Unclaimed(r) || died[r.Key] || ledger.SilenceStands(r, c.now()):
		case r.Unasked():
			l.Unasked(r)
		default:
			l.Owed(r, ledger.Spent(r, c.now()))
		}
	}
	// In this order: a lookup that ends in between moves its record from the first
	// list to the second.
	open, err := c.visit(ctx, c.opened(), ledger.Place{}, func(r ledger.Record) error {
		if owed(r); r.Owed() {
			died[r.Key] = true // it may be in the other list a moment later
		}
		if !c.ledger.Sleeping(r) {
			return nil
		}
		sending, err := c.ledger.Sending(ctx, r)
		if sending == ledger.MayBeSent {
			l.Doubt(r)
		}
		return err
	})
	ended, failed := c.visit(ctx, c.ended(), ledger.Place{}, func(r ledger.Record) error { owed(r); return nil })
	if err = errors.Join(err, failed); err == nil && !(open.whole && ended.whole) {
		err = fmt.Errorf("the index was not read to its end: %w", ctx.Err())
	}
	return open.missed + ended.missed, err
}

// list reads a list of the index.
type list func(ctx context.Context, after ledger.Place, limit int) ([]ledger.Place, error)

// opened is the list of open records that nobody holds at this moment. What is written
// from now on is not in it.
func (c *Reconciler) opened() list {
	begun := c.now()
	return labelled("open", func(ctx context.Context, after ledger.Place, limit int) ([]ledger.Place, error) {
		return c.index.Open(ctx, begun, after, limit)
	})
}

// ended is the list of the other records that are owed.
func (c *Reconciler) ended() list { return labelled("owed", c.index.Owed) }

// labelled has the errors of a list name it.
func labelled(name string, read list) list {
	return func(ctx context.Context, after ledger.Place, limit int) ([]ledger.Place, error) {
		places, err := read(ctx, after, limit)
		if err != nil {
			return nil, fmt.Errorf("list %s records: %w", name, err)
		}
		return places, nil
	}
}

// pages reads a list from a place on, page by page, and calls visit for each, until
// the list or ctx ends. It says which.
func pages(ctx context.Context, read list, after ledger.Place, visit func(page []ledger.Place)) (whole bool, err error) {
	for first := true; ; first = false {
		page, err := read(ctx, after, pageOfPlaces)
		switch {
		case err != nil && !first && timeUp(ctx):
			return false, nil
		case err != nil:
			return false, err
		}
		visit(page)
		if len(page) < pageOfPlaces {
			return true, nil
		}
		after = page[len(page)-1]
	}
}

// visited is what came of reading a list.
type visited struct {
	missed int  // records that could not be read, or not before ctx ended
	whole  bool // the list was read to its end
}

// visit fetches the records of a list. An error of seeing one is as one of reading it.
func (c *Reconciler) visit(ctx context.Context, read list, after ledger.Place, see func(ledger.Record) error) (v visited, err error) {
	var broken error
	v.whole, err = pages(ctx, read, after, func(page []ledger.Place) {
		keys := make([]string, 0, len(page))
		for _, p := range page {
			keys = append(keys, p.Key)
		}
		missed, err := c.Each(ctx, keys, func(r ledger.Record) {
			if err := see(r); err != nil {
				v.missed++
				broken = c.failed(ctx, r.Key, err, broken)
			}
		})
		v.missed += missed
		broken = errors.Join(broken, err)
	})
	return v, errors.Join(err, broken)
}

// count counts what is owed: the open records that settle did not look at, and the
// others.
func (r *run) count(ctx context.Context) error {
	see := func(record ledger.Record) error {
		if !r.ledger.Unclaimed(record) || r.died[record.Key] {
			return nil
		}
		if record.LookingUp() {
			r.died[record.Key] = true
		}
		return r.owes(ctx, record)
	}
	open, err := visited{whole: true}, error(nil)
	if r.rest != nil {
		open, err = r.visit(ctx, r.open, *r.rest, see)
	}
	ended, broken := r.visit(ctx, r.ended(), ledger.Place{}, see)
	r.Uncounted = open.missed + ended.missed
	r.Unfinished = r.Unfinished || !open.whole || !ended.whole
	return errors.Join(err, broken)
}

// owes counts a record that is owed and unclaimed, or closes it with its target's
// silence.
func (r *run) owes(ctx context.Context, record ledger.Record) error {
	now := r.now()
	if !ledger.SilenceStands(record, now) {
		r.Owed++
		if ledger.Spent(record, now) {
			r.Exhausted++
		}
		return nil
	}
	if r.render == nil {
		return nil
	}
	answer, err := silentAnswer(record, r.render)
	if err != nil {
		return err
	}
	switch _, err := r.ledger.AnswerSilence(ctx, record, answer, 0); {
	case errors.Is(err, ledger.ErrConflict):
		return nil
	case err != nil:
		return err
	}
	r.Silent++
	return nil
}

// Each fetches records and calls visit once for each of those that there are. missed
// is how many could not be read, or not before ctx ended; the error is as with
// Outstanding.
func (c *Reconciler) Each(ctx context.Context, keys []string, visit func(ledger.Record)) (missed int, err error) {
	var broken error
	for i, key := range keys {
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
