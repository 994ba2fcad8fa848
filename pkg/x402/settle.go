package x402

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// settle moves the money, once, and looks up when it has moved.
func (a *attempt) settle(ctx context.Context, h *ledger.Hold) Outcome {
	// The claim's own write took time, so the budget is computed again.
	budget := a.settleTime(h.Record().Sent)
	if budget < leastSettle {
		return a.unsent(ctx, h, Settlement{Class: NotSent, Code: fault.PaymentUnavailable, Reason: "no time left to settle"})
	}
	v := a.take(ctx, h, budget)
	return a.carryOut(ctx, h, conclusionOf(v.word, v.doubt, v.chain), v.s, v.finding)
}

// send has a facilitator settle the payment of a record. The earlier payment of
// a purchase is not sent again when its window is over.
func (a *attempt) send(ctx context.Context, f Facilitator, r ledger.Record) (Settlement, facilitatorWord) {
	if a.resend && !a.gate.now().Add(leastWindow).Before(r.ValidBefore) {
		return Settlement{Class: NotSent, Reason: orElse(r.Reason, "the window of the authorization is over")}, wordNotResent
	}
	exact := a.payment.exact()
	if r.Payload != nil || a.resend {
		if err := json.Unmarshal(r.Payload, &exact); err != nil {
			return Settlement{Class: NotSent, Code: fault.PaymentUnavailable, Reason: "the stored payment is not readable", Cause: err}, wordNotSent
		}
	}
	begun := a.gate.now()
	s := f.Settle(ctx, a.request.Offer.payload(exact, r.Terms), a.terms)
	a.trace.Settle += a.since(begun)
	a.traced(s)
	return s, a.wordOf(s, r)
}

// unsent ends an attempt that sent nothing.
func (a *attempt) unsent(ctx context.Context, h *ledger.Hold, s Settlement) Outcome {
	return a.carryOut(ctx, h, conclusionOf(wordNotSent, doubtOf(h.Record()), chainNotAsked), s, Finding{})
}

// wordOf classifies a settlement's outcome for the conclusion table. A refusal
// near the end of the window counts as one about the window, which facilitators
// check first.
func (a *attempt) wordOf(s Settlement, r ledger.Record) facilitatorWord {
	switch s.Class {
	case Moved:
		return wordMoved
	case TurnedAway:
		return wordTurnedAway
	case NotSent:
		return wordNotSent
	case Refused:
		switch {
		case s.NonceUsed:
			return wordUsed
		case s.Expired || !a.gate.now().Add(leastWindow).Before(r.ValidBefore):
			return wordExpired
		}
		return wordRefused
	case Unknown:
	}
	return wordUnknown
}

func doubtOf(r ledger.Record) doubtful {
	switch {
	case r.Doubt:
		return inDoubt
	case r.Sent:
		return sentBefore
	}
	return noDoubt
}

// look asks the chain about an attempt to settle, where it can be asked, within a
// budget.
func (a *attempt) look(ctx context.Context, r ledger.Record, s Settlement, budget time.Duration) (chainAnswer, Finding) {
	if a.gate.evidence == nil {
		return chainMissing, Finding{}
	}
	f := a.find(ctx, r, s, budget)
	a.trace.Verdict = f.Verdict.String()
	switch f.Verdict {
	case Paid:
		return chainPaid, f
	case NeverPaid:
		return chainNeverPaid, f
	case StillOpen:
		return chainStillOpen, f
	case CannotTell:
	}
	return chainCannotTell, f
}

// carryOut records the conclusion of an attempt to settle, and answers.
func (a *attempt) carryOut(ctx context.Context, h *ledger.Hold, c conclusion, s Settlement, f Finding) Outcome {
	reason := orElse(f.Reason, s.Reason)
	switch c.event {
	case ledger.EventSettled:
		a.trace.UsedAsPaid = c.word == wordUsed && c.chain == chainMissing
		a.trace.Transaction = orElse(f.Transaction, orElse(s.Transaction, h.Record().Transaction))
		return a.lookUp(ctx, h, a.receipt(a.trace.Transaction))
	case ledger.EventDisproved:
		return a.conclude(ctx, h, c, s, reason, h.Disproved(withoutDeadline(ctx), reason))
	case ledger.EventRefused:
		refused := h.Refused
		if s.BadSignature {
			refused = h.RefusedSignature
		}
		return a.conclude(ctx, h, c, s, s.Reason, refused(withoutDeadline(ctx), s.Reason))
	case ledger.EventTurnedAway:
		return a.conclude(ctx, h, c, s, s.Reason, h.TurnedAway(withoutDeadline(ctx), s.Reason))
	case ledger.EventNotSent:
		return a.conclude(ctx, h, c, s, s.Reason, h.NotSent(withoutDeadline(ctx), s.Reason))
	default: // ledger.EventUncertain, and a combination that no row names
		return a.conclude(ctx, h, c, s, s.Reason, h.Uncertain(withoutDeadline(ctx), s.Reason, s.Transaction))
	}
}

// conclude answers an attempt that is not known to have moved money. If its
// verdict could not be written (err), the answer is as uncertain as the record.
func (a *attempt) conclude(ctx context.Context, h *ledger.Hold, c conclusion, s Settlement, reason string, err error) Outcome {
	a.seen(h.Record().State)
	charged := chargedBy(h.Record())
	if err != nil {
		a.unrecorded(ctx, "verdict not recorded", err)
		charged = nil
	}
	switch {
	case c.reply == replyFault:
		code := s.Code
		if code == "" {
			code = fault.FacilitatorUnavailable
		}
		f := fault.New(code, errors.Join(s.Cause, err))
		if own, ok := errors.AsType[*fault.Error](s.Cause); ok && own.Code == code {
			f.Message = own.Message // a client's share of the slots has one of its own
		}
		return a.fail(f, charged)
	case c.reply == replyRefused && err == nil:
		return a.refuse("settlement refused: "+reason, a.failure(orElse(s.Reason, reason)))
	}
	return a.fail(fault.New(fault.SettlementUncertain, errors.Join(s.Cause, err)), nil)
}

// find asks the chain within a budget, if there is time for it.
func (a *attempt) find(ctx context.Context, r ledger.Record, s Settlement, budget time.Duration) Finding {
	budget = min(a.spare(), budget)
	if budget < leastEvidence {
		return Finding{Cause: errors.New("no time left to ask the chain")}
	}
	q, err := QuestionOf(r)
	if err != nil {
		return Finding{Cause: err}
	}
	q.Transaction = orElse(s.Transaction, r.Transaction)
	q.Sent = q.Sent || s.Class == Unknown
	ctx, cancel := context.WithTimeout(ctx, budget)
	defer cancel()
	begun := a.gate.now()
	defer func() { a.trace.Evidence += a.since(begun) }()
	return a.gate.evidence.Find(ctx, q)
}

// failure is the PAYMENT-RESPONSE of a settlement that failed.
func (a *attempt) failure(reason string) *SettleResponse {
	return &SettleResponse{ErrorReason: reason, Network: a.terms.Network, Payer: a.payment.From.Checksum()}
}

func (a *attempt) receipt(transaction string) *ledger.Receipt {
	return &ledger.Receipt{Transaction: transaction, Payer: a.payment.From.Checksum(), Network: a.terms.Network}
}

// lookUp runs the job of a payment whose money has moved. receipt is nil when the
// ledger already holds it; otherwise it is written while the job runs.
func (a *attempt) lookUp(ctx context.Context, h *ledger.Hold, receipt *ledger.Receipt) Outcome {
	begins := a.canRun()
	var wrote sync.WaitGroup
	var settled error
	repeat := receipt == nil && h.Record().Lookups > 1
	if receipt != nil {
		wrote.Go(func() { settled = h.Settled(withoutDeadline(ctx), *receipt, begins) })
	} else {
		receipt = h.Record().Receipt
	}
	var reply Reply
	var failed *fault.Error
	if begins {
		reply, failed = a.run(context.WithValue(ctx, saleKey{}, Sale{
			Payer: receipt.Payer, Network: receipt.Network, Transaction: receipt.Transaction, Amount: a.trace.Amount, Repeat: repeat,
		}))
	} else {
		failed = a.job.Timeout.New(errors.New("no time left for the lookup"))
	}
	wrote.Wait()
	a.slot.leaving(ctx, a.gate.log, reply.Silent || failed != nil && failed.IsSilence())
	paid := Outcome{Receipt: &SettleResponse{Success: true, Transaction: receipt.Transaction, Network: receipt.Network, Payer: receipt.Payer}}
	if settled != nil {
		a.unrecorded(ctx, "settlement not recorded", settled)
		if errors.Is(settled, ledger.ErrLost) {
			// The receipt is on record, and another attempt has the lease: the
			// next retry gets the answer.
			return a.with(paid, a.fail(fault.New(fault.SettlementUncertain, settled), charged(true)))
		}
	} else {
		a.seen(ledger.Settled)
	}
	switch now := a.gate.now(); {
	case failed == nil || failed.Info().Class == fault.Answer:
	case begins && failed.IsSilence() && ledger.LastLookup(h.Record(), now):
		failed = silence(failed)
	default:
		return a.with(paid, a.owe(ctx, h, failed, begins && !failed.IsPrevented()))
	}
	return a.with(paid, a.redeem(ctx, h, reply, failed, *paid.Receipt))
}

// canRun says whether enough time is left for the job's budget. It allows for the
// moment that passes between the end of the settlement and the call.
func (a *attempt) canRun() bool {
	const moment = time.Second / 2
	left := a.request.Deadline.Sub(a.gate.now()) - afterwork
	return left+moment >= a.job.Budget
}

// run runs the job within its budget. After a panic, which is a bug of ours, the
// answer is owed.
func (a *attempt) run(ctx context.Context) (reply Reply, failed *fault.Error) {
	ctx, cancel := context.WithTimeout(ctx, a.job.Budget)
	defer cancel()
	begun := a.gate.now()
	defer func() {
		a.trace.Lookup = a.since(begun)
		if p := recover(); p != nil {
			reply, failed = Reply{}, fault.New(fault.InternalError, fmt.Errorf("lookup panicked: %v", p))
		}
	}()
	reply, err := a.job.Run(ctx)
	if err != nil {
		return Reply{}, fault.From(err)
	}
	return reply, nil
}

// redeem stores the answer that uses the payment up: a result, or a fault that is
// a fact about the target. The answer of a lookup that ran again is stored only if
// fewer of its parts are owed.
func (a *attempt) redeem(ctx context.Context, h *ledger.Hold, reply Reply, f *fault.Error, paid SettleResponse) Outcome {
	if had := h.Record().Answer; f == nil && had != nil && had.Stored && len(reply.Owed) >= len(had.Owed) {
		return a.noBetter(ctx, h, reply.Prevented)
	}
	out := Outcome{Status: cmp.Or(reply.Status, http.StatusOK), Header: reply.Header, Body: reply.Body, Fault: f, Payment: PaymentStatus{Charged: charged(true)}}
	if f != nil {
		out.Status = f.Info().Status
		out.Body = a.request.Error(f, out.Payment)
	}
	begun := a.gate.now()
	signed := a.signed(ctx, paid, out.Body)
	out.Receipt = paid.with(signed)
	answer, err := ledger.NewAnswer(out.Status, out.Body)
	if err == nil {
		answer.Owed, answer.Receipt, answer.Header = reply.Owed, signed, reply.Header
		err = h.Redeem(withoutDeadline(ctx), answer, a.request.Window, reply.Prevented)
	}
	a.trace.Record = a.since(begun)
	if errors.Is(err, ledger.ErrLost) {
		return a.fail(fault.New(fault.SettlementUncertain, err), charged(true))
	}
	if !ledger.Spent(h.Record(), a.gate.now()) {
		out.Owed = reply.Owed
	}
	if err != nil {
		// The payer has paid and gets the answer although it is not stored. The next
		// claim finds the payment settled, or asks for evidence.
		a.unrecorded(ctx, "answer not recorded", err)
		a.trace.Cause = err
		return out
	}
	a.seen(ledger.Redeemed)
	return out
}

// noBetter ends a lookup of a bundle whose answer has no more parts than the one
// that is stored, and replays that.
func (a *attempt) noBetter(ctx context.Context, h *ledger.Hold, prevented bool) Outcome {
	if err := h.Keep(withoutDeadline(ctx), prevented); err != nil {
		a.unrecorded(ctx, "lookup of a bundle not recorded", err)
	}
	return a.replay(h.Record())
}

// owe ends a lookup that gave no answer: the payment stays settled.
func (a *attempt) owe(ctx context.Context, h *ledger.Hold, f *fault.Error, began bool) Outcome {
	if had := h.Record().Answer; had != nil && had.Stored {
		return a.noBetter(ctx, h, !began)
	}
	var err error
	begun := a.gate.now()
	if began {
		err = h.Release(withoutDeadline(ctx), ledger.Failure{Code: string(f.Code), Status: f.Info().Status, Message: f.Public(), Silence: f.IsSilence()})
	} else if !h.Released() {
		err = h.Return(withoutDeadline(ctx))
	}
	a.trace.Record = a.since(begun)
	r := h.Record()
	if err != nil {
		a.unrecorded(ctx, "owed lookup not recorded", err)
		r.Lookups-- // it may not count, so the payer is not told that none is left
	}
	return a.owed(f, r)
}

// owed answers a fault after settlement: charged, and retryable with the same
// signature until the lookups are used up.
func (a *attempt) owed(f *fault.Error, r ledger.Record) Outcome {
	last := ledger.Spent(r, a.gate.now())
	if last {
		f = beyondRetrying(f)
	} else {
		f = a.repeatable(f.After(max(ledger.NextLookup(r), f.Wait())), r)
	}
	out := a.fail(f, charged(true))
	out.Payment.Retryable = !last
	out.Body = a.request.Error(f, out.Payment)
	return out
}

// with is an outcome of a payment that was made: it says so unless it does
// already.
func (a *attempt) with(paid, out Outcome) Outcome {
	if out.Receipt == nil {
		out.Receipt = paid.Receipt
	}
	return out
}
