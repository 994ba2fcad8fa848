package x402

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// Serve answers a signed request. It does not end with the client's context:
// once money may move, the work is finished even if the client has gone. No
// goroutine of the request outlives it.
func (g *Gate) Serve(ctx context.Context, r Request) Outcome {
	ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), r.Deadline)
	defer cancel()
	a := &attempt{gate: &g.config, request: r, dues: &dues{log: g.config.Log}, trace: &Trace{}}
	out := &Outcome{}
	defer func() {
		a.dues.close(ctx, a.dues.doubted || out.Status == http.StatusPaymentRequired && !out.recorded)
		a.dues.closing.Wait()
	}()
	out = a.serve(ctx)
	out.Trace = *a.trace
	return *out
}

// attempt is one signed request while it is served.
type attempt struct {
	gate    *GateConfig
	request Request
	payment *Payment
	claim   ledger.Payment
	terms   Requirements // what this payment is judged by and settled under
	key     string       // the purchase key, or empty
	badKey  error        // what is wrong with it
	job     Job
	resend  bool // it sends another payment of the purchase again, before its window ends
	dues    *dues
	trace   *Trace
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

func (a *attempt) serve(ctx context.Context) *Outcome {
	if out := a.admit(ctx); out != nil {
		return out
	}
	if a.badKey != nil {
		return a.unclaimed(ctx, fault.From(a.badKey))
	}
	job, err := a.request.Prepare()
	if err != nil {
		return a.unclaimed(ctx, fault.From(err))
	}
	a.job = job
	a.claim.Request, a.claim.Purchase = job.Fingerprint, a.purchase()
	if a.settleTime(false) < leastSettle {
		return a.fail(fault.New(fault.PaymentUnavailable, errors.New("too little time left to settle")), nil)
	}
	begun := a.gate.Now()
	c, err := a.gate.Ledger.Claim(ctx, a.claim, a.lease())
	a.trace.Claim = a.since(begun)
	if err != nil {
		return a.ledgerFault(err, nil)
	}
	a.seen(c.Record.State)
	return a.proceed(ctx, c)
}

// admit decides whether a payment may be claimed. It returns nil if it may, and
// otherwise the answer. Only the rate limit is written, and the ledger, the
// facilitator or the chain are asked only where the header does not decide.
func (a *attempt) admit(ctx context.Context) *Outcome {
	p, err := a.request.payment()
	if err != nil {
		return a.refuse(err.Error(), nil)
	}
	a.payment = p
	a.trace.Payer, a.trace.Nonce, a.trace.Amount = p.From.String(), "0x"+hex.EncodeToString(p.Nonce[:]), p.Value.String()
	offer := a.request.Offer.of(p, a.gate.Now())
	a.request.Offer = offer
	if err := offer.fixed(p); err != nil {
		return a.refuse(err.Error(), nil)
	}
	digest := p.Digest(offer.domain)
	err = p.Check(digest)
	if err != nil && !errors.Is(err, errForeign) {
		return a.refuse(err.Error(), nil)
	}
	a.terms = offer.required.Accepts[0]
	a.identify(digest, err == nil)
	if m := a.request.Meter; m != nil { // after every check that needs no call
		if err := m.Open(ctx); err != nil {
			return a.fail(fault.From(err), nil)
		}
		a.dues.meter = m
	}
	return a.judge(ctx, offer.today(p, a.gate.Now()), false)
}

// identify names the payment for the ledger. recovered says that the payer's own key
// made the signature.
func (a *attempt) identify(digest [32]byte, recovered bool) {
	p := a.payment
	a.claim = ledger.Payment{
		Key:         ledger.Key(a.terms.Network, a.request.Offer.asset.String(), p.From.String(), a.trace.Nonce),
		AuthDigest:  hex.EncodeToString(digest[:]),
		SigDigest:   digestOf(string(p.Signature)),
		Terms:       a.request.Offer.terms,
		ValidBefore: a.validBefore(),
		Payload:     p.stored(),
		Recovered:   recovered,
		Asks:        a.gate.Fallback.asksFirst(),
	}
	a.key, a.badKey = purchaseKey(a.request.Keys, p)
	if t := p.token(); t != "" {
		a.claim.Token = digestOf(t) // only the digest is stored, and neither is logged
	}
}

// validBefore is the end of the authorization's window, bounded so that a hostile
// value cannot keep a row for ever. The window of a first claim ends earlier.
func (a *attempt) validBefore() time.Time {
	most := a.gate.Now().Add(2 * mostWindow)
	if v := a.payment.ValidBefore; v.IsInt64() && v.Int64() < most.Unix() {
		return time.Unix(v.Int64(), 0).UTC()
	}
	return most.UTC()
}

// purchase is what the payment buys: what the payer's key names, or else the request;
// empty when it is a purchase by itself.
func (a *attempt) purchase() string {
	id := byKey + digestOf(a.key)
	if a.key == "" {
		if a.job.NoImplicitRetry {
			return ""
		}
		id = "request:" + digestOf(a.job.Fingerprint)
	}
	return ledger.PurchaseKey(a.terms.Network, a.request.Offer.asset.String(), a.payment.From.String(), id)
}

// judge decides by the terms that are offered now, the signer and, where they do not
// decide, the record of the payment. mismatch is how the payment differs from the
// terms, or nil; used says that the facilitator has called its authorization used.
//
// An authorization on record is claimed under the terms in its record, but one that a
// facilitator refused, and evidence did not, under those that are offered now: that
// payment can still be made.
func (a *attempt) judge(ctx context.Context, mismatch error, used bool) *Outcome {
	if mismatch == nil && a.claim.Recovered {
		return nil
	}
	r, err := a.gate.Ledger.Fetch(ctx, a.claim.Key)
	switch {
	case err != nil:
		return a.ledgerFault(err, nil)
	case r == nil && mismatch != nil:
		return a.refuse(mismatch.Error(), nil).byRecord()
	case r == nil && !used:
		return a.verify(ctx)
	case r == nil: // somebody else has submitted it, or it was cancelled: if money came, reconcile finds it
		out := a.refuse(alreadyUsed, nil)
		out.Payment.Charged = nil
		return out
	case r.AuthDigest != a.claim.AuthDigest:
		return a.otherNonce(*r, a.claim.Recovered).byRecord()
	case !r.Vouches(a.claim):
		return a.unproven(*r)
	case r.State != ledger.Refused || r.Disproved:
		return a.adopt(*r)
	case mismatch == nil:
		return nil
	}
	return a.refusedBefore(ctx, *r, mismatch)
}

// adopt makes the terms in the record those that the payment is judged by.
func (a *attempt) adopt(r ledger.Record) *Outcome {
	if bytes.Equal(r.Terms, a.claim.Terms) {
		return nil
	}
	if err := unmarshalTerms(r, &a.terms); err != nil {
		return a.ledgerFault(err, nil)
	}
	a.claim.Terms = r.Terms
	return nil
}

// refusedBefore answers a payment that was refused and does not fit the terms offered
// now. A failed PAYMENT-RESPONSE tells a client that was left in doubt that it may sign
// anew, but a third party can have submitted the payment since: where the chain can be
// asked, that header is sent only if the chain shows that it was not and will not be.
func (a *attempt) refusedBefore(ctx context.Context, r ledger.Record, mismatch error) *Outcome {
	out := a.refuse(mismatch.Error(), a.failure(cmp.Or(r.Reason, "refused")))
	switch f := a.find(ctx, r, Settlement{}, evidenceBudget); f.Verdict {
	case noNode:
		return out.byRecord()
	case Paid:
		return a.adopt(r) // the claim asks the chain too, and finds it
	case CannotTell, StillOpen:
		out.Receipt = nil
	default: // NeverPaid
	}
	return out
}

// verify asks the facilitator about a signature that cannot be verified locally, of a
// payment that has no record. It cannot judge that of an authorization that is used
// already. That may have been claimed while the facilitator was asked.
func (a *attempt) verify(ctx context.Context) *Outcome {
	begun := a.gate.Now()
	v := a.verification(ctx)
	a.trace.Verify = a.since(begun)
	switch {
	case v.Fault != nil:
		a.dues.doubted = true
		return a.fail(v.Fault, new(false))
	case v.Valid:
		return nil
	case v.BadSignature:
		return a.refuse("signature is not the payer's: "+v.Reason, nil)
	case !v.NonceUsed:
		return a.refuse("the facilitator does not accept the payment: "+v.Reason, nil)
	}
	return a.judge(ctx, nil, true)
}

// unclaimed answers a request that fails before its claim. The same payment may
// have been used before, so the record says whether it is charged.
func (a *attempt) unclaimed(ctx context.Context, f *fault.Error) *Outcome {
	r, err := a.gate.Ledger.Fetch(ctx, a.claim.Key)
	switch {
	case err != nil:
		return a.fail(f.Because(errors.Join(f, err)), nil)
	case r == nil || r.AuthDigest != a.claim.AuthDigest && r.AuthDigest != "":
		return a.fail(f, new(false))
	case r.AuthDigest != "" && !r.Vouches(a.claim):
		return a.fail(f, chargedBy(*r)) // no receipt: charged is public on the chain
	}
	return a.fail(f, chargedBy(*r)).with(responseOf(*r))
}

// proceed answers by the result of a claim.
func (a *attempt) proceed(ctx context.Context, c ledger.Claim) *Outcome {
	if c.Result != ledger.Held {
		return a.fromRecord(ctx, c).byRecord()
	}
	if c.Record.State != ledger.Settling || a.resend {
		return a.held(ctx, c.Hold)
	}
	if out := a.adopt(c.Record); out != nil {
		return a.endUnsent(ctx, c.Hold, out)
	}
	return a.buy(ctx, c.Hold)
}

// alreadyUsed is the reason of a 402 that says the same whatever the record is: who
// sends a copy from the chain learns nothing from it, and a payer whose client leaves
// out the extensions of offers learns what to do.
const alreadyUsed = "authorization already used: sign a new one for the same request, with the same Idempotency-Key if it had one; an answer that is owed, or was given a moment ago, comes without another charge"

// unproven answers an authorization that has a record, from a sender who does not
// prove to be its payer. Anybody can copy it from the chain, so the answer has no
// receipt, and no alarm counts it.
func (a *attempt) unproven(r ledger.Record) *Outcome {
	out := a.refuse(alreadyUsed, nil).byRecord()
	out.Payment.Charged = chargedBy(r)
	return out
}

// byRecord marks an answer as one that neither the facilitator nor the chain was
// asked for.
func (o *Outcome) byRecord() *Outcome {
	o.recorded = true
	return o
}

// chargedBy is whether money has moved by what a record says; nil is not known.
func chargedBy(r ledger.Record) *bool {
	switch r.State { //nolint:exhaustive // the others say nothing about it
	case ledger.Settled, ledger.Redeemed, ledger.Refunded:
		return new(true)
	case ledger.Refused, ledger.Superseded:
		return new(false)
	}
	return nil
}

// refuse answers 402 with a reason, which is also logged. receipt is set after a
// failed settlement.
func (a *attempt) refuse(reason string, receipt *SettleResponse) *Outcome {
	a.trace.Reason = reason
	return &Outcome{
		Status: http.StatusPaymentRequired, Fault: fault.Newf(fault.PaymentRequired, nil, "%s", reason),
		Payment: PaymentStatus{Charged: new(false)}, Receipt: receipt,
	}
}

// refuseAs answers 402, with charged and receipt from the record.
func (a *attempt) refuseAs(reason string, r ledger.Record) *Outcome {
	out := a.refuse(reason, responseOf(r))
	out.Payment.Charged = chargedBy(r)
	return out
}

// fail answers an error. charged is whether money has moved; nil is not known.
func (a *attempt) fail(f *fault.Error, charged *bool) *Outcome {
	return a.failWith(f, PaymentStatus{Charged: charged, Retryable: f.Info().Retry})
}

func (a *attempt) failWith(f *fault.Error, s PaymentStatus) *Outcome {
	a.trace.Cause = f
	return &Outcome{Status: f.Info().Status, Body: a.request.Error(f, s), Fault: f, Payment: s}
}

// ledgerFault answers a store that failed, or a record that breaks the ledger's
// rules.
func (a *attempt) ledgerFault(err error, charged *bool) *Outcome {
	code := fault.LedgerUnavailable
	if errors.Is(err, ledger.ErrCorrupt) || errors.Is(err, ledger.ErrIllegal) {
		code = fault.PaymentUnavailable
	}
	return a.fail(fault.New(code, err), charged)
}

// lease is when what this attempt holds ends.
func (a *attempt) lease() time.Time { return a.request.Deadline.Add(leaseMargin) }

// spare is the time that is left when the lookup's budget and the writes to the
// ledger are subtracted.
func (a *attempt) spare() time.Duration {
	return a.request.Deadline.Sub(a.gate.Now()) - a.job.Budget - afterwork
}

// settleTime is how long a settlement may take. Of a payment that was sent before it
// leaves time to ask the chain afterwards.
func (a *attempt) settleTime(sent bool) time.Duration {
	left := a.spare()
	switch {
	case !sent || a.gate.Evidence == nil:
	case a.gate.Fallback != nil:
		left -= chainBudget
	default:
		left -= evidenceBudget
	}
	return min(left, settleBudget)
}

func (a *attempt) since(begun time.Time) time.Duration { return a.gate.Now().Sub(begun) }

func (a *attempt) seen(s ledger.State) {
	if n := len(a.trace.States); n == 0 || a.trace.States[n-1] != s {
		a.trace.States = append(a.trace.States, s)
	}
}
