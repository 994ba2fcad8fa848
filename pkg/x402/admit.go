package x402

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// admit decides whether a payment may be claimed. It returns nil if it may, and
// otherwise the answer. Only the rate limit is written, and the ledger, the
// facilitator or the chain are asked only where the header does not decide.
func (a *attempt) admit(ctx context.Context) *Outcome {
	p, err := a.request.payment()
	if err != nil {
		return a.reject(err)
	}
	a.payment = p
	a.trace.Payer, a.trace.Nonce, a.trace.Amount = p.From.String(), "0x"+hex.EncodeToString(p.Nonce[:]), p.Value.String()
	offer := a.request.Offer.of(p, a.gate.now())
	a.request.Offer = offer
	if err := offer.fixed(p); err != nil {
		return a.reject(err)
	}
	digest := p.Digest(offer.domain)
	by := signerRecovered
	if err := p.Check(digest); errors.Is(err, errForeign) {
		by = signerUnknown
	} else if err != nil {
		return a.reject(err)
	}
	a.terms = offer.required.Accepts[0]
	a.identify(digest, by)
	if err := a.weigh(ctx); err != nil {
		return a.answer(a.fail(fault.From(err), nil))
	}
	return a.judge(ctx, by, offer.today(p, a.gate.now()))
}

// weigh counts the request against its client's limit, after every check that
// needs no call.
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

// judge follows the admission table. terms is how the payment differs from the
// terms offered now, or nil.
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
			return a.answer(a.ledgerFault(err, nil))
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
		return a.refusedBefore(ctx, *r, terms)
	case refuseTerms:
		out := a.reject(terms)
		out.recorded = true
		return out
	case refuseUsed:
		return a.unproven(*r)
	case refuseNonce:
		out := a.otherNonce(*r, by == signerRecovered)
		out.recorded = true
		return &out
	case admitFetch:
	}
	return a.answer(a.fail(fault.New(fault.PaymentUnavailable, errors.New("no rule admits this payment")), nil))
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
		Asks:        a.gate.asksFirst(),
	}
	a.key, a.badKey = purchaseKey(a.request.Keys, p)
	if t := a.payment.token(); t != "" {
		a.claim.Token = digestOf(t) // only the digest is stored, and neither is logged
	}
}

// validBefore is the end of the authorization's window, bounded so that a hostile
// value cannot keep a row for ever. The window of a first claim ends earlier.
func (a *attempt) validBefore() time.Time {
	most := a.gate.now().Add(2 * mostWindow)
	if v := a.payment.ValidBefore; v.IsInt64() && v.Int64() < most.Unix() {
		return time.Unix(v.Int64(), 0).UTC()
	}
	return most.UTC()
}

// refusedBefore answers a payment that was refused and does not fit the terms offered now.
// A failed PAYMENT-RESPONSE tells a client that was left in doubt that it may sign
// anew. But a third party can have submitted the payment since. So where the chain
// can be asked, that header is sent only if the chain shows that the payment was
// not and will not be made.
func (a *attempt) refusedBefore(ctx context.Context, r ledger.Record, terms error) *Outcome {
	out := a.refuse(terms.Error(), a.failure(orElse(r.Reason, "refused")))
	if a.gate.evidence == nil {
		out.recorded = true
		return &out
	}
	f := a.find(ctx, r, Settlement{}, evidenceBudget)
	a.trace.Verdict = f.Verdict.String()
	switch f.Verdict {
	case Paid:
		return a.adopt(r) // the claim asks the chain too, and finds it
	case CannotTell, StillOpen:
		out.Receipt = nil
	case NeverPaid:
	}
	return &out
}

// adopt makes the terms in the record those that the payment is judged by.
func (a *attempt) adopt(r ledger.Record) *Outcome {
	if bytes.Equal(r.Terms, a.claim.Terms) {
		return nil
	}
	if err := unmarshalTerms(r, &a.terms); err != nil {
		return a.answer(a.ledgerFault(err, nil))
	}
	a.claim.Terms = r.Terms
	return nil
}

// verify asks the facilitator about a signature that cannot be verified locally,
// of a payment that has no record.
func (a *attempt) verify(ctx context.Context) *Outcome {
	begun := a.gate.now()
	v := a.gate.verify(ctx, a.request.Offer.payload(a.payment.exact(), a.claim.Terms), a.terms)
	a.trace.Verify = a.since(begun)
	switch {
	case v.Fault != nil:
		a.weight.doubt()
		return a.answer(a.fail(v.Fault, charged(false)))
	case v.Valid:
		return nil
	case v.NonceUsed:
		return a.used(ctx)
	}
	return a.reject(invalid(v))
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

// used answers an authorization that is used already, whose signature the
// facilitator therefore did not judge. It may have been claimed while the
// facilitator was asked: then the record decides. Otherwise somebody else has
// submitted it, or it was cancelled; if money came, reconcile finds it.
func (a *attempt) used(ctx context.Context) *Outcome {
	r, err := a.gate.ledger.Fetch(ctx, a.claim.Key)
	if err != nil {
		return a.answer(a.ledgerFault(err, nil))
	}
	if r == nil {
		out := a.refuse(alreadyUsed, nil)
		out.Payment.Charged = nil
		return &out
	}
	admitted := a.byRecord(r, signerUnknown, termsOK)
	if admitted == admitRecord {
		return a.adopt(*r)
	}
	if admitted == admitToday { // its payer, whose payment was refused meanwhile, is told so
		return nil
	}
	return a.unproven(*r)
}

// alreadyUsed is the reason of a 402 that says the same whatever the record is: who
// sends a copy from the chain learns nothing from it, and a payer whose client leaves
// out the extensions of offers learns what to do.
const alreadyUsed = "authorization already used: sign a new one for the same request, with the same Idempotency-Key if it had one; an answer that is owed, or was given a moment ago, comes without another charge"

// unproven answers an authorization that has a record, from a sender who does not
// prove to be its payer. Anybody can copy it from the chain, so the answer has no
// receipt, and no alarm counts it.
func (a *attempt) unproven(r ledger.Record) *Outcome {
	out := a.refuse(alreadyUsed, nil)
	out.Payment.Charged, out.recorded = chargedBy(r), true
	return &out
}

func (a *attempt) answer(out Outcome) *Outcome { return &out }

func (a *attempt) reject(reason error) *Outcome {
	out := a.refuse(reason.Error(), nil)
	return &out
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

// charged is a value of PaymentStatus.Charged that is known.
func charged(yes bool) *bool { return &yes }

// chargedBy is whether money has moved by what a record says; nil is not known.
func chargedBy(r ledger.Record) *bool {
	switch r.State {
	case ledger.Settled, ledger.Redeemed, ledger.Refunded:
		return charged(true)
	case ledger.Refused, ledger.Superseded:
		return charged(false)
	case ledger.Settling, ledger.Uncertain, ledger.Bought, ledger.Scanned, ledger.Repaid:
	}
	return nil
}

// refuseAs answers 402, with charged and receipt from the record.
func (a *attempt) refuseAs(reason string, r ledger.Record) *Outcome {
	out := a.refuse(reason, responseOf(r))
	out.Payment.Charged = chargedBy(r)
	return &out
}

// refuse answers 402 with a reason, which is also logged. receipt is set after a
// failed settlement.
func (a *attempt) refuse(reason string, receipt *SettleResponse) Outcome {
	a.trace.Reason = reason
	return Outcome{
		Status: 402, Fault: fault.Newf(fault.PaymentRequired, nil, "%s", reason),
		Payment: PaymentStatus{Charged: charged(false)}, Receipt: receipt,
	}
}

// fail answers an error. charged is whether money has moved; nil is not known.
func (a *attempt) fail(f *fault.Error, charged *bool) Outcome {
	a.trace.Cause = f
	s := PaymentStatus{Charged: charged, Retryable: f.Info().Retry}
	return Outcome{Status: f.Info().Status, Body: a.request.Error(f, s), Fault: f, Payment: s}
}

// ledgerFault answers a store that failed, or a record that breaks the ledger's
// rules.
func (a *attempt) ledgerFault(err error, charged *bool) Outcome {
	code := fault.LedgerUnavailable
	if errors.Is(err, ledger.ErrCorrupt) || errors.Is(err, ledger.ErrIllegal) {
		code = fault.PaymentUnavailable
	}
	return a.fail(fault.New(code, err), charged)
}
