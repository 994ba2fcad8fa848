package x402

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"time"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// admit takes a payment to its claim, or answers why it may not be claimed:
// steps 3 and 4 of a priced request. Nothing is written but what the request
// counts as, and only where the header does not decide is anything read or asked.
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
	by := signerRecovered
	if err := p.Check(digest); errors.Is(err, errForeign) {
		by = signerStrange
	} else if err != nil {
		return a.no(err)
	}
	a.terms = offer.required.Accepts[0]
	a.identify(digest, by)
	if err := a.weigh(ctx); err != nil {
		return a.turned(a.fail(fault.From(err), nil))
	}
	return a.judge(ctx, by, offer.today(p, a.gate.now()))
}

// weigh counts the request against its client's limit, once everything has been
// looked at that costs us nothing.
func (a *attempt) weigh(ctx context.Context) error {
	m := a.request.Meter
	if m == nil {
		return nil
	}
	if err := m.Open(ctx); err != nil {
		return err
	}
	a.weight = &weight{meter: m}
	return nil
}

// judge follows the admission table. terms is what today's terms have against
// the payment, or nil.
func (a *attempt) judge(ctx context.Context, by signer, terms error) *Outcome {
	fit := termsOK
	if terms != nil {
		fit = termsBad
	}
	verdict := admissionOf(fit, by, rowUnread)
	var r *ledger.Record
	if verdict == admitFetch {
		var err error
		if r, err = a.gate.ledger.Fetch(ctx, a.claim.Key); err != nil {
			return a.turned(a.ledgerFault(err, nil))
		}
		verdict = a.byRecord(r, by, fit)
	}
	switch verdict {
	case admitToday:
		return nil
	case admitRecord:
		return a.adopt(*r)
	case admitVerify:
		return a.verify(ctx)
	case admitChain:
		return a.over(ctx, *r, terms)
	case turnTerms:
		out := a.no(terms)
		out.recorded = true
		return out
	case turnUsed:
		return a.unproven(*r)
	case turnNonce:
		out := a.otherNonce(*r, by == signerRecovered)
		out.recorded = true
		return &out
	case admitFetch:
	}
	return a.turned(a.fail(fault.New(fault.PaymentUnavailable, errors.New("no rule admits this payment")), nil))
}

// byRecord consults the admission table once the record has been read.
func (a *attempt) byRecord(r *ledger.Record, by signer, fit termsFit) admission {
	switch {
	case r == nil:
		return admissionOf(fit, by, rowAbsent)
	case r.AuthDigest != a.claim.AuthDigest:
		return admissionOf(fit, by, rowForeign)
	case r.Vouches(a.claim):
		by = signerVouched
	default:
		by = signerUnvouched
	}
	if r.State == ledger.Refused && !r.Disproved {
		return admissionOf(fit, by, rowDeclined)
	}
	return admissionOf(fit, by, rowStands)
}

// identify names the payment for the ledger.
func (a *attempt) identify(digest [32]byte, by signer) {
	p := a.payment
	a.claim = ledger.Payment{
		Key:         ledger.Key(a.terms.Network, a.request.Offer.asset.String(), p.From.String(), a.trace.Nonce),
		AuthDigest:  hex.EncodeToString(digest[:]),
		SigDigest:   digestOf(string(p.Signature)),
		Terms:       a.request.Offer.terms,
		ValidBefore: a.validBefore(),
		Payload:     p.stored(),
		Recovered:   by == signerRecovered,
	}
	a.key, a.badKey = purchaseKey(a.request.Keys, p)
	a.prove()
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

// over answers a payment that was refused and that today's terms refuse as well.
// A client that was left in doubt learns from a failed PAYMENT-RESPONSE that it
// may sign anew; but a third party can have submitted the payment since, so with
// a view of the chain that says so, or nothing, there is no such word.
func (a *attempt) over(ctx context.Context, r ledger.Record, terms error) *Outcome {
	out := a.refuse(terms.Error(), a.failure(orElse(r.Reason, "refused")))
	if a.gate.evidence == nil {
		out.recorded = true
		return &out
	}
	f := a.find(ctx, r, Settlement{})
	a.trace.Verdict = f.Verdict.String()
	switch f.Verdict {
	case Paid:
		return a.adopt(r) // the claim finds it, too
	case CannotTell, StillOpen:
		out.Receipt = nil
	case NeverPaid:
	}
	return &out
}

// adopt judges the payment by the terms in its record.
func (a *attempt) adopt(r ledger.Record) *Outcome {
	if bytes.Equal(r.Terms, a.claim.Terms) {
		return nil
	}
	if err := unmarshalTerms(r, &a.terms); err != nil {
		return a.turned(a.ledgerFault(err, nil))
	}
	a.claim.Terms = r.Terms
	return nil
}

// verify asks the facilitator about a signature that only the chain can judge,
// of a payment that the ledger does not know.
func (a *attempt) verify(ctx context.Context) *Outcome {
	bounded, cancel := context.WithTimeout(ctx, verifyBudget)
	defer cancel()
	begun := a.gate.now()
	v := a.gate.facilitator.Verify(bounded, a.request.Offer.payload(a.payment.exact(), a.claim.Terms), a.terms)
	a.trace.Verify = a.since(begun)
	switch {
	case v.Fault != nil:
		return a.turned(a.fail(v.Fault, moved(false)))
	case v.Valid:
		return nil
	case v.NonceUsed:
		return a.used(ctx)
	}
	return a.no(invalid(v))
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

// used answers an authorization that is used already, so that nobody can say any
// more whether its signature is in order. It may have been claimed while the
// facilitator looked: then the record decides. Otherwise somebody else has
// submitted it, or it was cancelled; reconcile finds the money, if any came.
func (a *attempt) used(ctx context.Context) *Outcome {
	r, err := a.gate.ledger.Fetch(ctx, a.claim.Key)
	if err != nil {
		return a.turned(a.ledgerFault(err, nil))
	}
	switch {
	case r == nil:
		out := a.refuse("authorization already used", nil)
		out.Standing.Charged = nil
		return &out
	case a.byRecord(r, signerStrange, termsOK) == admitRecord:
		return a.adopt(*r)
	}
	return a.unproven(*r)
}

// unproven answers an authorization that is on record, with a signature that
// nobody vouches for. What is on the chain can be copied from there, so that it
// gets no receipt, and raises no alarm.
func (a *attempt) unproven(r ledger.Record) *Outcome {
	out := a.refuse("authorization already used", nil)
	out.Standing.Charged, out.recorded = chargedBy(r), true
	return &out
}

func (a *attempt) turned(out Outcome) *Outcome { return &out }

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
	case ledger.Settled, ledger.Redeemed, ledger.Refunded:
		return moved(true)
	case ledger.Refused, ledger.Superseded:
		return moved(false)
	case ledger.Settling, ledger.Uncertain, ledger.Bought, ledger.Scanned:
	}
	return nil
}

// refuseAs answers 402 about a payment that stands as its record says.
func (a *attempt) refuseAs(reason string, r ledger.Record) *Outcome {
	out := a.refuse(reason, responseOf(r))
	out.Standing.Charged = chargedBy(r)
	return &out
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
