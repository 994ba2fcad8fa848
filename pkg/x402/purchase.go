package x402

import (
	"context"
	"errors"
	"time"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// ownership is what the payment that a purchase is made with means for another
// payment of the same purchase.
type ownership int

const (
	// ownerElsewhere: the payer's key names another request.
	ownerElsewhere ownership = iota + 1
	// ownerBusy: an attempt on it is under way.
	ownerBusy
	// ownerDoubt: it may have been sent, and is neither paid nor proven dead.
	ownerDoubt
	// ownerDead: it never moved money and never will, or was never sent, or the
	// money went back. The purchase can be made with another payment.
	ownerDead
	// ownerAnswers: it is paid, and has an answer or owes one.
	ownerAnswers
	// ownerOver: it is paid, and what it bought is over.
	ownerOver
)

// deadAfter is how long after its window a payment that was refused counts as
// dead where no view of the chain says so.
const deadAfter = 10 * time.Minute

// buyer is what decides, beside the owner's record, what becomes of another
// payment for its purchase.
type buyer struct {
	request string    // fingerprint
	arrived time.Time // when the request came
	now     time.Time
	keyed   bool          // the payer named the purchase
	replay  time.Duration // how long an answer stands for the purchase
	blind   bool          // there is no view of the chain
}

// ownershipOf decides about the owner of a purchase, free of I/O (design §13).
// r is nil when its record is gone.
func ownershipOf(r *ledger.Record, b buyer) ownership {
	if r == nil {
		return ownerDead
	}
	if r.Request != b.request {
		return ownerElsewhere
	}
	held := r.LeaseUntil.After(b.now)
	switch r.State {
	case ledger.Settling, ledger.Uncertain:
		if held {
			return ownerBusy
		}
		return ownerDoubt
	case ledger.Refused:
		if r.Disproved || !r.Sent || b.blind && !r.Doubt && b.now.After(r.ValidBefore.Add(deadAfter)) {
			return ownerDead
		}
		return ownerDoubt
	case ledger.Superseded, ledger.Refunded:
		return ownerDead
	case ledger.Settled:
		return ownershipOfPaid(*r, b, held)
	case ledger.Redeemed:
		if b.arrived.Before(r.Since().Add(b.replay)) {
			return ownerAnswers
		}
		return ownerOver
	case ledger.Bought, ledger.Scanned:
	}
	return 0
}

// ownershipOfPaid is about a payment whose answer is owed. When no lookup is
// left the debt is a refund; who named the purchase is told so for a day, and
// whoever did not buys anew.
func ownershipOfPaid(r ledger.Record, b buyer, held bool) ownership {
	switch {
	case held:
		return ownerBusy
	case !ledger.Spent(r, b.now), b.keyed && b.arrived.Before(r.LookupAt.Add(ledger.KeptFor)):
		return ownerAnswers
	}
	return ownerOver
}

// Bounds of the way through a purchase.
const (
	// mostTurns is how often a purchase is looked at again because somebody else
	// has changed it meanwhile.
	mostTurns = 8
	// mostWait is how long a payment waits for another of the same purchase. The
	// reference clients do not come back after a 409.
	mostWait = 8 * time.Second
	// firstLook and lastLook are the pauses between two looks at that one.
	firstLook = 50 * time.Millisecond
	lastLook  = time.Second
)

// buy goes on with a claim that may have to be sent: its purchase is opened
// first, and only if it is made with this very payment is anything sent. A
// purchase that is made with another payment is answered by that one.
func (a *attempt) buy(ctx context.Context, h *ledger.Hold) Outcome {
	if h.Record().Purchase == "" {
		return a.held(ctx, h)
	}
	until := a.gate.now().Add(min(mostWait, a.spare()))
	for range mostTurns {
		p, err := a.gate.ledger.Open(ctx, h)
		switch {
		case errors.Is(err, ledger.ErrConflict):
			continue
		case err != nil:
			return a.shut(ctx, h, a.ledgerFault(err, nil))
		case p.Mine(h):
			return a.held(ctx, h)
		}
		if out := a.join(ctx, h, p, until); out != nil {
			return *out
		}
	}
	return a.shut(ctx, h, a.inProgress(nil))
}

// join deals with a purchase that another payment owns. It returns nil when that
// has to be looked at once more.
func (a *attempt) join(ctx context.Context, h *ledger.Hold, p *ledger.Purchase, until time.Time) *Outcome {
	r, err := a.await(ctx, p, until)
	if err != nil {
		return a.turned(a.shut(ctx, h, a.ledgerFault(err, nil)))
	}
	switch a.owner(r) {
	case ownerElsewhere:
		return a.turned(a.shut(ctx, h, a.fail(fault.New(fault.IdempotencyConflict, nil), moved(false))))
	case ownerBusy:
		return a.turned(a.shut(ctx, h, a.inProgress(r)))
	case ownerAnswers:
		return a.turned(a.answered(ctx, h, *r))
	case ownerDoubt:
		return a.resolve(ctx, h, *r, until)
	case ownerDead, ownerOver:
		if h.Record().Owner != "" { // in doubt, and answered by another payment before
			if out := a.fromOwner(ctx, r); out != nil {
				return a.turned(a.shut(ctx, h, *out))
			}
		}
		p, err := a.gate.ledger.TakeOver(ctx, p, r, h)
		switch {
		case errors.Is(err, ledger.ErrConflict):
			return nil
		case err != nil:
			return a.turned(a.shut(ctx, h, a.ledgerFault(err, nil)))
		case p.Mine(h):
			a.trace.Purchase = "taken_over"
			return a.turned(a.held(ctx, h))
		}
	}
	return a.turned(a.shut(ctx, h, a.fail(fault.New(fault.PaymentUnavailable, errors.New("no rule for the owner of this purchase")), nil)))
}

// owner decides about the payment that owns the purchase.
func (a *attempt) owner(r *ledger.Record) ownership {
	b := buyer{
		request: a.job.Fingerprint, arrived: a.request.Arrived, now: a.gate.now(),
		keyed: r != nil && named(r.Purchase), replay: a.gate.window, blind: a.gate.evidence == nil,
	}
	if b.keyed {
		b.replay = ledger.KeptFor
	}
	return ownershipOf(r, b)
}

// await reads the owner of a purchase, and while an attempt on it is under way
// reads it again, until a point in time.
func (a *attempt) await(ctx context.Context, p *ledger.Purchase, until time.Time) (*ledger.Record, error) {
	for pause := firstLook; ; pause = min(2*pause, lastLook) {
		r, err := a.gate.ledger.Owner(ctx, p)
		if err != nil || a.owner(r) != ownerBusy || !a.pause(ctx, pause, until) {
			return r, err
		}
	}
}

// pause waits, and reports whether it did: not beyond a point in time, nor when
// the request has ended.
func (a *attempt) pause(ctx context.Context, d time.Duration, until time.Time) bool {
	if !a.gate.now().Add(d).Before(until) {
		return false
	}
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// shut ends an attempt that sent nothing, so that the same signature can be sent
// again, and answers.
func (a *attempt) shut(ctx context.Context, h *ledger.Hold, out Outcome) Outcome {
	if err := h.NotSent(bare(ctx), orElse(h.Record().Reason, "another payment of the purchase was under way")); err != nil {
		a.unrecorded(ctx, "attempt not ended", err)
	}
	a.seen(h.Record().State)
	if h.Record().Doubt && out.Standing.Charged != nil && !*out.Standing.Charged {
		return a.unsure(out)
	}
	return out
}

// unsure is the answer to a payment that is in doubt itself, where that of its
// purchase says that nothing was charged. It does not say that the payer may sign
// anew.
func (a *attempt) unsure(out Outcome) Outcome {
	if out.Status == 402 {
		return a.fail(fault.New(fault.SettlementUncertain, out.Fault), nil)
	}
	return a.fail(out.Fault, nil)
}

func (a *attempt) inProgress(owner *ledger.Record) Outcome {
	if owner == nil || !owner.Paid() {
		return a.fail(fault.New(fault.PaymentInProgress, nil), nil)
	}
	return a.with(Outcome{Receipt: responseOf(*owner)}, a.fail(fault.New(fault.PaymentInProgress, nil), moved(true)))
}

// answered answers a payment by the record of another one that has paid for its
// purchase. This one is over then, and its authorization expires unused.
func (a *attempt) answered(ctx context.Context, h *ledger.Hold, owner ledger.Record) Outcome {
	if err := h.Supersede(bare(ctx), owner.Key); err != nil {
		a.unrecorded(ctx, "superseded payment not ended", err)
	}
	a.seen(h.Record().State)
	return a.follow(ctx, owner)
}

// follow answers from the record of the payment that owns the purchase, and runs
// the lookup that it owes.
func (a *attempt) follow(ctx context.Context, owner ledger.Record) Outcome {
	a.trace.Purchase = "joined"
	c, err := a.gate.ledger.Resume(ctx, owner, a.request.Deadline.Add(leaseMargin))
	if err != nil {
		return a.with(Outcome{Receipt: responseOf(owner)}, a.ledgerFault(err, moved(true)))
	}
	b, err := a.on(owner)
	if err != nil {
		return a.with(Outcome{Receipt: responseOf(owner)}, a.ledgerFault(err, moved(true)))
	}
	out := b.proceed(ctx, c)
	a.trace = b.trace
	return out
}

// on is this attempt on another payment of the same payer.
func (a *attempt) on(r ledger.Record) (*attempt, error) {
	b := *a
	b.claim = ledger.Payment{Key: r.Key, AuthDigest: r.AuthDigest, Terms: r.Terms}
	b.resend = true
	return &b, unmarshalTerms(r, &b.terms)
}

// resolve finds out what became of the payment that owns the purchase, by sending
// its authorization once more while it can execute, and by the chain. It returns
// nil when that payment is dead, so that the purchase can be taken over. A payer
// who signs anew within a second of the first refusal, because his wallet has been
// filled up, waits for that second here: most clients do not ask again.
func (a *attempt) resolve(ctx context.Context, h *ledger.Hold, r ledger.Record, until time.Time) *Outcome {
	c, err := a.gate.ledger.Resume(ctx, r, a.request.Deadline.Add(leaseMargin))
	switch {
	case err != nil:
		return a.turned(a.shut(ctx, h, a.ledgerFault(err, nil)))
	case c.Standing == ledger.Over && c.Wait > 0:
		if a.pause(ctx, c.Wait, until) {
			return nil
		}
		return a.turned(a.shut(ctx, h, a.ended(c.Record)))
	case c.Hold == nil:
		return nil // somebody else has taken it
	}
	b, err := a.on(r)
	if err != nil {
		return a.turned(a.shut(ctx, h, a.shut(ctx, c.Hold, a.ledgerFault(err, nil))))
	}
	again, err := a.gate.ledger.Open(ctx, c.Hold)
	switch {
	case errors.Is(err, ledger.ErrConflict) || err == nil && !again.Mine(c.Hold):
		a.shut(ctx, c.Hold, Outcome{})
		return nil
	case err != nil:
		return a.turned(a.shut(ctx, h, a.shut(ctx, c.Hold, a.ledgerFault(err, nil))))
	}
	a.trace.Purchase = "joined"
	out := b.held(ctx, c.Hold)
	a.trace = b.trace
	switch now := c.Hold.Record(); {
	case now.Paid():
		if err := h.Supersede(bare(ctx), r.Key); err != nil {
			a.unrecorded(ctx, "superseded payment not ended", err)
		}
		a.seen(h.Record().State)
		return &out
	case now.Disproved:
		return nil
	}
	return a.turned(a.shut(ctx, h, a.unresolved(out, r)))
}

// unresolved says of an uncertain outcome until when it can stay uncertain, and
// what else the payer can do. An attempt that has lost its lease can know that the
// money moved: then nothing is uncertain but who looks up.
func (a *attempt) unresolved(out Outcome, r ledger.Record) Outcome {
	if out.Fault == nil || out.Fault.Code != fault.SettlementUncertain || out.Standing.Charged != nil {
		return out
	}
	until := ""
	if a.gate.evidence != nil {
		until = " The chain decides it some minutes after " + r.ValidBefore.UTC().Format(time.RFC3339) + "."
	}
	f := fault.Newf(fault.SettlementUncertain, out.Fault.Unwrap(),
		"An earlier payment for this request may have moved money; that is not known yet.%s Send this again; it is never charged twice. With a new Idempotency-Key it is bought anew, at the risk of paying twice.", until)
	return a.fail(f, out.Standing.Charged)
}

// replaced answers an authorization whose purchase was made with another one:
// from that one, while it has an answer or owes one. It is itself never sent.
func (a *attempt) replaced(ctx context.Context, r ledger.Record) Outcome {
	p, err := a.gate.ledger.Purchase(ctx, r.Purchase)
	if err != nil {
		return a.ledgerFault(err, nil)
	}
	if p != nil && p.Owner != r.Key {
		owner, err := a.await(ctx, p, a.gate.now().Add(min(mostWait, a.spare())))
		if err != nil {
			return a.ledgerFault(err, nil)
		}
		if out := a.fromOwner(ctx, owner); out != nil {
			return *out
		}
	}
	return a.refuse("this authorization was replaced by another payment for the same request, and is not charged: sign a new one", nil)
}

// fromOwner answers a replaced authorization, whose own answer is replayed for as
// long as any payment's is. nil means that there is none.
func (a *attempt) fromOwner(ctx context.Context, owner *ledger.Record) *Outcome {
	switch a.owner(owner) {
	case ownerBusy:
		return a.turned(a.inProgress(owner))
	case ownerAnswers:
		return a.turned(a.follow(ctx, *owner))
	case ownerOver:
		if owner.State == ledger.Redeemed && a.request.Arrived.Before(owner.Since().Add(ledger.KeptFor)) {
			return a.turned(a.follow(ctx, *owner))
		}
	case ownerElsewhere, ownerDoubt, ownerDead:
	}
	return nil
}
