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
	// out: the payment was refused, or the facilitator gave a verdict that leaves
	// doubt or none on a signature that only it can judge, or the target of the
	// lookup was silent.
	Close(ctx context.Context, atFault bool)
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
// called when money has moved and the lookup has ended, which settles what the
// request counts as: silent says that the target was silent.
func (p *heldSlot) leaving(ctx context.Context, log *slog.Logger, silent bool) {
	p.weight.close(ctx, silent)
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
	// doubted says that a facilitator's verdict left doubt, or that it gave none
	// on a signature that only it can judge: the payer can have caused that.
	doubted bool
}

// close begins to report the outcome to the Meter; only the first call does.
func (w *weight) close(ctx context.Context, atFault bool) {
	if w == nil {
		return
	}
	w.once.Do(func() { w.closed.Go(func() { w.meter.Close(ctx, atFault) }) })
}

// end is close for a request that has not moved money.
func (w *weight) end(ctx context.Context, out Outcome) {
	if w != nil {
		w.close(ctx, out.refused() || w.doubted)
	}
}

// doubt notes that the payer can have caused the doubt that is left.
func (w *weight) doubt() {
	if w != nil {
		w.doubted = true
	}
}

// wait waits until the report is done: no goroutine outlives an invocation.
func (w *weight) wait() {
	if w != nil {
		w.closed.Wait()
	}
}
