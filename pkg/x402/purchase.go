package x402

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// ownerElsewhere is the owner of a purchase whose request is another one: the payer's key
// names that.
const ownerElsewhere ledger.Ownership = -1

// view is what this attempt looks at records with.
func (a *attempt) view() ledger.View {
	return ledger.View{
		Now:      a.gate.Now(),
		Arrived:  a.request.Arrived,
		Node:     a.gate.Evidence != nil,
		Endpoint: a.job.Endpoint,
	}
}

// ownershipOf classifies the payment that currently owns a purchase. It does no I/O.
// r is nil when its record is gone.
func (a *attempt) ownershipOf(r *ledger.Payment) ledger.Ownership {
	if r != nil && r.Request != a.job.Fingerprint {
		return ownerElsewhere
	}
	return a.gate.Ledger.Ownership(r, a.view())
}

// Bounds of joining a purchase.
const (
	// mostTurns is how often a purchase is read again because another attempt has
	// changed it meanwhile.
	mostTurns = 8
	// mostWait is how long a payment waits for another of the same purchase. It is
	// not answered 409 at once, because the reference clients do not retry that.
	// Between two reads of that payment's record are firstLook to lastLook.
	mostWait  = 8 * time.Second
	firstLook = 50 * time.Millisecond
	lastLook  = time.Second
)

// buy goes on with a claim that may have to be sent. It opens the purchase first,
// and sends only if this very payment owns it. If another payment owns it, the
// answer comes from that one.
func (a *attempt) buy(ctx context.Context, h *ledger.Hold) *Outcome {
	until := a.gate.Now().Add(min(mostWait, a.spare()))
	for range mostTurns {
		p, err := a.gate.Ledger.OpenPurchase(ctx, h)
		switch {
		case errors.Is(err, ledger.ErrConflict):
			continue
		case err != nil:
			return a.endUnsent(ctx, h, ledgerFault(err, nil))
		case p.Mine(h):
			return a.held(ctx, h)
		}
		if out := a.join(ctx, h, p, until); out != nil {
			return out
		}
	}
	return a.endUnsent(ctx, h, inProgress(nil))
}

// join answers a payment whose purchase another payment owns. It returns nil when
// the purchase has to be read once more.
func (a *attempt) join(ctx context.Context, h *ledger.Hold, p *ledger.Purchase, until time.Time) *Outcome {
	r, err := a.await(ctx, p, until)
	if err != nil {
		return a.endUnsent(ctx, h, ledgerFault(err, nil))
	}
	switch a.ownershipOf(r) {
	case ownerElsewhere:
		return a.endUnsent(ctx, h, failed(fault.New(fault.IdempotencyConflict, nil), new(false)))
	case ledger.OwnerBusy:
		if !r.SoldAt(a.job.Endpoint) {
			r = nil // its receipt belongs to the other endpoint
		}
		return a.endUnsent(ctx, h, inProgress(r))
	case ledger.OwnerAnswers:
		a.supersede(ctx, h, r.Key)
		return a.follow(ctx, *r)
	case ledger.OwnerDoubt:
		return a.resolve(ctx, h, *r, until)
	case ledger.OwnerDead, ledger.OwnerOver:
		if h.Record().Owner != "" { // in doubt, and answered by another payment before
			if out := a.fromOwner(ctx, r); out != nil {
				return a.endUnsent(ctx, h, out)
			}
		}
		p, err := a.gate.Ledger.TakeOver(ctx, p, r, h)
		switch {
		case errors.Is(err, ledger.ErrConflict):
			return nil
		case err != nil:
			return a.endUnsent(ctx, h, ledgerFault(err, nil))
		case p.Mine(h):
			a.trace.Purchase = "taken_over"
			return a.held(ctx, h)
		}
	}
	return a.endUnsent(ctx, h, failed(fault.New(fault.PaymentUnavailable, errors.New("no rule for the owner of this purchase")), nil))
}

// await reads the record of a purchase's owner, again and again while an attempt
// on it is under way, until a point in time.
func (a *attempt) await(ctx context.Context, p *ledger.Purchase, until time.Time) (*ledger.Payment, error) {
	for pause := firstLook; ; pause = min(2*pause, lastLook) {
		r, err := a.gate.Ledger.Owner(ctx, p)
		if err != nil || a.ownershipOf(r) != ledger.OwnerBusy || !a.pause(ctx, pause, until) {
			return r, err
		}
	}
}

// pause waits, and reports whether it did: not beyond a point in time, nor when
// the request has ended.
func (a *attempt) pause(ctx context.Context, d time.Duration, until time.Time) bool {
	if !a.gate.Now().Add(d).Before(until) {
		return false
	}
	if a.gate.pause != nil {
		return a.gate.pause(ctx, d)
	}
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// endUnsent records that an attempt sent nothing, so that the same signature can be
// sent again, and returns the answer. To a payment that is in doubt that must not say
// that nothing was charged, because its payer would sign anew. Nor must it to one whose
// lease was lost: another attempt on it may have been paid meanwhile.
func (a *attempt) endUnsent(ctx context.Context, h *ledger.Hold, out *Outcome) *Outcome {
	err := h.End(withoutDeadline(ctx), ledger.EventNotSent, cmp.Or(h.Record().Reason, "another payment of the purchase was under way"), "")
	a.wrote(ctx, "attempt not ended", err)
	a.seen(h.Record().State)
	unsure := h.Record().Doubt || errors.Is(err, ledger.ErrLost)
	if charged := out.Payment.Charged; unsure && charged != nil && !*charged {
		if out.charged(nil); out.Status == http.StatusPaymentRequired {
			return failed(fault.New(fault.SettlementUncertain, out.Fault), nil)
		}
	}
	return out
}

func inProgress(owner *ledger.Payment) *Outcome {
	out := failed(fault.New(fault.PaymentInProgress, nil), nil)
	if owner != nil && owner.Paid() {
		return out.by(*owner)
	}
	return out
}

// supersede ends a payment, whose authorization expires unused, because the owner of its
// purchase has paid.
func (a *attempt) supersede(ctx context.Context, h *ledger.Hold, owner string) {
	a.wrote(ctx, "superseded payment not ended", h.Supersede(withoutDeadline(ctx), owner))
	a.seen(h.Record().State)
}

// follow answers from the record of the payment that owns the purchase, and runs
// its lookup if the answer is owed.
func (a *attempt) follow(ctx context.Context, owner ledger.Payment) *Outcome {
	b, c, err := a.resume(ctx, owner)
	if err != nil {
		return ledgerFault(err, new(true)).with(success(owner.Receipt))
	}
	return b.proceed(ctx, c)
}

// resume is this attempt, continued on another payment of the same payer, whose lease
// it claims.
func (a *attempt) resume(ctx context.Context, r ledger.Payment) (*attempt, ledger.Claim, error) {
	b := *a
	b.claim = ledger.Submission{
		Key:        r.Key,
		AuthDigest: r.AuthDigest,
		Terms:      r.Terms,
		Asks:       a.claim.Asks,
	}
	b.resend = true
	b.trace.Purchase = "joined"
	var err error
	if b.terms, err = TermsOf(r); err != nil {
		return nil, ledger.Claim{}, err
	}
	c, err := a.gate.Ledger.Resume(ctx, r, a.claim.Asks, a.lease())
	return &b, c, err
}

// resolve finds out whether the payment that owns the purchase was made: it sends
// its authorization again while that can execute, and asks the chain. It returns
// nil when that payment is dead. A request with a new signature within a second of the
// first refusal waits for that second here: most clients do not ask again. A payment that was
// claimed at another endpoint is not sent from here, and not answered: only the chain is asked,
// and resolve returns nil when that has decided.
func (a *attempt) resolve(ctx context.Context, h *ledger.Hold, r ledger.Payment, until time.Time) *Outcome {
	b, c, err := a.resume(ctx, r)
	elsewhere := !r.SoldAt(a.job.Endpoint)
	switch {
	case err != nil:
		return a.endUnsent(ctx, h, ledgerFault(err, nil))
	case c.Result == ledger.Over && c.Wait > 0:
		if a.pause(ctx, c.Wait, until) {
			return nil
		}
		return a.endUnsent(ctx, h, a.explain(a.ended(c.Record), c.Record))
	case c.Hold == nil:
		return nil // another attempt has it
	}
	p, err := a.gate.Ledger.OpenPurchase(ctx, c.Hold)
	switch {
	case errors.Is(err, ledger.ErrConflict) || err == nil && !p.Mine(c.Hold):
		a.endUnsent(ctx, c.Hold, &Outcome{})
		return nil
	case err != nil:
		return a.endUnsent(ctx, h, a.endUnsent(ctx, c.Hold, ledgerFault(err, nil)))
	}
	b.opensNothing = elsewhere
	out := b.held(ctx, c.Hold)
	switch now := c.Hold.Record(); {
	case now.Paid() && elsewhere:
		return nil
	case now.Paid():
		a.supersede(ctx, h, r.Key)
		return out
	case now.Disproved:
		return nil
	default:
		return a.endUnsent(ctx, h, a.explain(out, now))
	}
}

// explain adds to the answer of the payment that owns the purchase what else the payer
// can do: after a refusal for that payment's signature, which holds the purchase until it
// expires, and while it is not known whether money has moved.
func (a *attempt) explain(out *Outcome, owner ledger.Payment) *Outcome {
	switch f := out.Fault; {
	case f == nil:
	case out.Status == http.StatusPaymentRequired && owner.State == ledger.Refused && owner.BadSignature:
		out.Fault = f.Saying(f.Public() + ", for an earlier signature, which holds the purchase for as long as it is valid: a new Idempotency-Key buys at once")
	case f.Code == fault.SettlementUncertain && out.Payment.Charged == nil:
		until := ""
		if a.gate.Evidence != nil {
			until = " The chain decides it some minutes after " + owner.ValidBefore.UTC().Format(time.RFC3339) + "."
		}
		out.Fault = f.Saying("An earlier payment for this request may have moved money; that is not known yet." + until +
			" Send this again; it is never charged twice. With a new Idempotency-Key it is bought anew, at the risk of paying twice.")
	}
	return out
}

// replaced answers an authorization that another one of the same purchase
// superseded: from that one, while it has an answer or owes one.
func (a *attempt) replaced(ctx context.Context, r ledger.Payment) *Outcome {
	p, err := a.gate.Ledger.Purchase(ctx, r.Purchase)
	var owner *ledger.Payment
	if err == nil && p != nil && p.Owner != r.Key {
		owner, err = a.await(ctx, p, a.gate.Now().Add(min(mostWait, a.spare())))
	}
	if err != nil {
		return ledgerFault(err, nil)
	}
	if out := a.fromOwner(ctx, owner); out != nil {
		return out
	}
	return refused("this authorization was replaced by another payment for the same request, and is not charged: sign a new one", nil)
}

// fromOwner answers a superseded authorization from the payment that owns the
// purchase, for as long as answers are replayed; nil when there is no such answer.
func (a *attempt) fromOwner(ctx context.Context, owner *ledger.Payment) *Outcome {
	o := a.ownershipOf(owner)
	switch {
	case owner != nil && !owner.SoldAt(a.job.Endpoint):
		return nil
	case o == ledger.OwnerBusy:
		return inProgress(owner)
	case o == ledger.OwnerAnswers,
		o == ledger.OwnerOver && owner.State == ledger.Redeemed && a.request.Arrived.Before(owner.AnsweredAt.Add(ledger.KeptFor)):
		return a.follow(ctx, *owner)
	}
	return nil
}
