package x402

import (
	"context"
	"errors"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// ownership is what the payment that owns a purchase means for another payment of
// the same purchase.
type ownership int

const (
	// ownerElsewhere: the payer's key names another request.
	ownerElsewhere ownership = iota + 1
	// ownerBusy: an attempt on it is under way.
	ownerBusy
	// ownerDoubt: it may have been sent, and is neither paid nor proven dead.
	ownerDoubt
	// ownerDead: it never moved money and never will, it was never sent, or it was
	// refunded. The purchase can be made with another payment.
	ownerDead
	// ownerAnswers: it is paid, and has an answer or owes one.
	ownerAnswers
	// ownerOver: it is paid, and its answer no longer stands for the purchase.
	ownerOver
)

// deadAfter is how long after its window a refused payment counts as dead where
// the chain cannot be asked.
const deadAfter = 10 * time.Minute

// ownershipOf classifies the payment that currently owns a purchase. It does no I/O.
// r is nil when its record is gone.
func (a *attempt) ownershipOf(r *ledger.Record) ownership {
	if r == nil {
		return ownerDead
	}
	if r.Request != a.job.Fingerprint {
		return ownerElsewhere
	}
	now, keyed := a.gate.now(), named(r.Purchase)
	held := r.LeaseUntil.After(now)
	switch r.State { //nolint:exhaustive // the others are not those of a payment
	case ledger.Settling, ledger.Uncertain:
		if held {
			return ownerBusy
		}
		return ownerDoubt
	case ledger.Refused:
		if r.Disproved || !r.Sent || a.gate.evidence == nil && !r.Doubt && now.After(r.ValidBefore.Add(deadAfter)) {
			return ownerDead
		}
		return ownerDoubt
	case ledger.Superseded, ledger.Refunded:
		return ownerDead
	case ledger.Settled:
		// When no lookup is left a refund is due. A payer who named the purchase is
		// told so for a day; one who did not buys anew.
		switch {
		case held:
			return ownerBusy
		case !ledger.Spent(*r, now), keyed && a.request.Arrived.Before(r.LookupAt.Add(ledger.KeptFor)):
			return ownerAnswers
		}
		return ownerOver
	case ledger.Redeemed:
		until := r.StandsUntil
		if keyed {
			until = r.AnsweredAt.Add(ledger.KeptFor)
		}
		if a.request.Arrived.Before(until) {
			return ownerAnswers
		}
		return ownerOver
	}
	return 0
}

// Bounds of joining a purchase.
const (
	// mostTurns is how often a purchase is read again because another attempt has
	// changed it meanwhile.
	mostTurns = 8
	// mostWait is how long a payment waits for another of the same purchase. It is
	// not answered 409 at once, because the reference clients do not retry that.
	mostWait = 8 * time.Second
	// firstLook and lastLook are the first and longest pause between two reads of
	// that payment's record.
	firstLook = 50 * time.Millisecond
	lastLook  = time.Second
)

// buy goes on with a claim that may have to be sent. It opens the purchase first,
// and sends only if this very payment owns it. If another payment owns it, the
// answer comes from that one.
func (a *attempt) buy(ctx context.Context, h *ledger.Hold) Outcome {
	if h.Record().Purchase == "" {
		return a.held(ctx, h)
	}
	until := a.gate.now().Add(min(mostWait, a.spare()))
	for range mostTurns {
		p, err := a.gate.ledger.OpenPurchase(ctx, h)
		switch {
		case errors.Is(err, ledger.ErrConflict):
			continue
		case err != nil:
			return a.endUnsent(ctx, h, a.ledgerFault(err, nil))
		case p.Mine(h):
			return a.held(ctx, h)
		}
		if out := a.join(ctx, h, p, until); out != nil {
			return *out
		}
	}
	return a.endUnsent(ctx, h, a.inProgress(nil))
}

// join answers a payment whose purchase another payment owns. It returns nil when
// the purchase has to be read once more.
func (a *attempt) join(ctx context.Context, h *ledger.Hold, p *ledger.Purchase, until time.Time) *Outcome {
	r, err := a.await(ctx, p, until)
	if err != nil {
		return new(a.endUnsent(ctx, h, a.ledgerFault(err, nil)))
	}
	switch a.ownershipOf(r) {
	case ownerElsewhere:
		return new(a.endUnsent(ctx, h, a.fail(fault.New(fault.IdempotencyConflict, nil), new(false))))
	case ownerBusy:
		return new(a.endUnsent(ctx, h, a.inProgress(r)))
	case ownerAnswers:
		a.supersede(ctx, h, r.Key)
		return new(a.follow(ctx, *r))
	case ownerDoubt:
		return a.resolve(ctx, h, *r, until)
	case ownerDead, ownerOver:
		if h.Record().Owner != "" { // in doubt, and answered by another payment before
			if out := a.fromOwner(ctx, r); out != nil {
				return new(a.endUnsent(ctx, h, *out))
			}
		}
		p, err := a.gate.ledger.TakeOver(ctx, p, r, h)
		switch {
		case errors.Is(err, ledger.ErrConflict):
			return nil
		case err != nil:
			return new(a.endUnsent(ctx, h, a.ledgerFault(err, nil)))
		case p.Mine(h):
			a.trace.Purchase = "taken_over"
			return new(a.held(ctx, h))
		}
	}
	return new(a.endUnsent(ctx, h, a.fail(fault.New(fault.PaymentUnavailable, errors.New("no rule for the owner of this purchase")), nil)))
}

// await reads the record of a purchase's owner, again and again while an attempt
// on it is under way, until a point in time.
func (a *attempt) await(ctx context.Context, p *ledger.Purchase, until time.Time) (*ledger.Record, error) {
	for pause := firstLook; ; pause = min(2*pause, lastLook) {
		r, err := a.gate.ledger.Owner(ctx, p)
		if err != nil || a.ownershipOf(r) != ownerBusy || !a.pause(ctx, pause, until) {
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

// endUnsent records that an attempt sent nothing, so that the same signature can be
// sent again, and returns the answer.
func (a *attempt) endUnsent(ctx context.Context, h *ledger.Hold, out Outcome) Outcome {
	if err := h.End(withoutDeadline(ctx), ledger.EventNotSent, orElse(h.Record().Reason, "another payment of the purchase was under way"), ""); err != nil {
		a.unrecorded(ctx, "attempt not ended", err)
	}
	a.seen(h.Record().State)
	if h.Record().Doubt && out.Payment.Charged != nil && !*out.Payment.Charged {
		return a.unsure(out)
	}
	return out
}

// unsure is the answer to a payment that is in doubt, when the payment that owns
// its purchase was not charged. It must not tell the payer to sign anew.
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
	return a.fail(fault.New(fault.PaymentInProgress, nil), new(true)).with(responseOf(*owner))
}

// supersede ends a payment, whose authorization expires unused, because the owner of its
// purchase has paid.
func (a *attempt) supersede(ctx context.Context, h *ledger.Hold, owner string) {
	if err := h.Supersede(withoutDeadline(ctx), owner); err != nil {
		a.unrecorded(ctx, "superseded payment not ended", err)
	}
	a.seen(h.Record().State)
}

// follow answers from the record of the payment that owns the purchase, and runs
// its lookup if the answer is owed.
func (a *attempt) follow(ctx context.Context, owner ledger.Record) Outcome {
	b, c, err := a.resume(ctx, owner)
	if err != nil {
		return a.ledgerFault(err, new(true)).with(responseOf(owner))
	}
	out := b.proceed(ctx, c)
	a.trace = b.trace
	return out
}

// resume is this attempt, continued on another payment of the same payer, whose lease
// it claims.
func (a *attempt) resume(ctx context.Context, r ledger.Record) (*attempt, ledger.Claim, error) {
	b := *a
	b.claim = ledger.Payment{Key: r.Key, AuthDigest: r.AuthDigest, Terms: r.Terms}
	b.resend, b.trace.Purchase = true, "joined"
	if err := unmarshalTerms(r, &b.terms); err != nil {
		return nil, ledger.Claim{}, err
	}
	c, err := a.gate.ledger.Resume(ctx, r, a.gate.asksFirst(), a.request.Deadline.Add(leaseMargin))
	return &b, c, err
}

// resolve finds out whether the payment that owns the purchase was made: it sends
// its authorization again while that can execute, and asks the chain. It returns
// nil when that payment is dead, so that the purchase can be taken over. A request
// with a new signature within a second of the first refusal, as after topping up a
// wallet, waits for that second here: most clients do not ask again.
func (a *attempt) resolve(ctx context.Context, h *ledger.Hold, r ledger.Record, until time.Time) *Outcome {
	b, c, err := a.resume(ctx, r)
	switch {
	case err != nil:
		return new(a.endUnsent(ctx, h, a.ledgerFault(err, nil)))
	case c.Result == ledger.Over && c.Wait > 0:
		if a.pause(ctx, c.Wait, until) {
			return nil
		}
		return new(a.endUnsent(ctx, h, heldByRefused(a.ended(c.Record), c.Record)))
	case c.Hold == nil:
		return nil // another attempt has it
	}
	p, err := a.gate.ledger.OpenPurchase(ctx, c.Hold)
	switch {
	case errors.Is(err, ledger.ErrConflict) || err == nil && !p.Mine(c.Hold):
		a.endUnsent(ctx, c.Hold, Outcome{})
		return nil
	case err != nil:
		return new(a.endUnsent(ctx, h, a.endUnsent(ctx, c.Hold, a.ledgerFault(err, nil))))
	}
	out := b.held(ctx, c.Hold)
	a.trace = b.trace
	switch now := c.Hold.Record(); {
	case now.Paid():
		a.supersede(ctx, h, r.Key)
		return &out
	case now.Disproved:
		return nil
	default:
		return new(a.endUnsent(ctx, h, a.unresolved(heldByRefused(out, now), r)))
	}
}

// heldByRefused adds to the refusal of an owner's signature what the payer can do:
// its authorization can still execute, as far as anybody can tell, and so holds the
// purchase. The other reasons hold for a new signature of the payer's as well.
func heldByRefused(out Outcome, owner ledger.Record) Outcome {
	if out.Status == 402 && owner.State == ledger.Refused && owner.BadSignature {
		out.Fault = fault.Newf(fault.PaymentRequired, out.Fault.Unwrap(),
			"%s, for an earlier signature, which holds the purchase for as long as it is valid: a new Idempotency-Key buys at once", out.Fault.Public())
	}
	return out
}

// unresolved adds to an uncertain answer until when it can stay uncertain, and
// what else the payer can do. It leaves other answers alone, among them that of an
// attempt that lost its lease and knows that the money moved.
func (a *attempt) unresolved(out Outcome, r ledger.Record) Outcome {
	if out.Fault == nil || out.Fault.Code != fault.SettlementUncertain || out.Payment.Charged != nil {
		return out
	}
	until := ""
	if a.gate.evidence != nil {
		until = " The chain decides it some minutes after " + r.ValidBefore.UTC().Format(time.RFC3339) + "."
	}
	f := fault.Newf(fault.SettlementUncertain, out.Fault.Unwrap(),
		"An earlier payment for this request may have moved money; that is not known yet.%s Send this again; it is never charged twice. With a new Idempotency-Key it is bought anew, at the risk of paying twice.", until)
	return a.fail(f, out.Payment.Charged)
}

// replaced answers an authorization that another one of the same purchase
// superseded: from that one, while it has an answer or owes one. This one is never
// sent.
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

// fromOwner answers a superseded authorization from the payment that owns the
// purchase, for as long as answers are replayed. It returns nil when there is no
// such answer.
func (a *attempt) fromOwner(ctx context.Context, owner *ledger.Record) *Outcome {
	switch a.ownershipOf(owner) {
	case ownerBusy:
		return new(a.inProgress(owner))
	case ownerAnswers:
		return new(a.follow(ctx, *owner))
	case ownerOver:
		if owner.State == ledger.Redeemed && a.request.Arrived.Before(owner.AnsweredAt.Add(ledger.KeptFor)) {
			return new(a.follow(ctx, *owner))
		}
	case ownerElsewhere, ownerDoubt, ownerDead:
	}
	return nil
}
