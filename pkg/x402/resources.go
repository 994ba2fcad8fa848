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
	// known, concurrently with the last write of the request. refused says that
	// the payment failed through its payer's fault, and that this took a call to
	// find out: the record alone did not show it.
	Close(ctx context.Context, refused bool)
}

// heldSlot is a slot that is released once, concurrently with the last write of an
// attempt.
type heldSlot struct {
	slot   Slot    // nil without a cap
	weight *weight // of the request
	once   sync.Once
	left   sync.WaitGroup
}

// leaving begins to release the slot while something else is written. It is
// called when money has moved, which settles what the request counts as.
func (p *heldSlot) leaving(ctx context.Context, log *slog.Logger) {
	p.weight.close(ctx, false)
	p.release(ctx, log)
}

func (p *heldSlot) release(ctx context.Context, log *slog.Logger) {
	if p.slot == nil {
		return
	}
	p.once.Do(func() {
		p.left.Go(func() {
			if err := p.slot.Release(ctx); err != nil {
				// The slot expires by itself.
				log.WarnContext(ctx, "slot not released", "error", err)
			}
		})
	})
}

// leave releases the slot and waits until that is done: no goroutine outlives an
// invocation.
func (p *heldSlot) leave(ctx context.Context, log *slog.Logger) {
	p.release(ctx, log)
	p.left.Wait()
}

// weight is a request that its Meter has counted.
type weight struct {
	meter  Meter
	once   sync.Once
	closed sync.WaitGroup
}

// close begins to report the outcome to the Meter; only the first call does.
func (w *weight) close(ctx context.Context, refused bool) {
	if w == nil {
		return
	}
	w.once.Do(func() { w.closed.Go(func() { w.meter.Close(ctx, refused) }) })
}

// wait waits until the report is done: no goroutine outlives an invocation.
func (w *weight) wait() {
	if w != nil {
		w.closed.Wait()
	}
}
