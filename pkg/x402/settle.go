package x402

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// settle moves the money, once, and goes on to the lookup when it has moved.
func (a *attempt) settle(ctx context.Context, h *ledger.Hold) Outcome {
	// The claim's own write took time: the budget is taken anew.
	budget := a.settleTime(h.Record().Doubt)
	if budget < leastSettle {
		return a.notSent(ctx, h, Settlement{Code: fault.PaymentUnavailable, Reason: "no time left to settle"})
	}
	bounded, cancel := context.WithTimeout(ctx, budget)
	defer cancel()
	begun := a.gate.now()
	s := a.gate.facilitator.Settle(bounded, a.payment.forFacilitator(a.request.Offer, a.claim.Terms), a.terms)
	a.trace.Settle = a.since(begun)
	a.trace.Class, a.trace.Reason, a.trace.Transaction = s.Class.String(), s.Reason, s.Transaction
	a.trace.Cause, a.trace.Extensions = s.Cause, s.ExtensionResponses
	if s.Class == Moved {
		return a.lookUp(ctx, h, a.receipt(s.Transaction))
	}
	if out, decided := a.byEvidence(ctx, h, &s); decided {
		return out
	}
	switch s.Class {
	case Refused:
		return a.refused(ctx, h, s)
	case NotSent, TurnedAway:
		return a.notSent(ctx, h, s)
	case Moved, Unknown:
	}
	return a.uncertain(ctx, h, s)
}

// byEvidence decides what the facilitator's word alone does not: anything in
// doubt, any used nonce, any unknown outcome, and a refusal at the end of the
// window, because facilitators look at the window before they look at the
// nonce. It reports false when nothing is decided and the facilitator's word
// is all there is; why the chain could not tell is then added to s.
func (a *attempt) byEvidence(ctx context.Context, h *ledger.Hold, s *Settlement) (Outcome, bool) {
	inDoubt := h.Record().Doubt
	ending := s.Class == Refused && (s.Expired || !a.gate.now().Add(leastWindow).Before(h.Record().ValidBefore))
	if !inDoubt && !s.NonceUsed && s.Class != Unknown && !ending {
		return Outcome{}, false
	}
	if a.gate.evidence == nil {
		// Without a view of the chain, a used nonce on a payment that may have
		// been sent counts as paid: turning away a payer who has paid is worse
		// than one answer to a payer who cancelled.
		if s.NonceUsed && inDoubt {
			return a.lookUp(ctx, h, a.receipt(orElse(s.Transaction, h.Record().Transaction))), true
		}
		return Outcome{}, false
	}
	f := a.find(ctx, h.Record(), *s)
	a.trace.Verdict = f.Verdict.String()
	switch f.Verdict {
	case Paid:
		a.trace.Transaction = f.Transaction
		return a.lookUp(ctx, h, a.receipt(f.Transaction)), true
	case NeverPaid:
		return a.disproved(ctx, h, f), true
	case CannotTell, StillOpen:
	}
	s.Cause = errors.Join(s.Cause, f.Cause)
	if s.NonceUsed || ending && f.Verdict == CannotTell {
		// Used, says the facilitator, or it did not look, and the chain does not
		// say by whom.
		return a.uncertain(ctx, h, *s), true
	}
	return Outcome{}, false
}

// find asks the chain, if there is time for it.
func (a *attempt) find(ctx context.Context, r ledger.Record, s Settlement) Finding {
	budget := min(a.spare(), evidenceBudget)
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

// disproved answers a payment that moved nothing and never will.
func (a *attempt) disproved(ctx context.Context, h *ledger.Hold, f Finding) Outcome {
	err := h.Disproved(bare(ctx), f.Reason)
	a.seen(h.Record().State)
	if err != nil {
		a.unrecorded(ctx, "disproof not recorded", err)
		return a.unsure(err)
	}
	return a.refuse("settlement refused: "+f.Reason, a.failure(orElse(a.trace.Reason, f.Reason)))
}

// failure is the PAYMENT-RESPONSE of a settlement that failed.
func (a *attempt) failure(reason string) *SettleResponse {
	return &SettleResponse{ErrorReason: reason, Network: a.terms.Network, Payer: a.payment.From.Checksum()}
}

func (a *attempt) receipt(transaction string) *ledger.Receipt {
	return &ledger.Receipt{Transaction: transaction, Payer: a.payment.From.Checksum(), Network: a.terms.Network}
}

func (a *attempt) refused(ctx context.Context, h *ledger.Hold, s Settlement) Outcome {
	err := h.Refused(bare(ctx), s.Reason)
	a.seen(h.Record().State)
	if err != nil {
		a.unrecorded(ctx, "refusal not recorded", err)
	}
	if err != nil || h.Record().State != ledger.Refused {
		// In doubt, or the verdict could not be written: a refusal of this
		// attempt says nothing about an earlier one.
		return a.unsure(err)
	}
	return a.refuse("settlement refused: "+s.Reason, a.failure(s.Reason))
}

func (a *attempt) notSent(ctx context.Context, h *ledger.Hold, s Settlement) Outcome {
	err := h.NotSent(bare(ctx), s.Reason)
	a.seen(h.Record().State)
	code := s.Code
	if code == "" {
		code = fault.FacilitatorUnavailable
	}
	charged := chargedBy(h.Record())
	if err != nil {
		a.unrecorded(ctx, "claim not given back", err)
		charged = nil
	}
	return a.fail(fault.New(code, errors.Join(s.Cause, err)), charged)
}

func (a *attempt) uncertain(ctx context.Context, h *ledger.Hold, s Settlement) Outcome {
	err := h.Uncertain(bare(ctx), s.Reason, s.Transaction)
	a.seen(h.Record().State)
	if err != nil {
		a.unrecorded(ctx, "doubt not recorded", err)
	}
	return a.unsure(errors.Join(s.Cause, err))
}

// unsure answers that nobody knows yet.
func (a *attempt) unsure(cause error) Outcome {
	return a.fail(fault.New(fault.SettlementUncertain, cause), nil)
}

// lookUp runs the work of a payment whose money has moved. receipt is nil when
// the ledger already holds it; otherwise it is written while the work runs.
func (a *attempt) lookUp(ctx context.Context, h *ledger.Hold, receipt *ledger.Receipt) Outcome {
	begins := a.canRun()
	var wrote sync.WaitGroup
	var settled error
	if receipt != nil {
		wrote.Go(func() { settled = h.Settled(bare(ctx), *receipt, begins) })
	} else {
		receipt = h.Record().Receipt
	}
	var body []byte
	var failed *fault.Error
	if begins {
		body, failed = a.run(ctx)
	} else {
		failed = fault.New(a.job.Timeout, errors.New("no time left for the lookup"))
	}
	wrote.Wait()
	a.slot.leaving(ctx, a.gate.log)
	paid := Outcome{Receipt: &SettleResponse{Success: true, Transaction: receipt.Transaction, Network: receipt.Network, Payer: receipt.Payer}}
	if settled != nil {
		a.unrecorded(ctx, "settlement not recorded", settled)
		if errors.Is(settled, ledger.ErrLost) {
			// The receipt is on record, the lease is somebody else's: the next
			// retry gets the answer.
			return a.with(paid, a.fail(fault.New(fault.SettlementUncertain, settled), moved(true)))
		}
	} else {
		a.seen(ledger.Settled)
	}
	if failed != nil && failed.Info().Class != fault.Answer {
		return a.with(paid, a.owe(ctx, h, failed, begins))
	}
	return a.with(paid, a.redeem(ctx, h, body, failed))
}

// canRun says whether the work can have its budget, give or take the moment
// that passes between the end of the settlement and here.
func (a *attempt) canRun() bool {
	const moment = time.Second / 2
	left := a.request.Deadline.Sub(a.gate.now()) - afterwork
	return left+moment >= a.job.Budget
}

// run does the work within its budget. A panic is a bug of ours: the answer
// stays owed.
func (a *attempt) run(ctx context.Context) (body []byte, failed *fault.Error) {
	ctx, cancel := context.WithTimeout(ctx, a.job.Budget)
	defer cancel()
	begun := a.gate.now()
	defer func() {
		a.trace.Lookup = a.since(begun)
		if p := recover(); p != nil {
			body, failed = nil, fault.New(fault.InternalError, fmt.Errorf("lookup panicked: %v", p))
		}
	}()
	body, err := a.job.Run(ctx)
	if err != nil {
		return nil, fault.From(err)
	}
	return body, nil
}

// redeem uses the payment up with an answer: a result, or a fault that is a
// fact about the target.
func (a *attempt) redeem(ctx context.Context, h *ledger.Hold, body []byte, f *fault.Error) Outcome {
	out := Outcome{Status: 200, Body: body, Fault: f, Standing: Standing{Charged: moved(true)}}
	if f != nil {
		out.Status = f.Info().Status
		out.Body = a.request.Error(f, out.Standing)
	}
	begun := a.gate.now()
	answer, err := ledger.NewAnswer(out.Status, out.Body)
	if err == nil {
		err = h.Redeem(bare(ctx), answer)
	}
	a.trace.Record = a.since(begun)
	if errors.Is(err, ledger.ErrLost) {
		return a.fail(fault.New(fault.SettlementUncertain, err), moved(true))
	}
	if err != nil {
		// The payer has paid and here is the answer. The next claim finds the
		// payment settled, or asks for evidence.
		a.unrecorded(ctx, "answer not recorded", err)
		a.trace.Cause = err
		return out
	}
	a.seen(ledger.Redeemed)
	return out
}

// owe ends a lookup that gave no answer: the payment stands.
func (a *attempt) owe(ctx context.Context, h *ledger.Hold, f *fault.Error, began bool) Outcome {
	var err error
	begun := a.gate.now()
	if began {
		err = h.Release(bare(ctx), ledger.Failure{Code: string(f.Code), Message: f.Public()})
	} else if !h.Released() {
		err = h.Return(bare(ctx))
	}
	a.trace.Record = a.since(begun)
	if err != nil {
		a.unrecorded(ctx, "owed lookup not recorded", err)
	}
	return a.owed(f, h.Record())
}

// owed answers a fault after settlement: charged, and to be had again with the
// same signature until the lookups are used up.
func (a *attempt) owed(f *fault.Error, r ledger.Record) Outcome {
	last := ledger.Spent(r, a.gate.now())
	if wait := ledger.NextLookup(r); last {
		f = f.Final()
	} else if wait > 0 {
		f = f.After(wait)
	}
	out := a.fail(f, moved(true))
	out.Standing.Retryable = !last
	out.Body = a.request.Error(f, out.Standing)
	return out
}

func (a *attempt) with(paid, out Outcome) Outcome {
	out.Receipt = paid.Receipt
	return out
}
