package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Cursor is how far the chain was read for transfers of one token to one payee.
type Cursor struct {
	Next   uint64    // the first block that was not read
	Begun  time.Time // when the cursor was made
	record Record
}

// CursorKey names the cursor of a token and a payee. All parts must be in lower
// case.
func CursorKey(network, asset, payee string) string {
	return "cursor|" + network + "|" + asset + "|" + payee
}

func cursorOf(r Record) *Cursor { return &Cursor{Next: r.Block, Begun: r.CreatedAt, record: r} }

// Cursor reads a cursor; nil when there is none yet.
func (l *Ledger) Cursor(ctx context.Context, key string) (*Cursor, error) {
	r, err := l.store.Fetch(ctx, key)
	if err != nil || r == nil {
		return nil, err
	}
	if r.State != Scanned {
		return nil, fmt.Errorf("%w: %s is not a cursor", ErrCorrupt, key)
	}
	return cursorOf(*r), nil
}

// Begin makes a cursor. ErrConflict means that somebody else has made it.
func (l *Ledger) Begin(ctx context.Context, key string, next uint64) (*Cursor, error) {
	now := l.now()
	r := Record{Key: key, Version: 1, WriteID: l.newID(), State: Scanned, Block: next, CreatedAt: now, UpdatedAt: now}
	old, err := l.store.Create(ctx, r)
	if err == nil && old != nil {
		err = ErrConflict
	}
	if err != nil {
		return nil, fmt.Errorf("begin cursor: %w", err)
	}
	return cursorOf(r), nil
}

// Advance moves a cursor forward. ErrConflict means that somebody else has moved
// it, and reads on from there.
func (l *Ledger) Advance(ctx context.Context, c Cursor, next uint64) (*Cursor, error) {
	if next < c.Next {
		return nil, errors.New("ledger: a cursor does not go back")
	}
	r := c.record
	r.Block, r.Version, r.WriteID, r.UpdatedAt = next, r.Version+1, l.newID(), l.now()
	if err := l.store.Replace(ctx, r); err != nil {
		return nil, fmt.Errorf("advance cursor: %w", err)
	}
	return cursorOf(r), nil
}
