package x402

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// Slots cap concurrent work.
type Slots interface {
	// Acquire takes a slot for a client. The slot is free again at until, even
	// if it is never released. The error is a *fault.Error: overloaded, or
	// ledger_unavailable.
	Acquire(ctx context.Context, client string, until time.Time) (Slot, error)
}

// Slot is the right to settle and look up for one request.
type Slot interface {
	Release(ctx context.Context) error
}

// Meter counts what serving a payment costs against the rate limit of its
// sender.
type Meter interface {
	// Open counts a payment that is valid as far as the request itself shows. It
	// is called before anything is read, written or asked. Its error is a
	// *fault.Error, with which the request is answered.
	Open(ctx context.Context) error
	// Close is called once after an Open, when the outcome of the payment is
	// known, concurrently with the last write of the request. atFault says that
	// the payer can have caused the outcome, and that this took a call to find
	// out (design §21, weights).
	Close(ctx context.Context, atFault bool)
}

// dues are what a request has opened and must close: the count of its Meter and its
// slot. Both are closed once, concurrently with its last write if it looks up.
type dues struct {
	log   *slog.Logger
	meter Meter // nil when there is none, or it is closed
	slot  Slot  // nil when there is none, or it is released
	// doubted says that a facilitator's verdict left doubt, or that it gave none
	// on a signature that only it can judge: the payer can have caused that.
	doubted bool
	closing sync.WaitGroup
}

// close begins to close what is open.
func (d *dues) close(ctx context.Context, atFault bool) {
	meter, slot := d.meter, d.slot
	d.meter, d.slot = nil, nil
	if meter != nil {
		d.closing.Go(func() { meter.Close(ctx, atFault) })
	}
	if slot != nil {
		d.closing.Go(func() {
			if err := slot.Release(ctx); err != nil { // it expires by itself
				d.log.WarnContext(ctx, "slot not released", "error", err)
			}
		})
	}
}
