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

// Serve answers a signed request. The end of the client's context does not end the work: once
// money may move, Serve continues even if the client has disconnected. When Serve returns, all
// goroutines of the request have ended. If Outcome.Finish is set, they have ended only when
// Finish returns.
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
	case f == nil || out.Body != nil: // the answer already has its body
	case out.Status == http.StatusPaymentRequired:
		a.trace.Reason = f.Public()
	default:
		a.trace.Cause = f
		out.Body = r.Error(f, out.Payment)
	}
	out.Trace = *a.trace
	return *out
}

// attempt is the state of one signed request while it is served. An admission, a holder and a
// lookup embed it and add the state of their step.
type attempt struct {
	gate    *Gate
	request Request
	payment *Payment
	claim   ledger.Submission
	terms   Requirements // the terms with which this payment is compared and settled
	job     Job
	// hasJoined means that this attempt continues with another payment, which owns the purchase.
	// claim and terms are then about that other payment.
	hasJoined bool
	// provesNoRight means that the request does not prove a right to the answer. Its sender
	// therefore does not get the answer.
	provesNoRight bool
	dues          *dues
	trace         *Trace
}

func newAttempt(g *Gate, r Request) *attempt {
	return &attempt{
		gate:    g,
		request: r,
		dues:    &dues{log: g.Log},
		trace:   &Trace{},
	}
}

// dues holds what a request must close at its end: the count of its Meter, and its slot. Each
// is closed once. If the request runs a lookup, both are closed concurrently with the
// request's last write to the ledger.
type dues struct {
	log   *slog.Logger
	meter Meter // nil if there is none, or if it was closed
	slot  Slot  // nil if there is none, or if it was released
	// worked means that a payment was claimed, or that a facilitator or the chain was asked.
	// It is false if the request alone, or the request and a record, were enough for the
	// answer.
	worked bool
	// atFault means that the payer may have caused the outcome. One example is a facilitator's
	// reply that left doubt. Another is a missing verdict about a signature that only a
	// facilitator can verify.
	atFault bool
	closing sync.WaitGroup // waits for goroutines that must end before the request does
}

// close begins to close the Meter's count and the slot, if they are open. It does not wait.
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

// release gives a slot back. If that fails, the slot expires by itself.
func (d *dues) release(ctx context.Context, s Slot) {
	if err := s.Release(ctx); err != nil {
		d.log.WarnContext(ctx, "slot not released", "error", err)
	}
}

func (a *attempt) serve(ctx context.Context) *Outcome {
	if err := a.identify(); err != nil {
		return refusalOutcome(err.Error(), nil)
	}
	if m := a.request.Meter; m != nil { // the Meter is opened after every check that needs no call
		if err := m.Open(ctx); err != nil {
			return faultOutcome(fault.From(err), nil)
		}
		a.dues.meter = m
	}
	if out := newAdmission(a).decide(ctx); out != nil {
		return out
	}
	return a.serveAdmitted(ctx)
}

// identify parses the payment of the request, recovers its signer if this can be done locally,
// and prepares the claim. The error says what is wrong with the payment.
func (a *attempt) identify() error {
	p, err := a.request.payment()
	if err != nil {
		return err
	}
	a.payment = p
	a.trace.Payer = p.From.String()
	a.trace.Nonce = "0x" + hex.EncodeToString(p.Nonce[:])
	a.trace.Amount = p.Value.String()
	offer := a.request.Offer.matchingOffer(p, a.gate.Now())
	a.request.Offer = offer
	a.terms = offer.required.Accepts[0]
	if err := offer.checkFixed(p); err != nil {
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
		// Only the first claim of an authorization uses this value. The window of a first
		// claim is limited, so the end of the window fits into an int64.
		ValidBefore: time.Unix(p.ValidBefore.Int64(), 0).UTC(),
		Payload:     p.storedPayload(),
		Recovered:   !foreign,
		NoNode:      a.gate.Evidence == nil,
		Asks:        a.gate.Settler.First(),
	}
	if token := p.token(); token != "" {
		a.claim.Token = digestOf(token) // only the digest of the token is stored; neither the token nor the digest is logged
	}
	return nil
}

// admission decides whether the payment of a request may be claimed. It compares the payment
// with the terms of the current offer, and looks at the signer. If that does not decide, it
// reads the record of the payment. It asks the facilitator or the chain only if the record
// does not decide either.
type admission struct {
	*attempt
	mismatch error // how the payment differs from the terms of the current offer; nil if it does not differ
}

func newAdmission(a *attempt) admission {
	mismatch := a.request.Offer.checkCurrent(a.payment, a.gate.Now())
	return admission{a, mismatch}
}

// decide returns nil if the payment may be claimed. Otherwise it returns the answer.
func (a admission) decide(ctx context.Context) *Outcome {
	if a.mismatch == nil && a.claim.Recovered {
		return nil
	}
	return a.decideByRecord(ctx, false)
}

// decideByRecord is like decide, for a payment that may have a record. A payment on record is
// claimed under the terms in its record, with one exception. If a facilitator only refused the
// payment, it can still be paid, and is claimed under the terms of the current offer.
// reportedUsed means that the facilitator has reported the authorization as used.
func (a admission) decideByRecord(ctx context.Context, reportedUsed bool) *Outcome {
	r, err := a.gate.Ledger.Fetch(ctx, a.claim.Key)
	switch {
	case err != nil:
		return ledgerFault(err, nil)
	case r == nil:
		return a.decideWithoutRecord(ctx, reportedUsed)
	case r.AuthDigest != a.claim.AuthDigest:
		return a.responder().otherNonce(*r, a.claim.Recovered)
	case r.Proof(a.claim) == ledger.Copied:
		return unprovenOutcome(*r)
	case r.State != ledger.Refused || r.Disproved:
		return a.adoptTerms(*r)
	case a.mismatch == nil:
		return nil
	}
	return a.refuseAgain(ctx, *r)
}

func (a admission) decideWithoutRecord(ctx context.Context, used bool) *Outcome {
	switch {
	case a.mismatch != nil:
		return refusalOutcome(a.mismatch.Error(), nil)
	case used: // somebody else has submitted the authorization, or the payer has cancelled it; package reconcile finds the money, if any
		return refusalOutcome(reasonUsed, nil).setCharged(nil)
	}
	return a.verify(ctx)
}

// refuseAgain answers a payment that a facilitator refused and that does not fit the current
// offer. A PAYMENT-RESPONSE that reports a failure tells the client to sign again. But a third
// party may have submitted the payment after the refusal. Therefore, if there is a node, this
// PAYMENT-RESPONSE is sent only if the chain shows that the payment will never be made.
func (a admission) refuseAgain(ctx context.Context, r ledger.Payment) *Outcome {
	var response *SettleResponse
	switch a.find(ctx, r, Settlement{}, EvidenceBudget).Fate {
	case Paid:
		return a.adoptTerms(r) // the claim asks the chain again, and finds the payment
	case CannotTell, StillOpen:
	default: // NeverPaid, noNode
		response = a.responder().failureResponse(cmp.Or(r.Reason, "refused"))
	}
	return refusalOutcome(a.mismatch.Error(), response)
}

// verify asks the facilitator about a payment that has no record and whose signature cannot be
// verified locally. Once the authorization is used, the facilitator can no longer verify the
// signature. verify then reads the record again, because another request may have claimed the
// payment meanwhile.
func (a admission) verify(ctx context.Context) *Outcome {
	a.dues.worked = true
	begun := a.gate.Now()
	v := a.askSettler(ctx)
	a.trace.Verify = a.since(begun)
	switch {
	case v.Fault != nil:
		a.dues.atFault = true
		return faultOutcome(v.Fault, new(false))
	case v.Valid:
		return nil
	case v.BadSignature:
		return refusalOutcome("signature is not the payer's: "+v.Reason, nil)
	case !v.NonceUsed:
		return refusalOutcome("the facilitator does not accept the payment: "+v.Reason, nil)
	}
	return a.decideByRecord(ctx, true)
}

// askSettler returns what the Settler says about the payment's signature.
func (a admission) askSettler(ctx context.Context) Verification {
	ctx, cancel := context.WithTimeout(ctx, verifyBudget)
	defer cancel()
	payload := a.request.Offer.payload(a.payment.exactPayload(), a.claim.Terms)
	return a.gate.Settler.Verify(ctx, payload, a.terms)
}

// adoptTerms makes this attempt use the terms in the record. It returns nil, or an error
// answer if these terms cannot be read.
func (a *attempt) adoptTerms(r ledger.Payment) *Outcome {
	terms, err := TermsOf(r)
	if err != nil {
		return ledgerFault(err, nil)
	}
	a.terms = terms
	a.claim.Terms = r.Terms
	return nil
}

// serveAdmitted continues with a payment that the Gate is allowed to claim.
func (a *attempt) serveAdmitted(ctx context.Context) *Outcome {
	key, err := purchaseKey(a.request.Keys, a.payment)
	if err == nil {
		a.job, err = a.request.Prepare()
	}
	if err != nil {
		return a.answerUnclaimed(ctx, fault.From(err))
	}
	a.claim.Request = a.job.Fingerprint
	a.claim.Endpoint = a.job.Endpoint
	a.claim.Purchase = a.purchaseName(key)
	a.claim.MostLookups = a.job.MostRuns
	if a.spareTime() < LeastSettle {
		return faultOutcome(fault.New(fault.PaymentUnavailable, errors.New("too little time left to settle")), nil)
	}
	begun := a.gate.Now()
	c, err := a.gate.Ledger.Claim(ctx, a.claim, a.leaseEnd())
	a.trace.Claim = a.since(begun)
	if err != nil {
		return ledgerFault(err, nil)
	}
	a.noteState(c.Record.State)
	return a.proceed(ctx, c)
}

// answerUnclaimed answers a request that failed before its claim. An earlier request may have
// used the same payment. Therefore the record, if any, says whether the payment was charged.
func (a *attempt) answerUnclaimed(ctx context.Context, f *fault.Error) *Outcome {
	r, err := a.gate.Ledger.Fetch(ctx, a.claim.Key)
	switch {
	case err != nil:
		return faultOutcome(f.Because(errors.Join(f, err)), nil)
	case r == nil:
		return faultOutcome(f, new(false))
	case r.AuthDigest == "": // money that came without a request
		return faultOutcome(f, nil).withRecord(*r)
	case r.AuthDigest != a.claim.AuthDigest:
		return faultOutcome(f, new(false))
	case r.Proof(a.claim) != ledger.FromPayer:
		return faultOutcome(f, chargedBy(*r)) // the sender may not be the payer, and gets no receipt; the chain shows everybody whether the payment was charged
	}
	return faultOutcome(f, nil).withRecord(*r)
}

// proceed continues with the result of a claim.
func (a *attempt) proceed(ctx context.Context, c ledger.Claim) *Outcome {
	if c.SettlesOnly {
		return a.settleOnly(ctx, c)
	}
	if c.Result != ledger.Held {
		return a.answerFromRecord(ctx, c)
	}
	a.dues.worked = true
	h := &holder{a, c.Hold}
	if c.Record.State != ledger.Settling || a.hasJoined {
		return h.fulfil(ctx)
	}
	if out := a.adoptTerms(c.Record); out != nil {
		return h.endUnsent(ctx, out)
	}
	h.notePayee(ctx)
	if c.Record.Purchase != "" {
		return h.buy(ctx)
	}
	return h.fulfil(ctx)
}

// leaseEnd returns the time at which the leases of this attempt end.
func (a *attempt) leaseEnd() time.Time { return a.request.Deadline.Add(leaseMargin) }

// spareTime returns the time until the deadline, less the job's budget and the time for writes
// to the ledger.
func (a *attempt) spareTime() time.Duration {
	return a.request.Deadline.Sub(a.gate.Now()) - a.job.Budget - writeTime
}

func (a *attempt) since(begun time.Time) time.Duration { return a.gate.Now().Sub(begun) }

// noteState adds a state of the payment to the trace, unless it is already the last state in
// the trace.
func (a *attempt) noteState(s ledger.State) {
	states := a.trace.States
	if len(states) == 0 || states[len(states)-1] != s {
		a.trace.States = append(states, s)
	}
}
