package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Reclaim takes the lease of a record whose outcome is not known, without the
// payment that made it: for the reconciler. It returns nil for a record that
// is decided, that a live attempt holds, or that is gone.
func (l *Ledger) Reclaim(ctx context.Context, r Record, lease time.Time) (*Hold, error) {
	now := l.now()
	if !l.Sleeping(r) {
		return nil, nil
	}
	next, err := step(r, EventClaim, change{now: now, lease: lease})
	if err != nil {
		return nil, err
	}
	next.WriteID = l.newID()
	switch err := l.store.Replace(ctx, next); {
	case errors.Is(err, ErrConflict):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reclaim: %w", err)
	}
	return l.hold(next), nil
}

// Keep takes the end from a record in doubt or owed that an earlier version of
// this code gave one, so that no store deletes it. It returns the record as it
// stands, nil when another writer came first: that write takes the end, too.
func (l *Ledger) Keep(ctx context.Context, r Record) (*Record, error) {
	if !r.endless() || r.ExpiresAt.IsZero() {
		return &r, nil
	}
	r.Version, r.WriteID, r.ExpiresAt = r.Version+1, l.newID(), time.Time{}
	switch err := l.store.Replace(ctx, r); {
	case errors.Is(err, ErrConflict):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("keep: %w", err)
	}
	return &r, nil
}

// Open says that the outcome of a record is not known: what Index.Open lists.
func (r Record) Open() bool { return r.State == Settling || r.State == Uncertain }

// Owed says that a record is paid and not answered.
func (r Record) Owed() bool { return r.State == Settled }

// LookingUp says that a record is owed, and that a lookup was under way when it
// was last written. Index.Open lists it, also when that lookup has died since.
func (r Record) LookingUp() bool { return r.Owed() && r.LeaseUntil.After(r.UpdatedAt) }

// Sleeping says that a record has been in doubt, or was abandoned, and nobody
// holds it.
func (l *Ledger) Sleeping(r Record) bool {
	return r.Open() && leasePast(r, l.now())
}

// Unclaimed says that a record is paid, not answered, and nobody is looking up.
func (l *Ledger) Unclaimed(r Record) bool {
	return r.Owed() && leasePast(r, l.now())
}

// OpenedAt is what an Index sorts by: the end of the lease while there is one,
// else the last write.
func (r Record) OpenedAt() time.Time {
	if r.LeaseUntil.After(r.UpdatedAt) {
		return r.LeaseUntil
	}
	return r.UpdatedAt
}
