package x402

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// held goes on with a claim that was won: it acquires a slot, settles unless the
// money has moved already, and looks up.
func (a *attempt) held(ctx context.Context, h *ledger.Hold) *Outcome {
	if a.gate.Slots != nil && a.dues.slot == nil {
		begun := a.gate.Now()
		slot, err := a.gate.Slots.Acquire(ctx, a.request.Client, a.lease())
		a.trace.Slot = a.since(begun)
		if err != nil {
			return a.noSlot(ctx, h, fault.From(err))
		}
		a.dues.slot = slot
	}
	if h.Record().State == ledger.Settling {
		return a.settle(ctx, h)
	}
	return a.lookUp(ctx, h, nil)
}

// noSlot gives the claim back: nothing was sent, and no lookup is counted.
func (a *attempt) noSlot(ctx context.Context, h *ledger.Hold, f *fault.Error) *Outcome {
	if h.Record().State == ledger.Settling {
		return a.unsent(ctx, h, Settlement{Code: f.Code, Reason: string(f.Code), Cause: f})
	}
	a.wrote(ctx, "claim not given back", h.Return(withoutDeadline(ctx)))
	return failed(f, nil).by(h.Record())
}

// settle has the money moved, once, and then runs the lookup. The claim's own
// write took time, so the budget is computed again.
func (a *attempt) settle(ctx context.Context, h *ledger.Hold) *Outcome {
	if refusal := a.stopped(ctx, h.Record()); refusal != nil {
		return a.stop(ctx, h, refusal)
	}
	budget := a.settleTime(h.Record().Sent)
	if budget < LeastSettle {
		return a.unsent(ctx, h, Settlement{Code: fault.PaymentUnavailable, Reason: "no time left to settle"})
	}
	o := a.order(h, budget)
	r := a.gate.Settler.Settle(ctx, o)
	a.trace.Asked = append(a.trace.Asked, r.Asked...)
	if r.Class != NotResent {
		a.trace.Class = r.Class.String()
		a.trace.Reason = r.Reason
		a.trace.Transaction = r.Transaction
		a.trace.Cause = r.Cause
		a.trace.Extensions = r.ExtensionResponses
		a.trace.Silent = r.Class == Unknown && r.NoVerdict
	}
	h.RefusedBy(r.RefusedBy)
	d := o.doubt
	if r.SentElsewhere && d == noDoubt {
		d = sentBefore
	}
	return a.conclude(ctx, h, d, r)
}

// stopped is why the job does not want the payment of a record to be sent; nil where it may
// be. Without a node a payment in doubt is sent whatever the job says: nothing else could
// settle the doubt.
func (a *attempt) stopped(ctx context.Context, r ledger.Payment) *fault.Error {
	if a.job.Check == nil || a.opensNothing || doubtOf(r) == inDoubt && a.gate.Evidence == nil {
		return nil
	}
	return a.check(ctx)
}

// check asks the job's Check. A panic, which is a bug, stops the send.
func (a *attempt) check(ctx context.Context) (refusal *fault.Error) {
	defer func() {
		if p := recover(); p != nil {
			refusal = fault.New(fault.InternalError, fmt.Errorf("the check panicked: %v", p))
		}
	}()
	if err := a.job.Check(ctx); err != nil {
		return fault.From(err)
	}
	return nil
}

// stop ends an attempt that the job does not want to send. If an earlier one may have sent
// the payment, the chain says whether it was made.
func (a *attempt) stop(ctx context.Context, h *ledger.Hold, refusal *fault.Error) *Outcome {
	a.dues.atFault = true
	d := doubtOf(h.Record())
	r := Result{Settlement: Settlement{
		Class:  stopped,
		Reason: string(refusal.Code),
		Cause:  refusal,
	}, Finding: Finding{Verdict: notAsked}}
	if asksChain(stopped, d) {
		r.Finding = a.find(ctx, h.Record(), r.Settlement, EvidenceBudget)
	}
	return a.conclude(ctx, h, d, r)
}

// unsent ends an attempt that sent nothing.
func (a *attempt) unsent(ctx context.Context, h *ledger.Hold, s Settlement) *Outcome {
	s.Class = NotSent
	return a.conclude(ctx, h, doubtOf(h.Record()), Result{Settlement: s, Finding: Finding{Verdict: notAsked}})
}

// executable says that a facilitator can still execute the authorization of a record.
func (a *attempt) executable(r ledger.Payment) bool {
	return a.gate.Now().Add(leastWindow).Before(r.ValidBefore)
}

// find asks the chain about a payment within a budget, if there is a node and time for
// it. s is the facilitator's last reply.
func (a *attempt) find(ctx context.Context, r ledger.Payment, s Settlement, budget time.Duration) (f Finding) {
	if a.gate.Evidence == nil {
		return Finding{Verdict: noNode}
	}
	a.dues.worked = true
	defer func() { a.trace.Verdict = f.Verdict.String() }()
	if budget = min(a.spare(), budget); budget < LeastEvidence {
		return Finding{Cause: errors.New("no time left to ask the chain")}
	}
	q, err := QuestionOf(r)
	if err != nil {
		return Finding{Cause: err}
	}
	q.Transaction = cmp.Or(s.Transaction, r.Transaction)
	q.Sent = q.Sent || s.Class == Unknown
	ctx, cancel := context.WithTimeout(ctx, budget)
	defer cancel()
	begun := a.gate.Now()
	defer func() { a.trace.Evidence += a.since(begun) }()
	return a.gate.Evidence.Find(ctx, q)
}

// conclude records the conclusion of an attempt to settle, and answers. If it could
// not be written, the answer is as uncertain as the record.
func (a *attempt) conclude(ctx context.Context, h *ledger.Hold, d doubt, r Result) *Outcome {
	reason := r.Reason
	class := classOf(r.Settlement)
	c := a.gate.conclusion(class, d, r.Finding.Verdict)
	switch c.event { //nolint:exhaustive // the others need nothing more
	case ledger.EventSettled:
		a.trace.UsedAsPaid = class == used && r.Finding.Verdict == noNode
		a.trace.Transaction = cmp.Or(r.Finding.Transaction, r.Transaction, h.Record().Transaction)
		receipt := a.receiptOf(a.trace.Transaction)
		if a.opensNothing {
			return a.charge(ctx, h, receipt)
		}
		return a.lookUp(ctx, h, &receipt)
	case ledger.EventDisproved:
		reason = cmp.Or(r.Finding.Reason, reason)
	case ledger.EventRefused:
		if r.BadSignature {
			c.event = ledger.EventBadSignature
		}
	}
	err := h.End(withoutDeadline(ctx), cmp.Or(c.event, ledger.EventUncertain), reason, r.Transaction) // no row: a bug
	a.seen(h.Record().State)
	recorded := a.wrote(ctx, "verdict not recorded", err)
	cause := errors.Join(r.Cause, err)
	switch {
	case c.reply == replyFault:
		f := fault.New(cmp.Or(r.Code, fault.FacilitatorUnavailable), cause)
		if own, ok := errors.AsType[*fault.Error](r.Cause); ok && own.Code == f.Code {
			f.Message = own.Message // such as that about a client's share of the slots
		}
		if !recorded {
			return failed(f, nil)
		}
		return failed(f, chargedBy(h.Record()))
	case c.reply == replyStopped && recorded:
		return failed(fault.From(r.Cause), chargedBy(h.Record()))
	case c.reply == replyRefused && recorded:
		return refused("settlement refused: "+reason, a.failure(cmp.Or(r.Reason, reason)))
	}
	return a.unsure(h.Record(), cause)
}

// receiptOf is the receipt of this attempt's payer for a transaction.
func (a *attempt) receiptOf(transaction string) ledger.Receipt {
	return ledger.Receipt{
		Transaction: transaction,
		Payer:       a.payment.From.Checksum(),
		Network:     a.terms.Network,
	}
}

// failure is the PAYMENT-RESPONSE of a settlement that failed.
func (a *attempt) failure(reason string) *SettleResponse {
	return &SettleResponse{
		ErrorReason: reason,
		Network:     a.terms.Network,
		Payer:       a.payment.From.Checksum(),
	}
}

// The classes that the Gate tells apart for its own decisions.
const (
	used    Class = NotResent + 1 + iota // Refused with Settlement.NonceUsed
	expired                              // Refused with Settlement.Expired
	stopped                              // not sent, because the job's Check has refused that
	anyClass
)

// classOf is the class that the conclusion about a reply is drawn by.
func classOf(s Settlement) Class {
	switch {
	case s.Class != Refused:
		return s.Class
	case s.NonceUsed:
		return used
	case s.Expired:
		return expired
	}
	return Refused
}

// String is the class as logs and metrics name it.
func (c Class) String() string {
	return [...]string{
		Unknown: "unknown", Moved: "settled", Refused: "refused", used: "refused", expired: "refused", TurnedAway: "turned_away",
		NotSent: "not_sent", NotResent: "not_sent", stopped: "not_sent",
	}[c]
}

// The verdicts that the Gate adds to those of Evidence.
const (
	notAsked Verdict = StillOpen + 1 + iota // the facilitator's reply decides alone
	noNode                                  // the chain has to be asked, and no node is configured
	anyVerdict
)

// String is the verdict as logs name it.
func (v Verdict) String() string {
	return [...]string{
		CannotTell: "cannot_tell", Paid: "paid", NeverPaid: "never_paid", StillOpen: "still_open", notAsked: "not_asked", noNode: "no_node",
	}[v]
}

// doubt is what a record says of the attempts before this claim. In the table it
// is a set.
type doubt int

const (
	noDoubt    doubt = 1 << iota // none of them may have reached a facilitator
	sentBefore                   // one has, and its facilitator said that it did not settle
	inDoubt                      // one may have, and its outcome is not known
	anyDoubt   = noDoubt | sentBefore | inDoubt
)

func doubtOf(r ledger.Payment) doubt {
	switch {
	case r.Doubt:
		return inDoubt
	case r.Sent:
		return sentBefore
	}
	return noDoubt
}

// reply is the answer to a payer after an attempt to settle.
type reply int

const (
	replyLookUp  reply = iota + 1 // the answer of the work: the money has moved
	replyRefused                  // 402 with the reason
	replyFault                    // the facilitator_* code of a fault that is not the payer's
	replyStopped                  // the refusal of the job's Check
	replyUnsure                   // 503 settlement_uncertain
)

// conclusion is one row of the conclusion table: the event that is recorded and
// the answer that is given after an attempt to settle.
type conclusion struct {
	class Class
	doubt doubt
	chain Verdict
	event ledger.Event
	reply reply
}

// asksChain says whether the chain is to be asked after a reply: when the payment is
// in doubt, when the reply does not exclude that money has moved, and when a payment is
// refused that was sent before: the earlier reply may have been false.
func asksChain(c Class, d doubt) bool {
	switch c {
	case Moved:
		return false
	case used, expired, NotResent, Unknown:
		return true
	case Refused, stopped:
		return d != noDoubt
	default:
		return d == inDoubt
	}
}

// conclusion decides about an attempt to settle: the first row that fits. It does no
// I/O. A combination that no row names, which is a bug, has the zero conclusion.
func (g *Gate) conclusion(class Class, d doubt, chain Verdict) conclusion {
	rows := g.conclusions
	if rows == nil {
		rows = conclusions()
	}
	for i, c := range rows {
		if (c.class == anyClass || c.class == class) && c.doubt&d != 0 && (c.chain == anyVerdict || c.chain == chain) {
			if g.concluded != nil {
				g.concluded(i)
			}
			return c
		}
	}
	return conclusion{}
}

// conclusions is the table of conclusions.
func conclusions() []conclusion {
	return []conclusion{
		{Moved, anyDoubt, anyVerdict, ledger.EventSettled, replyLookUp},

		// The job did not want it to be sent. What earlier attempts have done decides.
		{stopped, noDoubt, anyVerdict, ledger.EventNotSent, replyStopped},
		{stopped, anyDoubt, NeverPaid, ledger.EventDisproved, replyStopped},
		{stopped, sentBefore, noNode, ledger.EventNotSent, replyStopped},

		// Evidence decides, whatever the facilitator said.
		{anyClass, anyDoubt, Paid, ledger.EventSettled, replyLookUp},
		{anyClass, anyDoubt, NeverPaid, ledger.EventDisproved, replyRefused},

		// The authorization is used, and the chain does not say for what. Where no
		// node can be asked, a payment that was sent before counts as paid, whatever
		// was said of it then: refusing a payer who has paid is worse than answering
		// one who cancelled.
		{used, noDoubt, noNode, ledger.EventRefused, replyRefused},
		{used, anyDoubt, noNode, ledger.EventSettled, replyLookUp},
		{used, anyDoubt, anyVerdict, ledger.EventUncertain, replyUnsure},

		// The end of the window says nothing about what moved before it.
		{expired, noDoubt | sentBefore, CannotTell, ledger.EventUncertain, replyUnsure},
		{expired, noDoubt | sentBefore, anyVerdict, ledger.EventRefused, replyRefused},

		// A refusal says nothing about an earlier attempt that is in doubt. A second
		// refusal of a payment is not answered as one while the node cannot tell.
		{Refused, sentBefore, CannotTell, ledger.EventRefused, replyUnsure},
		{Refused, noDoubt | sentBefore, anyVerdict, ledger.EventRefused, replyRefused},
		{Refused, inDoubt, anyVerdict, ledger.EventRefused, replyUnsure},
		{expired, inDoubt, anyVerdict, ledger.EventRefused, replyUnsure},

		// A reason that the operator has to deal with is never the payer's fault,
		// with doubt or without.
		{TurnedAway, anyDoubt, anyVerdict, ledger.EventTurnedAway, replyFault},
		{NotSent, anyDoubt, anyVerdict, ledger.EventNotSent, replyFault},

		// Nothing was sent this time: the doubt of the earlier attempt remains.
		{NotResent, anyDoubt, anyVerdict, ledger.EventNotSent, replyUnsure},
		{stopped, anyDoubt, anyVerdict, ledger.EventNotSent, replyUnsure},

		{Unknown, anyDoubt, anyVerdict, ledger.EventUncertain, replyUnsure},
	}
}
