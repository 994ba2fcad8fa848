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

// holder is an attempt that holds the lease of a payment: the payment of the request, or the
// payment that owns its purchase.
type holder struct {
	*attempt
	hold *ledger.Hold
}

// record returns the record of the payment as this attempt last wrote it.
func (h *holder) record() ledger.Payment { return h.hold.Record() }

// fulfil acquires a slot, settles unless the money has already moved, and runs the lookup.
func (h *holder) fulfil(ctx context.Context) *Outcome {
	if h.gate.Slots != nil && h.dues.slot == nil {
		begun := h.gate.Now()
		slot, err := h.gate.Slots.Acquire(ctx, h.request.Client, h.leaseEnd())
		h.trace.Slot = h.since(begun)
		if err != nil {
			return h.endWithoutSlot(ctx, fault.From(err))
		}
		h.dues.slot = slot
	}
	if h.record().State == ledger.Settling {
		return h.settle(ctx)
	}
	return h.lookUp(ctx, nil)
}

// endWithoutSlot ends an attempt that got no slot. It gives the claim back. Nothing was sent,
// and no lookup is counted.
func (h *holder) endWithoutSlot(ctx context.Context, f *fault.Error) *Outcome {
	if h.record().State == ledger.Settling {
		return h.concludeUnsent(ctx, Settlement{Code: f.Code, Reason: string(f.Code), Cause: f})
	}
	h.wrote(ctx, "claim not given back", h.hold.GiveBack(withoutDeadline(ctx)))
	return faultOutcome(f, nil).withRecord(h.record())
}

// settle moves the money, once, and then runs the lookup. It computes the time for the
// settlement again, because writing the claim took some time.
func (h *holder) settle(ctx context.Context) *Outcome {
	if refusal := h.jobRefusal(ctx); refusal != nil {
		return h.concludeStopped(ctx, refusal)
	}
	budget := h.settleTime()
	if budget < LeastSettle {
		return h.concludeUnsent(ctx, Settlement{Code: fault.PaymentUnavailable, Reason: "no time left to settle"})
	}
	o := h.order(budget)
	r := h.gate.Settler.Settle(ctx, o)
	h.trace.Asked = append(h.trace.Asked, r.Asked...)
	if r.Class != NotResent {
		h.trace.Class = r.Class.String()
		h.trace.Reason = r.Reason
		h.trace.Transaction = r.Transaction
		h.trace.Cause = r.Cause
		h.trace.Extensions = r.ExtensionResponses
		h.trace.Silent = r.Class == Unknown && r.NoDecision
	}
	h.hold.RefusedBy(r.RefusedBy)
	earlier := o.doubt
	if earlier == noDoubt && r.SentElsewhere {
		earlier = sentBefore
	}
	return h.conclude(ctx, earlier, r)
}

// settleTime returns how long a settlement may take. If the payment was sent before, some of
// the time is reserved for asking the chain afterwards.
func (h *holder) settleTime() time.Duration {
	most := h.spareTime()
	if h.record().Sent && h.gate.Evidence != nil {
		most -= h.gate.Settler.Reserve()
	}
	return min(most, settleBudget)
}

// jobRefusal returns the error with which the job forbids the send, or nil if the payment may
// be sent. It does not ask the job in two cases. If the request proves no right to the answer,
// notResentReason decides. If there is no node, a payment in doubt is always sent, because
// nothing else could resolve the doubt.
func (h *holder) jobRefusal(ctx context.Context) *fault.Error {
	if h.job.Check == nil || h.provesNoRight {
		return nil
	}
	if h.gate.Evidence == nil && doubtOf(h.record()) == inDoubt {
		return nil
	}
	return h.check(ctx)
}

// check calls Job.Check. If Check panics, which is a bug, the payment is not sent.
func (h *holder) check(ctx context.Context) (refusal *fault.Error) {
	defer func() {
		if p := recover(); p != nil {
			refusal = fault.New(fault.InternalError, fmt.Errorf("the check panicked: %v", p))
		}
	}()
	if err := h.job.Check(ctx); err != nil {
		return fault.From(err)
	}
	return nil
}

// concludeStopped ends an attempt whose job forbids the send. If an earlier attempt may have
// sent the payment, concludeStopped first asks the chain whether the payment was made.
func (h *holder) concludeStopped(ctx context.Context, refusal *fault.Error) *Outcome {
	h.dues.atFault = true
	r := Result{
		Settlement: Settlement{
			Class:  classStopped,
			Reason: string(refusal.Code),
			Cause:  refusal,
		},
		Finding: Finding{Fate: notAsked},
	}
	earlier := doubtOf(h.record())
	if asksChain(classStopped, earlier) {
		r.Finding = h.find(ctx, h.record(), r.Settlement, EvidenceBudget)
	}
	return h.conclude(ctx, earlier, r)
}

// concludeUnsent ends an attempt that sent nothing.
func (h *holder) concludeUnsent(ctx context.Context, s Settlement) *Outcome {
	s.Class = NotSent
	r := Result{Settlement: s, Finding: Finding{Fate: notAsked}}
	return h.conclude(ctx, doubtOf(h.record()), r)
}

// conclude records the conclusion of an attempt to settle, and returns the answer.
// earlierDoubt says whether there is doubt about earlier attempts.
func (h *holder) conclude(ctx context.Context, earlierDoubt doubt, r Result) *Outcome {
	class := classOf(r.Settlement)
	c := h.gate.conclusion(class, earlierDoubt, r.Finding.Fate)
	if c.event == ledger.EventSettled {
		h.trace.UsedAsPaid = class == classNonceUsed && r.Finding.Fate == noNode
		return h.continueSettled(ctx, cmp.Or(r.Finding.Transaction, r.Transaction, h.record().Transaction))
	}
	event := cmp.Or(c.event, ledger.EventUncertain) // c.event is empty if no conclusion fits, which is a bug
	if event == ledger.EventRefused && r.BadSignature {
		event = ledger.EventBadSignature
	}
	reason := r.Reason
	if event == ledger.EventDisproved {
		reason = cmp.Or(r.Finding.Reason, reason)
	}
	err := h.hold.End(withoutDeadline(ctx), event, reason, r.Transaction)
	h.noteState(h.record().State)
	recorded := h.wrote(ctx, "verdict not recorded", err)
	cause := errors.Join(r.Cause, err)
	if c.reply == replyFault {
		f := settlementFault(r, cause)
		if !recorded {
			return faultOutcome(f, nil)
		}
		return faultOutcome(f, chargedBy(h.record()))
	}
	if recorded { // if the write failed, the answer says that the outcome is uncertain
		switch c.reply { //nolint:exhaustive // all others are answered as unsure, below
		case replyStopped:
			return faultOutcome(fault.From(r.Cause), chargedBy(h.record()))
		case replyRefused:
			response := h.responder().failureResponse(cmp.Or(r.Reason, reason))
			return refusalOutcome("settlement refused: "+reason, response)
		}
	}
	return h.responder().unsure(h.record(), cause)
}

// settlementFault returns the fault for a settlement that failed although the payer did
// nothing wrong.
func settlementFault(r Result, cause error) *fault.Error {
	f := fault.New(cmp.Or(r.Code, fault.FacilitatorUnavailable), cause)
	known, ok := errors.AsType[*fault.Error](r.Cause)
	if ok && known.Code == f.Code {
		f.Message = known.Message // for example the message about a client's share of the slots
	}
	return f
}

// continueSettled continues with a payment whose money has moved. transaction is the hash of the
// transfer, or empty if the hash is not known.
func (h *holder) continueSettled(ctx context.Context, transaction string) *Outcome {
	h.trace.Transaction = transaction
	receipt := ledger.Receipt{
		Transaction: transaction,
		Payer:       h.payment.From.Checksum(),
		Network:     h.terms.Network,
	}
	if h.provesNoRight {
		return h.answerCharged(ctx, receipt)
	}
	return h.lookUp(ctx, &receipt)
}

// These classes exist only in the Gate, for its own decisions.
const (
	classNonceUsed Class = NotResent + 1 + iota // Refused with Settlement.NonceUsed
	classExpired                                // Refused with Settlement.Expired
	classStopped                                // not sent, because the job forbids the send
	anyClass
)

// classOf returns the class under which the table of conclusions lists a reply.
func classOf(s Settlement) Class {
	switch {
	case s.Class != Refused:
		return s.Class
	case s.NonceUsed:
		return classNonceUsed
	case s.Expired:
		return classExpired
	}
	return Refused
}

// String returns the class as logs and metrics name it.
func (c Class) String() string {
	switch c {
	case Moved:
		return "settled"
	case Refused, classNonceUsed, classExpired:
		return "refused"
	case TurnedAway:
		return "turned_away"
	case NotSent, NotResent, classStopped:
		return "not_sent"
	default:
		return "unknown"
	}
}

// These fates exist only in the Gate.
const (
	notAsked Fate = StillOpen + 1 + iota // the chain was not asked, because the facilitator's reply decides
	noNode                               // the chain would have to be asked, but no node is configured
	anyFate
)

// String returns the fate as logs name it.
func (v Fate) String() string {
	switch v {
	case Paid:
		return "paid"
	case NeverPaid:
		return "never_paid"
	case StillOpen:
		return "still_open"
	case notAsked:
		return "not_asked"
	case noNode:
		return "no_node"
	default:
		return "cannot_tell"
	}
}

// doubt is what a record says about the attempts before the present one. A row of the table of
// conclusions can combine several values with |.
type doubt int

const (
	noDoubt    doubt = 1 << iota // no attempt can have reached a facilitator
	sentBefore                   // an attempt reached a facilitator, which said that it did not settle the payment
	inDoubt                      // an attempt may have reached a facilitator, and its outcome is unknown
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

// reply is the kind of answer that a payer gets after an attempt to settle.
type reply int

const (
	replyLookUp  reply = iota + 1 // the money has moved, and the job gives the answer
	replyRefused                  // 402 with the reason
	replyFault                    // a facilitator_* code or another fault that the payer did not cause
	replyStopped                  // the error with which the job forbids the send
	replyUnsure                   // 503 settlement_uncertain
)

// conclusion is one row of the table of conclusions. If class, doubt and chain fit an attempt
// to settle, event is recorded, and the payer gets the answer that reply names.
type conclusion struct {
	class Class
	doubt doubt
	chain Fate
	event ledger.Event
	reply reply
}

// asksChain reports whether the chain must be asked after a reply of class c: never after
// Moved, and always if money may have moved in spite of the reply. After Refused and
// classStopped it must be asked if the payment was sent before, because the earlier reply may
// be false. After any other class it must be asked if the payment is in doubt.
func asksChain(c Class, d doubt) bool {
	switch c {
	case Moved:
		return false
	case classNonceUsed, classExpired, NotResent, Unknown:
		return true
	case Refused, classStopped:
		return d != noDoubt
	default:
		return d == inDoubt
	}
}

// conclusion returns the first row of the table that fits an attempt to settle. It does no
// I/O. If no row fits, which is a bug, it returns the zero conclusion.
func (g *Gate) conclusion(class Class, d doubt, chain Fate) conclusion {
	rows := g.conclusions
	if rows == nil {
		rows = conclusions()
	}
	for i, row := range rows {
		if !row.fits(class, d, chain) {
			continue
		}
		if g.onConclusion != nil {
			g.onConclusion(i)
		}
		return row
	}
	return conclusion{}
}

// fits reports whether the row applies to an attempt to settle.
func (c conclusion) fits(class Class, d doubt, chain Fate) bool {
	ofClass := c.class == anyClass || c.class == class
	ofChain := c.chain == anyFate || c.chain == chain
	return ofClass && ofChain && c.doubt&d != 0
}

// conclusions returns the table of conclusions.
func conclusions() []conclusion {
	return []conclusion{
		{Moved, anyDoubt, anyFate, ledger.EventSettled, replyLookUp},

		// The job forbids the send. The outcome of earlier attempts decides.
		{classStopped, noDoubt, anyFate, ledger.EventNotSent, replyStopped},
		{classStopped, anyDoubt, NeverPaid, ledger.EventDisproved, replyStopped},
		{classStopped, sentBefore, noNode, ledger.EventNotSent, replyStopped},

		// The chain decides, whatever the facilitator said.
		{anyClass, anyDoubt, Paid, ledger.EventSettled, replyLookUp},
		{anyClass, anyDoubt, NeverPaid, ledger.EventDisproved, replyRefused},

		// The authorization is used, and the chain does not show for what. Without a node, a
		// payment that was sent before counts as paid, regardless of the earlier reply:
		// refusing a payer who has paid is worse than answering a payer who has cancelled.
		{classNonceUsed, noDoubt, noNode, ledger.EventRefused, replyRefused},
		{classNonceUsed, anyDoubt, noNode, ledger.EventSettled, replyLookUp},
		{classNonceUsed, anyDoubt, anyFate, ledger.EventUncertain, replyUnsure},

		// The window is over. This does not show whether money moved before the window ended.
		{classExpired, noDoubt | sentBefore, CannotTell, ledger.EventUncertain, replyUnsure},
		{classExpired, noDoubt | sentBefore, anyFate, ledger.EventRefused, replyRefused},

		// A refusal says nothing about an earlier attempt that is in doubt. If a payment that
		// was sent before is refused again and the node cannot tell, the payer is told that
		// the outcome is uncertain.
		{Refused, sentBefore, CannotTell, ledger.EventRefused, replyUnsure},
		{Refused, noDoubt | sentBefore, anyFate, ledger.EventRefused, replyRefused},
		{Refused, inDoubt, anyFate, ledger.EventRefused, replyUnsure},
		{classExpired, inDoubt, anyFate, ledger.EventRefused, replyUnsure},

		// The payer did not cause the failure. Therefore the answer never blames the payer,
		// whether or not there is doubt.
		{TurnedAway, anyDoubt, anyFate, ledger.EventTurnedAway, replyFault},
		{NotSent, anyDoubt, anyFate, ledger.EventNotSent, replyFault},

		// Nothing was sent this time, so the doubt about earlier attempts remains.
		{NotResent, anyDoubt, anyFate, ledger.EventNotSent, replyUnsure},
		{classStopped, anyDoubt, anyFate, ledger.EventNotSent, replyUnsure},

		{Unknown, anyDoubt, anyFate, ledger.EventUncertain, replyUnsure},
	}
}
