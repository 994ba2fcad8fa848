package x402

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"time"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// admit decides whether a payment may be claimed: steps 3 and 4 of a priced
// request. It returns an answer when it may not. Nothing is written, and only
// where the facts of the header do not decide is anything read or asked.
func (a *attempt) admit(ctx context.Context) *Outcome {
	p, err := DecodePayment(a.request.Signature)
	if err != nil {
		return a.no(err)
	}
	a.payment = p
	a.trace.Payer, a.trace.Nonce = p.From.String(), "0x"+hex.EncodeToString(p.Nonce[:])
	offer := a.request.Offer
	if err := offer.fixed(p); err != nil {
		return a.no(err)
	}
	digest := p.Digest(offer.domain)
	signature := p.Check(digest)
	if signature != nil && !errors.Is(signature, errForeign) {
		return a.no(signature)
	}
	a.terms = offer.required.Accepts[0]
	a.identify(digest)
	terms := offer.today(p, a.gate.now())
	if terms == nil && signature == nil {
		return nil
	}
	return a.byRecord(ctx, terms, signature)
}

// identify names the payment for the ledger.
func (a *attempt) identify(digest [32]byte) {
	p := a.payment
	sum := sha256.Sum256(p.Signature)
	a.claim = ledger.Payment{
		Key:         ledger.Key(a.terms.Network, a.request.Offer.asset.String(), p.From.String(), a.trace.Nonce),
		AuthDigest:  hex.EncodeToString(digest[:]),
		SigDigest:   hex.EncodeToString(sum[:]),
		Terms:       a.request.Offer.terms,
		ValidBefore: a.validBefore(),
	}
}

// validBefore as a time, bounded so that a hostile one cannot keep a row for
// ever. A first claim is never that far ahead.
func (a *attempt) validBefore() time.Time {
	most := a.gate.now().Add(2 * mostWindow)
	if v := a.payment.ValidBefore; v.IsInt64() && v.Int64() < most.Unix() {
		return time.Unix(v.Int64(), 0).UTC()
	}
	return most.UTC()
}

// byRecord admits a payment that fails today's terms, or whose signer is not
// known, when the ledger knows it already: what is owed and what is replayed
// survives the window, a price change and a deploy. Otherwise the terms
// decide, and then the facilitator.
func (a *attempt) byRecord(ctx context.Context, terms, signature error) *Outcome {
	r, err := a.gate.ledger.Fetch(ctx, a.claim.Key)
	if err != nil {
		out := a.ledgerFault(err, nil)
		return &out
	}
	if r != nil && a.known(*r, signature) {
		if err := a.adopt(*r); err != nil {
			out := a.ledgerFault(err, nil)
			return &out
		}
		return nil
	}
	if terms == nil {
		return a.verify(ctx, r)
	}
	if r != nil && r.State == ledger.Refused && a.vouched(*r, signature) {
		return a.over(ctx, *r, terms)
	}
	return a.no(terms)
}

// over answers a payment that was refused and that today's terms refuse as well.
// A client that was left in doubt learns from a failed PAYMENT-RESPONSE that it
// may sign anew; but a third party can have submitted the payment since, so with
// a view of the chain that says so, or nothing, there is no such word.
func (a *attempt) over(ctx context.Context, r ledger.Record, terms error) *Outcome {
	out := a.refuse(terms.Error(), a.failure(orElse(r.Reason, "refused")))
	if a.gate.evidence == nil {
		return &out
	}
	f := a.find(ctx, r, Settlement{})
	a.trace.Verdict = f.Verdict.String()
	switch f.Verdict {
	case Paid:
		if err := a.adopt(r); err != nil {
			broken := a.ledgerFault(err, nil)
			return &broken
		}
		return nil // the claim finds it, too
	case CannotTell, StillOpen:
		out.Receipt = nil
	case NeverPaid:
	}
	return &out
}

// known says whether a record vouches for this payment. A refused one does
// not: nothing moved, so today's terms are the ones that count.
func (a *attempt) known(r ledger.Record, signature error) bool {
	return r.State != ledger.Refused && a.vouched(r, signature)
}

// vouched says whether a record is of this authorization, and its signature one
// that was in order.
func (a *attempt) vouched(r ledger.Record, signature error) bool {
	return r.AuthDigest == a.claim.AuthDigest && (signature == nil || r.SignedWith(a.claim.SigDigest))
}

// adopt judges the payment by the terms in its record.
func (a *attempt) adopt(r ledger.Record) error {
	if err := unmarshalTerms(r, &a.terms); err != nil {
		return err
	}
	a.claim.Terms = r.Terms
	return nil
}

// verify asks the facilitator about a signature that only the chain can judge.
// r is what the ledger has under the payment's key, or nil.
func (a *attempt) verify(ctx context.Context, r *ledger.Record) *Outcome {
	bounded, cancel := context.WithTimeout(ctx, verifyBudget)
	defer cancel()
	begun := a.gate.now()
	v := a.gate.facilitator.Verify(bounded, a.payment.forFacilitator(a.request.Offer, a.claim.Terms), a.terms)
	a.trace.Verify = a.since(begun)
	if v.Fault != nil {
		charged := moved(false)
		if r != nil && r.AuthDigest == a.claim.AuthDigest {
			charged = chargedBy(*r) // another signature of it came before
		}
		out := a.fail(v.Fault, charged)
		return &out
	}
	if v.NonceUsed && !v.Valid {
		if out, decided := a.used(ctx, r); decided {
			return out
		}
	}
	if !v.Valid {
		return a.no(invalid(v))
	}
	return nil
}

// invalid is why the facilitator would not settle a payment, as the payer is
// told.
func invalid(v Verification) error {
	about := "the facilitator does not accept the payment: "
	if v.BadSignature {
		about = "signature is not the payer's: "
	}
	return errors.New(about + v.Reason)
}

// used decides about an authorization that is used already, so that nobody can
// say any more whether its signature is in order. One that it was claimed with
// before was in order then: the claim goes on, and asks the chain. Any other
// gets no answer, since what is on the chain can be copied from there; but if
// the money is here, it is not called unpaid, and the operator learns of it.
func (a *attempt) used(ctx context.Context, r *ledger.Record) (*Outcome, bool) {
	if r != nil && r.AuthDigest == a.claim.AuthDigest && r.SignedWith(a.claim.SigDigest) {
		return nil, true
	}
	if a.gate.evidence == nil {
		return nil, false
	}
	f := a.find(ctx, ledger.Record{
		Key: a.claim.Key, Terms: a.claim.Terms, ValidBefore: a.claim.ValidBefore, CreatedAt: a.gate.now(),
	}, Settlement{})
	a.trace.Verdict, a.trace.Transaction = f.Verdict.String(), f.Transaction
	if f.Verdict != Paid {
		return nil, false
	}
	err := errors.New("paid for by a transfer that somebody else submitted, and the signature cannot be checked any more")
	a.unrecorded(ctx, "payment without a record", err)
	out := a.fail(fault.New(fault.SettlementUncertain, err), moved(true))
	return &out, true
}

func (a *attempt) no(reason error) *Outcome {
	out := a.refuse(reason.Error(), nil)
	return &out
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

// moved is a known answer to whether money has moved.
func moved(yes bool) *bool { return &yes }

// chargedBy is what a record says about whether money has moved.
func chargedBy(r ledger.Record) *bool {
	switch r.State {
	case ledger.Settled, ledger.Redeemed:
		return moved(true)
	case ledger.Refused:
		return moved(false)
	case ledger.Settling, ledger.Uncertain, ledger.Bound:
	}
	return nil
}

// refuse answers 402 with a reason. receipt is set after a failed settlement.
func (a *attempt) refuse(reason string, receipt *SettleResponse) Outcome {
	a.trace.Reason = reason
	return Outcome{
		Status: 402, Fault: fault.Newf(fault.PaymentRequired, nil, "%s", reason),
		Standing: Standing{Charged: moved(false)}, Receipt: receipt,
	}
}

// fail answers an error about a payment that stands as charged says.
func (a *attempt) fail(f *fault.Error, charged *bool) Outcome {
	a.trace.Cause = f
	s := Standing{Charged: charged, Retryable: f.Info().Retry}
	return Outcome{Status: f.Info().Status, Body: a.request.Error(f, s), Fault: f, Standing: s}
}

// ledgerFault answers a store that failed, or a record that cannot be.
func (a *attempt) ledgerFault(err error, charged *bool) Outcome {
	code := fault.LedgerUnavailable
	if errors.Is(err, ledger.ErrCorrupt) || errors.Is(err, ledger.ErrIllegal) {
		code = fault.PaymentUnavailable
	}
	return a.fail(fault.New(code, err), charged)
}
