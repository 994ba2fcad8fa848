package x402

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"net/http"
	"strings"
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
	a := &attempt{gate: g, request: r, dues: &dues{}, trace: &Trace{}}
	out := &Outcome{}
	defer func() {
		a.close(ctx, a.dues.atFault || a.dues.worked && out.Status == http.StatusPaymentRequired)
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

// attempt is one signed request while it is served.
type attempt struct {
	gate    *Gate
	request Request
	payment *Payment
	claim   ledger.Submission
	terms   Requirements // what this payment is judged by and settled under
	job     Job
	resend  bool // it sends another payment of the purchase again, before its window ends
	// opensNothing says that the request proves nothing, and gets no answer.
	opensNothing bool
	dues         *dues
	trace        *Trace
}

// dues are what a request has opened and must close: the count of its Meter and its
// slot. Both are closed once, concurrently with its last write if it looks up.
type dues struct {
	meter Meter // nil when there is none, or it is closed
	slot  Slot  // nil when there is none, or it is released
	// worked says that a payment was claimed, or a facilitator or the chain asked: not
	// the request itself or a record decided.
	worked bool
	// atFault says that a facilitator's verdict left doubt, or that it gave none
	// on a signature that only it can judge: the payer can have caused that.
	atFault bool
	closing sync.WaitGroup // of what runs beside the request, and ends before it does
}

// close begins to close what is open.
func (a *attempt) close(ctx context.Context, atFault bool) {
	if m := a.dues.meter; m != nil {
		a.dues.closing.Go(func() { m.Close(ctx, atFault) })
	}
	if s := a.dues.slot; s != nil {
		a.dues.closing.Go(func() { a.release(ctx, s) })
	}
	a.dues.meter = nil
	a.dues.slot = nil
}

// release gives a slot back. One that cannot be given back expires by itself.
func (a *attempt) release(ctx context.Context, s Slot) {
	if err := s.Release(ctx); err != nil {
		a.gate.Log.WarnContext(ctx, "slot not released", "error", err)
	}
}

func (a *attempt) serve(ctx context.Context) *Outcome {
	if out := a.admit(ctx); out != nil {
		return out
	}
	return a.admitted(ctx)
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
	if a.settleTime(false) < LeastSettle {
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

// admit decides whether a payment may be claimed. It returns nil if it may, and
// otherwise the answer. Only the rate limit is written, and the ledger, the
// facilitator or the chain are asked only where the header does not decide.
func (a *attempt) admit(ctx context.Context) *Outcome {
	p, err := a.request.payment()
	if err != nil {
		return refused(err.Error(), nil)
	}
	a.payment = p
	a.trace.Payer = p.From.String()
	a.trace.Nonce = "0x" + hex.EncodeToString(p.Nonce[:])
	a.trace.Amount = p.Value.String()
	offer := a.request.Offer.of(p, a.gate.Now())
	a.request.Offer = offer
	if err := offer.fixed(p); err != nil {
		return refused(err.Error(), nil)
	}
	digest := p.Digest(offer.domain)
	err = p.Check(digest)
	if err != nil && !errors.Is(err, errForeign) {
		return refused(err.Error(), nil)
	}
	a.terms = offer.required.Accepts[0]
	a.claim = ledger.Submission{
		Key:        ledger.Key(a.terms.Network, offer.asset.String(), p.From.String(), a.trace.Nonce),
		AuthDigest: hex.EncodeToString(digest[:]),
		SigDigest:  digestOf(string(p.Signature)),
		Terms:      offer.terms,
		// The window of a first claim is bounded, and this is read of no other.
		ValidBefore: time.Unix(p.ValidBefore.Int64(), 0).UTC(),
		Payload:     p.stored(),
		Recovered:   err == nil,
		NoNode:      a.gate.Evidence == nil,
		Asks:        a.gate.Settler.First(),
	}
	if t := p.token(); t != "" {
		a.claim.Token = digestOf(t) // only the digest is stored, and neither is logged
	}
	if m := a.request.Meter; m != nil { // after every check that needs no call
		if err := m.Open(ctx); err != nil {
			return failed(fault.From(err), nil)
		}
		a.dues.meter = m
	}
	return a.judge(ctx, offer.today(p, a.gate.Now()), false)
}

// judge decides by the terms that are offered now, the signer and, where they do not
// decide, the record of the payment. mismatch is how the payment differs from the
// terms, or nil; used says that the facilitator has called its authorization used.
// An authorization on record is claimed under the terms in its record. One that only a
// facilitator refused can still be paid, and is claimed under those that are offered now.
func (a *attempt) judge(ctx context.Context, mismatch error, used bool) *Outcome {
	if mismatch == nil && a.claim.Recovered {
		return nil
	}
	r, err := a.gate.Ledger.Fetch(ctx, a.claim.Key)
	switch {
	case err != nil:
		return ledgerFault(err, nil)
	case r == nil && mismatch != nil:
		return refused(mismatch.Error(), nil)
	case r == nil && !used:
		return a.verify(ctx)
	case r == nil: // somebody else has submitted it, or it was cancelled: if money came, reconcile finds it
		return refused(alreadyUsed, nil).charged(nil)
	case r.AuthDigest != a.claim.AuthDigest:
		return a.otherNonce(*r, a.claim.Recovered)
	case r.Proof(a.claim) == ledger.Copied:
		return unproven(*r)
	case r.State != ledger.Refused || r.Disproved:
		return a.adopt(*r)
	case mismatch == nil:
		return nil
	}
	// A failed PAYMENT-RESPONSE tells a client that was left in doubt that it may sign
	// anew, but a third party can have submitted the payment since: where the chain can
	// be asked, that header is sent only if it shows that the payment never will be made.
	failure := a.failure(cmp.Or(r.Reason, "refused"))
	switch a.find(ctx, *r, Settlement{}, EvidenceBudget).Verdict {
	case Paid:
		return a.adopt(*r) // the claim asks the chain too, and finds it
	case CannotTell, StillOpen:
		failure = nil
	default: // NeverPaid, noNode
	}
	return refused(mismatch.Error(), failure)
}

// adopt makes the terms in the record those that the payment is judged by.
func (a *attempt) adopt(r ledger.Payment) *Outcome {
	terms, err := TermsOf(r)
	if err != nil {
		return ledgerFault(err, nil)
	}
	a.terms = terms
	a.claim.Terms = r.Terms
	return nil
}

// verify asks the facilitator about a signature that cannot be verified locally, of a
// payment that has no record. A facilitator cannot judge it once the authorization is
// used, and the payment may have been claimed while the facilitator was asked.
func (a *attempt) verify(ctx context.Context) *Outcome {
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
	return a.judge(ctx, nil, true)
}

// verification is what the Settler says about the payment's signature.
func (a *attempt) verification(ctx context.Context) Verification {
	ctx, cancel := context.WithTimeout(ctx, verifyBudget)
	defer cancel()
	return a.gate.Settler.Verify(ctx, a.request.Offer.payload(a.payment.exact(), a.claim.Terms), a.terms)
}

// purchase is what the payment buys: what the payer's key names, or else the request;
// empty when it is a purchase by itself.
func (a *attempt) purchase(key string) string {
	id := ledger.KeyID(digestOf(a.scoped(key)))
	if key == "" {
		if a.job.NoImplicitRetry {
			return ""
		}
		id = ledger.RequestID(digestOf(a.job.Fingerprint))
	}
	return ledger.PurchaseKey(a.terms.Network, a.request.Offer.asset.String(), a.payment.From.String(), id)
}

// scoped is a payer's key as it names one purchase. No key has a space.
func (a *attempt) scoped(key string) string {
	if a.job.KeyScope == "" {
		return key
	}
	return a.job.KeyScope + " " + key
}

// unclaimed answers a request that fails before its claim. The same payment may
// have been used before, so the record says whether it is charged.
func (a *attempt) unclaimed(ctx context.Context, f *fault.Error) *Outcome {
	r, err := a.gate.Ledger.Fetch(ctx, a.claim.Key)
	switch {
	case err != nil:
		return failed(f.Because(errors.Join(f, err)), nil)
	case r == nil || r.AuthDigest != a.claim.AuthDigest && r.AuthDigest != "":
		return failed(f, new(false))
	case r.AuthDigest != "" && r.Proof(a.claim) != ledger.FromPayer:
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
	if c.Record.State != ledger.Settling || a.resend {
		return a.held(ctx, c.Hold)
	}
	if out := a.adopt(c.Record); out != nil {
		return a.endUnsent(ctx, c.Hold, out)
	}
	a.notePayee(ctx)
	if c.Record.Purchase != "" {
		return a.buy(ctx, c.Hold)
	}
	return a.held(ctx, c.Hold)
}

// notePayee has it on record whom the payment is sent to, while it is being sent, because no
// payer should wait for that. One that cannot be noted is sent all the same: what comes of it is
// found as long as the payee stays, and the next payment is noted.
func (a *attempt) notePayee(ctx context.Context) {
	if a.gate.Payees == nil {
		return
	}
	network := a.terms.Network
	amount := a.terms.Amount
	asset := a.request.Offer.asset.String()
	payee := strings.ToLower(a.terms.PayTo)
	a.dues.closing.Go(func() {
		if err := a.gate.Payees.Note(ctx, network, asset, payee, amount); err != nil {
			a.gate.Log.WarnContext(ctx, "payee not noted", "error", err)
		}
	})
}

// lease is when what this attempt holds ends.
func (a *attempt) lease() time.Time { return a.request.Deadline.Add(leaseMargin) }

// spare is the time that is left when the lookup's budget and the writes to the
// ledger are subtracted.
func (a *attempt) spare() time.Duration {
	return a.request.Deadline.Sub(a.gate.Now()) - a.job.Budget - afterwork
}

// settleTime is how long a settlement may take. For a payment that was sent before, it
// leaves time to ask the chain afterwards.
func (a *attempt) settleTime(sent bool) time.Duration {
	left := a.spare()
	if sent && a.gate.Evidence != nil {
		left -= a.gate.Settler.Reserve()
	}
	return min(left, settleBudget)
}

func (a *attempt) since(begun time.Time) time.Duration { return a.gate.Now().Sub(begun) }

func (a *attempt) seen(s ledger.State) {
	if n := len(a.trace.States); n == 0 || a.trace.States[n-1] != s {
		a.trace.States = append(a.trace.States, s)
	}
}
