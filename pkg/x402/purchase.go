package x402

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// ownerOtherRequest means that the payment that owns the purchase was made for another
// request: the payer has used one key for two requests.
const ownerOtherRequest ledger.Ownership = -1

// view returns what this attempt needs to classify a record: the time, the arrival and the
// endpoint of its request, and whether there is a node.
func (a *attempt) view() ledger.View {
	return ledger.View{
		Now:      a.gate.Now(),
		Arrived:  a.request.Arrived,
		Node:     a.gate.Evidence != nil,
		Endpoint: a.job.Endpoint,
	}
}

// purchaseName returns the name of the purchase to which the payment belongs. The name is made
// from the payer's key. If there is no key, the name is made from the request, or it is empty
// for a job with NoImplicitRetry. An empty name means that no other payment can join the
// purchase.
func (a *attempt) purchaseName(key string) string {
	var id string
	switch {
	case key != "" && a.job.KeyScope != "":
		id = ledger.KeyID(digestOf(a.job.KeyScope + " " + key)) // a key has no space, so the last space separates the scope from the key
	case key != "":
		id = ledger.KeyID(digestOf(key))
	case a.job.NoImplicitRetry:
		return ""
	default:
		id = ledger.RequestID(digestOf(a.job.Fingerprint))
	}
	return ledger.PurchaseKey(a.terms.Network, a.request.Offer.asset.String(), a.payment.From.String(), id)
}

// ownershipOf says what the payment that owns a purchase means for this attempt. r is the
// record of the owner, or nil if that record no longer exists. ownershipOf does no I/O.
func (a *attempt) ownershipOf(r *ledger.Payment) ledger.Ownership {
	if r != nil && r.Request != a.job.Fingerprint {
		return ownerOtherRequest
	}
	return a.gate.Ledger.Ownership(r, a.view())
}

// These are the limits for joining a purchase.
const (
	// maxTurns is how often buy loads a purchase at most. If another attempt changes the
	// purchase, buy must load it again.
	maxTurns = 8
	// maxOwnerWait is how long a request waits at most while another attempt works on the
	// payment that owns the purchase. Meanwhile the record of the owner is read again after
	// each pause. The first pause is firstPause; each later one is twice as long, up to
	// maxPause. The request is not answered 409 at once, because the reference clients do not
	// retry after a 409.
	maxOwnerWait = 8 * time.Second
	firstPause   = 50 * time.Millisecond
	maxPause     = time.Second
)

// buy continues with a claimed payment that may have to be sent. It opens the purchase first,
// and sends the payment only if this payment owns the purchase. If another payment owns the
// purchase, join decides: the answer comes from the owner, or this payment takes the purchase
// over.
func (h *holder) buy(ctx context.Context) *Outcome {
	until := h.gate.Now().Add(min(maxOwnerWait, h.spareTime()))
	for range maxTurns {
		p, err := h.gate.Ledger.OpenPurchase(ctx, h.hold)
		switch {
		case errors.Is(err, ledger.ErrConflict):
			continue
		case err != nil:
			return h.endUnsent(ctx, ledgerFault(err, nil))
		case p.OwnedBy(h.hold):
			return h.fulfil(ctx)
		}
		if out := h.join(ctx, p, until); out != nil {
			return out
		}
	}
	return h.endUnsent(ctx, inProgress(nil))
}

// notePayee records the account to which the payment is sent. The write runs while the payment
// is sent, because no payer should wait for the write. If the write fails, the payment is sent
// nevertheless, and the next payment tries again to record the payee. The outcome of this
// payment can still be found as long as the payee does not change.
func (h *holder) notePayee(ctx context.Context) {
	if h.gate.Payees == nil {
		return
	}
	network := h.terms.Network
	amount := h.terms.Amount
	asset := h.request.Offer.asset.String()
	payee := strings.ToLower(h.terms.PayTo)
	h.dues.closing.Go(func() {
		if err := h.gate.Payees.Record(ctx, network, asset, payee, amount); err != nil {
			h.gate.Log.WarnContext(ctx, "payee not noted", "error", err)
		}
	})
}

// join answers a payment whose purchase belongs to another payment. It returns nil if the
// purchase must be loaded again.
func (h *holder) join(ctx context.Context, p *ledger.Purchase, until time.Time) *Outcome {
	owner, err := h.awaitOwner(ctx, p, until)
	if err != nil {
		return h.endUnsent(ctx, ledgerFault(err, nil))
	}
	switch h.ownershipOf(owner) {
	case ownerOtherRequest:
		return h.endUnsent(ctx, faultOutcome(fault.New(fault.IdempotencyConflict, nil), new(false)))
	case ledger.OwnerBusy:
		if !owner.SoldAt(h.job.Endpoint) {
			owner = nil // the receipt of the owner belongs to another endpoint, and is not shown here
		}
		return h.endUnsent(ctx, inProgress(owner))
	case ledger.OwnerAnswers:
		h.supersede(ctx, owner.Key)
		return h.answerFromOwner(ctx, *owner)
	case ledger.OwnerDoubt:
		return h.resolve(ctx, *owner, until)
	case ledger.OwnerDead, ledger.OwnerOver:
		return h.takeOver(ctx, p, owner)
	}
	return h.endUnsent(ctx, noRule())
}

// noRule returns the answer for a purchase whose owner fits no rule. That would be a bug.
func noRule() *Outcome {
	return faultOutcome(fault.New(fault.PaymentUnavailable, errors.New("no rule for the owner of this purchase")), nil)
}

// takeOver makes this payment the owner of the purchase, and then settles and answers this
// payment. formerOwner is the record of the previous owner, or nil if that record no longer
// exists. takeOver returns nil if another attempt has changed the record or the purchase
// meanwhile.
func (h *holder) takeOver(ctx context.Context, p *ledger.Purchase, formerOwner *ledger.Payment) *Outcome {
	if h.record().Owner != "" { // this payment is in doubt, and another payment of the purchase was answered in its place
		if out := h.answerOfOwner(ctx, formerOwner); out != nil {
			return h.endUnsent(ctx, out)
		}
	}
	p, err := h.gate.Ledger.ReplaceOwner(ctx, p, formerOwner, h.hold)
	switch {
	case errors.Is(err, ledger.ErrConflict):
		return nil
	case err != nil:
		return h.endUnsent(ctx, ledgerFault(err, nil))
	case !p.OwnedBy(h.hold):
		return h.endUnsent(ctx, noRule())
	}
	h.trace.Purchase = "taken_over"
	return h.fulfil(ctx)
}

// awaitOwner returns the record of a purchase's owner. While another attempt works on the
// owner, awaitOwner pauses and loads the record again. When the deadline comes, it returns the
// record as it was loaded last.
func (a *attempt) awaitOwner(ctx context.Context, p *ledger.Purchase, deadline time.Time) (*ledger.Payment, error) {
	pause := firstPause
	for {
		owner, err := a.gate.Ledger.Owner(ctx, p)
		if err != nil || a.ownershipOf(owner) != ledger.OwnerBusy {
			return owner, err
		}
		if !a.pause(ctx, pause, deadline) {
			return owner, nil
		}
		pause = min(2*pause, maxPause)
	}
}

// pause waits for d, and reports whether the whole of d has passed. It returns false at once
// if d would not end before the deadline, and returns false early if the request ends.
func (a *attempt) pause(ctx context.Context, d time.Duration, deadline time.Time) bool {
	if !a.gate.Now().Add(d).Before(deadline) {
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

// endUnsent records that this attempt sent nothing, and returns the answer. The same signature
// may then be sent again. If the payment is in doubt, earlier attempts may have moved its
// money. If the lease was lost, another attempt may have settled the payment meanwhile. In
// both cases, if the answer says "not charged", endUnsent changes it to "not known". Otherwise
// the payer would sign another payment.
func (h *holder) endUnsent(ctx context.Context, out *Outcome) *Outcome {
	reason := cmp.Or(h.record().Reason, "another payment of the purchase was under way")
	err := h.hold.End(withoutDeadline(ctx), ledger.EventNotSent, reason, "")
	h.wrote(ctx, "attempt not ended", err)
	h.noteState(h.record().State)
	unsure := h.record().Doubt || errors.Is(err, ledger.ErrLost)
	saysNo := out.Payment.Charged != nil && !*out.Payment.Charged
	if !unsure || !saysNo {
		return out
	}
	if out.Status == http.StatusPaymentRequired {
		return faultOutcome(fault.New(fault.SettlementUncertain, out.Fault), nil)
	}
	return out.setCharged(nil)
}

func inProgress(owner *ledger.Payment) *Outcome {
	out := faultOutcome(fault.New(fault.PaymentInProgress, nil), nil)
	if owner != nil && owner.Paid() {
		return out.withRecord(*owner)
	}
	return out
}

// supersede closes this payment, because the payment that owns the purchase is paid. The
// authorization of this payment is not sent any more, and expires unused. But if this payment
// is in doubt, it remains in doubt (ledger.Hold.Supersede).
func (h *holder) supersede(ctx context.Context, owner string) {
	err := h.hold.Supersede(withoutDeadline(ctx), owner)
	h.wrote(ctx, "superseded payment not ended", err)
	h.noteState(h.record().State)
}

// answerFromOwner answers from the record of the payment that owns the purchase. If the
// owner's answer is owed, answerFromOwner runs the owner's lookup.
func (a *attempt) answerFromOwner(ctx context.Context, owner ledger.Payment) *Outcome {
	ownerAttempt, c, err := a.resume(ctx, owner)
	if err != nil {
		return ledgerFault(err, new(true)).withResponse(successResponse(owner.Receipt))
	}
	return ownerAttempt.proceed(ctx, c)
}

// resume claims the lease of r, another payment of the same payer. It returns a copy of this
// attempt that continues with r.
func (a *attempt) resume(ctx context.Context, r ledger.Payment) (*attempt, ledger.Claim, error) {
	a.trace.Purchase = "joined"
	terms, err := TermsOf(r)
	if err != nil {
		return nil, ledger.Claim{}, err
	}
	ownerAttempt := *a
	ownerAttempt.hasJoined = true
	ownerAttempt.terms = terms
	ownerAttempt.claim = ledger.Submission{
		Key:        r.Key,
		AuthDigest: r.AuthDigest,
		Terms:      r.Terms,
		Asks:       a.claim.Asks,
	}
	c, err := a.gate.Ledger.Resume(ctx, r, a.claim.Asks, a.leaseEnd())
	return &ownerAttempt, c, err
}

// resolve finds out whether r, the payment that owns the purchase, was made. It sends r again
// as long as the authorization of r can still be executed, and asks the chain. If r was made,
// resolve returns the answer of r. It returns nil if r will never be made, or if another
// attempt is at work and the purchase must be loaded again. Otherwise it returns the outcome of
// r, such as a refusal.
//
// There are two special cases. If r was refused a moment ago, it is too early to send r again.
// resolve then waits, at most until the given time, and returns nil when r may be sent. It does
// not leave this wait to the client, because most clients do not ask again. If r was claimed at
// another endpoint, r is neither sent nor answered here. resolve then only asks the chain, and
// returns nil when the chain shows that r was made or never will be.
func (h *holder) resolve(ctx context.Context, r ledger.Payment, until time.Time) *Outcome {
	ownerAttempt, c, err := h.resume(ctx, r)
	switch {
	case err != nil:
		return h.endUnsent(ctx, ledgerFault(err, nil))
	case c.Result == ledger.Over && c.Wait > 0:
		if h.pause(ctx, c.Wait, until) {
			return nil
		}
		return h.endUnsent(ctx, h.explain(h.responder().ended(c.Record), c.Record))
	case c.Hold == nil:
		return nil // r cannot be claimed now, for example because another attempt holds its lease
	}
	owner := &holder{ownerAttempt, c.Hold}
	p, err := h.gate.Ledger.OpenPurchase(ctx, owner.hold)
	notOwner := err == nil && !p.OwnedBy(owner.hold)
	switch {
	case errors.Is(err, ledger.ErrConflict), notOwner:
		owner.endUnsent(ctx, &Outcome{})
		return nil
	case err != nil:
		return h.endUnsent(ctx, owner.endUnsent(ctx, ledgerFault(err, nil)))
	}
	otherEndpoint := !r.SoldAt(h.job.Endpoint)
	owner.provesNoRight = otherEndpoint
	out := owner.fulfil(ctx)
	switch now := owner.record(); {
	case now.Paid() && otherEndpoint:
		return nil
	case now.Paid():
		h.supersede(ctx, r.Key)
		return out
	case now.Disproved:
		return nil
	default:
		return h.endUnsent(ctx, h.explain(out, now))
	}
}

// explain tells the payer what else can be done after an answer from the purchase's owner. It
// changes the answer's text in two cases. In the first, the owner was refused for its
// signature, and blocks the purchase until its authorization expires. In the second, it is not
// known whether the owner's payment has moved money.
func (h *holder) explain(out *Outcome, owner ledger.Payment) *Outcome {
	f := out.Fault
	if f == nil {
		return out
	}
	badSignature := owner.State == ledger.Refused && owner.BadSignature
	if out.Status == http.StatusPaymentRequired && badSignature {
		out.Fault = f.Saying(f.Public() + " (an earlier signature for this purchase). That signature blocks the purchase while it is valid. To buy at once, send a new Idempotency-Key.")
		return out
	}
	if f.Code == fault.SettlementUncertain && out.Payment.Charged == nil {
		text := "Whether an earlier payment for this request moved money is not known yet."
		if h.gate.Evidence != nil {
			end := owner.ValidBefore.UTC().Format(time.RFC3339)
			text += " The chain will show it some minutes after " + end + "."
		}
		text += " Send this request again: it is never charged twice. With a new Idempotency-Key, it is a new purchase, and you may pay twice."
		out.Fault = f.Saying(text)
	}
	return out
}

// replaced answers an authorization that was superseded by another payment for the same
// purchase. If the payment that owns the purchase has an answer or owes one, that answer is
// given.
func (a *attempt) replaced(ctx context.Context, r ledger.Payment) *Outcome {
	p, err := a.gate.Ledger.Purchase(ctx, r.Purchase)
	if err != nil {
		return ledgerFault(err, nil)
	}
	var owner *ledger.Payment
	if p != nil && p.Owner != r.Key {
		until := a.gate.Now().Add(min(maxOwnerWait, a.spareTime()))
		owner, err = a.awaitOwner(ctx, p, until)
		if err != nil {
			return ledgerFault(err, nil)
		}
	}
	if out := a.answerOfOwner(ctx, owner); out != nil {
		return out
	}
	return refusalOutcome("this authorization was replaced by another payment for the same request, and is not charged: sign a new one", nil)
}

// answerOfOwner answers a superseded authorization from the payment that owns the purchase,
// while the owner's answer is owed or still kept. While another attempt works on the owner, the
// answer is 409. answerOfOwner returns nil if the owner has no answer for this endpoint.
func (a *attempt) answerOfOwner(ctx context.Context, owner *ledger.Payment) *Outcome {
	if owner != nil && !owner.SoldAt(a.job.Endpoint) {
		return nil
	}
	switch a.ownershipOf(owner) { //nolint:exhaustive // with all others, there is no such answer
	case ledger.OwnerBusy:
		return inProgress(owner)
	case ledger.OwnerAnswers:
		return a.answerFromOwner(ctx, *owner)
	case ledger.OwnerOver:
		kept := a.request.Arrived.Before(owner.AnsweredAt.Add(ledger.KeptFor))
		if owner.State == ledger.Redeemed && kept {
			return a.answerFromOwner(ctx, *owner)
		}
	}
	return nil
}
