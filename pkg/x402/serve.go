package x402

import (
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
// goroutine of the request outlives it, or Outcome.Finish where that is set.
func (g *Gate) Serve(ctx context.Context, r Request) Outcome {
	ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), r.Deadline)
	defer cancel()
	a := newAttempt(g, r)
	out := &Outcome{}
	defer func() {
		atFault := a.dues.atFault || a.dues.worked && out.Status == http.StatusPaymentRequired
		a.dues.close(ctx, atFault)
		a.dues.closing.Wait()
	}()
	out = a.serve(ctx)
	switch f := out.Fault; {
	case f == nil || out.Body != nil: // the answer of the work
	case out.Status == http.StatusPaymentRequired:
		a.trace.Reason = f.Public()
	default:
		a.trace.Cause = f
		out.Body = r.Error(f, out.Payment)
	}
	out.Trace = *a.trace
	return *out
}

// attempt is one signed request while it is served. What knows more than that is built on it:
// an admission, a holder of the payment's lease, and a lookup.
type attempt struct {
	gate    *Gate
	request Request
	payment *Payment
	claim   ledger.Submission
	terms   Requirements // what this payment is compared with, and settled under
	job     Job
	// joined says that claim is another payment of the same purchase, which owns it.
	joined bool
	// opensNothing says that the request proves nothing, and gets no answer.
	opensNothing bool
	dues         *dues
	trace        *Trace
}

func newAttempt(g *Gate, r Request) *attempt {
	return &attempt{
		gate:    g,
		request: r,
		dues:    &dues{log: g.Log},
		trace:   &Trace{},
	}
}

// dues are what a request has opened and must close: the count of its Meter and its
// slot. Both are closed once, concurrently with its last write if it looks up.
type dues struct {
	log   *slog.Logger
	meter Meter // nil when there is none, or it is closed
	slot  Slot  // nil when there is none, or it is released
	// worked says that a payment was claimed, or a facilitator or the chain asked: not
	// the request itself or a record decided.
	worked bool
	// atFault says that a facilitator's reply left doubt, or that it gave none
	// on a signature that only it can verify: the payer can have caused that.
	atFault bool
	closing sync.WaitGroup // of what runs beside the request, and ends before it does
}

// close begins to close what is open.
func (d *dues) close(ctx context.Context, atFault bool) {
	meter := d.meter
	slot := d.slot
	d.meter = nil
	d.slot = nil
	if meter != nil {
		d.closing.Go(func() { meter.Close(ctx, atFault) })
	}
	if slot != nil {
		d.closing.Go(func() { d.release(ctx, slot) })
	}
}

// release gives a slot back. One that cannot be given back expires by itself.
func (d *dues) release(ctx context.Context, s Slot) {
	if err := s.Release(ctx); err != nil {
		d.log.WarnContext(ctx, "slot not released", "error", err)
	}
}

func (a *attempt) serve(ctx context.Context) *Outcome {
	if err := a.identify(); err != nil {
		return refused(err.Error(), nil)
	}
	if m := a.request.Meter; m != nil { // after every check that needs no call
		if err := m.Open(ctx); err != nil {
			return failed(fault.From(err), nil)
		}
		a.dues.meter = m
	}
	if out := newAdmission(a).decide(ctx); out != nil {
		return out
	}
	return a.admitted(ctx)
}

// identify parses the payment of the request, recovers its signer where that can be done
// here, and prepares its claim. Its error says what is wrong with the payment.
func (a *attempt) identify() error {
	p, err := a.request.payment()
	if err != nil {
		return err
	}
	a.payment = p
	a.trace.Payer = p.From.String()
	a.trace.Nonce = "0x" + hex.EncodeToString(p.Nonce[:])
	a.trace.Amount = p.Value.String()
	offer := a.request.Offer.of(p, a.gate.Now())
	a.request.Offer = offer
	a.terms = offer.required.Accepts[0]
	if err := offer.fixed(p); err != nil {
		return err
	}
	digest := p.Digest(offer.domain)
	foreign := false
	if err := p.Check(digest); err != nil {
		foreign = errors.Is(err, errForeign)
		if !foreign {
			return err
		}
	}
	a.claim = ledger.Submission{
		Key:        ledger.Key(a.terms.Network, offer.asset.String(), p.From.String(), a.trace.Nonce),
		AuthDigest: hex.EncodeToString(digest[:]),
		SigDigest:  digestOf(string(p.Signature)),
		Terms:      offer.terms,
		// The window of a first claim is bounded, and this is read of no other.
		ValidBefore: time.Unix(p.ValidBefore.Int64(), 0).UTC(),
		Payload:     p.stored(),
		Recovered:   !foreign,
		NoNode:      a.gate.Evidence == nil,
		Asks:        a.gate.Settler.First(),
	}
	if token := p.token(); token != "" {
		a.claim.Token = digestOf(token) // only the digest is stored, and neither is logged
	}
	return nil
}

// admission decides whether the payment of a request may be claimed: by the terms that are
// offered now, the signer and, where they do not decide, the record of the payment. It asks
// the facilitator or the chain only where all of these do not decide.
type admission struct {
	*attempt
	mismatch error // how the payment differs from the terms that are offered now; nil is not at all
}

func newAdmission(a *attempt) admission {
	mismatch := a.request.Offer.today(a.payment, a.gate.Now())
	return admission{a, mismatch}
}

// decide returns nil if the payment may be claimed, and otherwise the answer.
func (a admission) decide(ctx context.Context) *Outcome {
	if a.mismatch == nil && a.claim.Recovered {
		return nil
	}
	return a.decideByRecord(ctx, false)
}

// decideByRecord is decide where the record of the payment counts. An authorization on record
// is claimed under the terms in its record. One that only a facilitator refused can still be
// paid, and is claimed under those that are offered now. used says that the facilitator has
// called the authorization used.
func (a admission) decideByRecord(ctx context.Context, used bool) *Outcome {
	r, err := a.gate.Ledger.Fetch(ctx, a.claim.Key)
	switch {
	case err != nil:
		return ledgerFault(err, nil)
	case r == nil:
		return a.decideWithoutRecord(ctx, used)
	case r.AuthDigest != a.claim.AuthDigest:
		return a.answers().otherNonce(*r, a.claim.Recovered)
	case r.Proof(a.claim) == ledger.Copied:
		return unproven(*r)
	case r.State != ledger.Refused || r.Disproved:
		return a.adopt(*r)
	case a.mismatch == nil:
		return nil
	}
	return a.refuseAgain(ctx, *r)
}

func (a admission) decideWithoutRecord(ctx context.Context, used bool) *Outcome {
	switch {
	case a.mismatch != nil:
		return refused(a.mismatch.Error(), nil)
	case used: // somebody else has submitted it, or it was cancelled: if money came, reconcile finds it
		return refused(alreadyUsed, nil).charged(nil)
	}
	return a.verify(ctx)
}

// refuseAgain answers a payment that a facilitator refused, and that does not fit the terms of
// today. A failed PAYMENT-RESPONSE tells a client that was left in doubt that it may sign
// again, but a third party can have submitted the payment since: where the chain can be asked,
// that header is sent only if it shows that the payment never will be made.
func (a admission) refuseAgain(ctx context.Context, r ledger.Payment) *Outcome {
	var response *SettleResponse
	switch a.find(ctx, r, Settlement{}, EvidenceBudget).Fate {
	case Paid:
		return a.adopt(r) // the claim asks the chain too, and finds it
	case CannotTell, StillOpen:
	default: // NeverPaid, noNode
		response = a.answers().failure(cmp.Or(r.Reason, "refused"))
	}
	return refused(a.mismatch.Error(), response)
}

// verify asks the facilitator about a signature that cannot be verified locally, of a
// payment that has no record. A facilitator cannot verify it once the authorization is
// used, and the payment may have been claimed while the facilitator was asked.
func (a admission) verify(ctx context.Context) *Outcome {
	a.dues.worked = true
	begun := a.gate.Now()
	v := a.verification(ctx)
	a.trace.Verify = a.since(begun)
	switch {
	case v.Fault != nil:
		a.dues.atFault = true
		return failed(v.Fault, new(false))
	case v.Valid:
		return nil
	case v.BadSignature:
		return refused("signature is not the payer's: "+v.Reason, nil)
	case !v.NonceUsed:
		return refused("the facilitator does not accept the payment: "+v.Reason, nil)
	}
	return a.decideByRecord(ctx, true)
}

// verification is what the Settler says about the payment's signature.
func (a admission) verification(ctx context.Context) Verification {
	ctx, cancel := context.WithTimeout(ctx, verifyBudget)
	defer cancel()
	payload := a.request.Offer.payload(a.payment.exact(), a.claim.Terms)
	return a.gate.Settler.Verify(ctx, payload, a.terms)
}

// adopt makes the terms in the record those that the payment is compared with.
func (a *attempt) adopt(r ledger.Payment) *Outcome {
	terms, err := TermsOf(r)
	if err != nil {
		return ledgerFault(err, nil)
	}
	a.terms = terms
	a.claim.Terms = r.Terms
	return nil
}

// admitted goes on with a payment that may be claimed.
func (a *attempt) admitted(ctx context.Context) *Outcome {
	key, err := purchaseKey(a.request.Keys, a.payment)
	if err == nil {
		a.job, err = a.request.Prepare()
	}
	if err != nil {
		return a.unclaimed(ctx, fault.From(err))
	}
	a.claim.Request = a.job.Fingerprint
	a.claim.Endpoint = a.job.Endpoint
	a.claim.Purchase = a.purchase(key)
	a.claim.MostLookups = a.job.MostRuns
	if a.spare() < LeastSettle {
		return failed(fault.New(fault.PaymentUnavailable, errors.New("too little time left to settle")), nil)
	}
	begun := a.gate.Now()
	c, err := a.gate.Ledger.Claim(ctx, a.claim, a.lease())
	a.trace.Claim = a.since(begun)
	if err != nil {
		return ledgerFault(err, nil)
	}
	a.seen(c.Record.State)
	return a.proceed(ctx, c)
}

// unclaimed answers a request that fails before its claim. The same payment may
// have been used before, so the record says whether it is charged.
func (a *attempt) unclaimed(ctx context.Context, f *fault.Error) *Outcome {
	r, err := a.gate.Ledger.Fetch(ctx, a.claim.Key)
	switch {
	case err != nil:
		return failed(f.Because(errors.Join(f, err)), nil)
	case r == nil:
		return failed(f, new(false))
	case r.AuthDigest == "": // money that came without a request
		return failed(f, nil).by(*r)
	case r.AuthDigest != a.claim.AuthDigest:
		return failed(f, new(false))
	case r.Proof(a.claim) != ledger.FromPayer:
		return failed(f, chargedBy(*r)) // no receipt: charged is public on the chain
	}
	return failed(f, nil).by(*r)
}

// proceed answers by the result of a claim.
func (a *attempt) proceed(ctx context.Context, c ledger.Claim) *Outcome {
	if c.SettlesOnly {
		return a.settleOnly(ctx, c)
	}
	if c.Result != ledger.Held {
		return a.fromRecord(ctx, c)
	}
	a.dues.worked = true
	h := &holder{a, c.Hold}
	if c.Record.State != ledger.Settling || a.joined {
		return h.fulfil(ctx)
	}
	if out := a.adopt(c.Record); out != nil {
		return h.endUnsent(ctx, out)
	}
	h.notePayee(ctx)
	if c.Record.Purchase != "" {
		return h.buy(ctx)
	}
	return h.fulfil(ctx)
}

// lease is when what this attempt holds ends.
func (a *attempt) lease() time.Time { return a.request.Deadline.Add(leaseMargin) }

// spare is the time that is left when the lookup's budget and the writes to the
// ledger are subtracted.
func (a *attempt) spare() time.Duration {
	return a.request.Deadline.Sub(a.gate.Now()) - a.job.Budget - afterwork
}

func (a *attempt) since(begun time.Time) time.Duration { return a.gate.Now().Sub(begun) }

// seen adds a state of the payment to the trace, unless it is the last one there.
func (a *attempt) seen(s ledger.State) {
	states := a.trace.States
	if len(states) == 0 || states[len(states)-1] != s {
		a.trace.States = append(states, s)
	}
}
