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
	budget := a.settleTime()
	if budget <= 0 {
		return a.notSent(ctx, h, Settlement{Code: fault.PaymentUnavailable, Reason: "no time left to settle"})
	}
	bounded, cancel := context.WithTimeout(ctx, budget)
	defer cancel()
	begun := a.gate.now()
	s := a.gate.facilitator.Settle(bounded, a.payment.forFacilitator(a.request.Offer), a.terms)
	a.trace.Settle = a.gate.now().Sub(begun)
	a.trace.Class, a.trace.Reason, a.trace.Transaction = s.Class.String(), s.Reason, s.Transaction
	a.trace.Cause = s.Cause
	switch {
	case s.Class == Moved:
		return a.lookUp(ctx, h, a.receipt(s))
	case s.Class == Refused && s.NonceUsed && h.Record().Doubt:
		// Without a view of the chain, a used nonce on a payment that may have
		// been sent counts as paid: turning away a payer who has paid is worse
		// than one answer to a payer who cancelled.
		s.Transaction = orElse(s.Transaction, h.Record().Transaction)
		return a.lookUp(ctx, h, a.receipt(s))
	case s.Class == Refused:
		return a.refused(ctx, h, s)
	case s.Class == NotSent:
		return a.notSent(ctx, h, s)
	}
	return a.uncertain(ctx, h, s)
}

func (a *attempt) receipt(s Settlement) *ledger.Receipt {
	return &ledger.Receipt{Transaction: s.Transaction, Payer: a.payment.From.Checksum(), Network: a.terms.Network}
}

func (a *attempt) refused(ctx context.Context, h *ledger.Hold, s Settlement) Outcome {
	err := h.Refused(ctx, s.Reason)
	a.seen(h.Record().State)
	if err != nil || h.Record().State != ledger.Refused {
		// In doubt, or the verdict could not be written: a refusal of this
		// attempt says nothing about an earlier one.
		return a.unsure(err)
	}
	failed := &SettleResponse{ErrorReason: s.Reason, Network: a.terms.Network, Payer: a.payment.From.Checksum()}
	return a.refuse("settlement refused: "+s.Reason, failed)
}

func (a *attempt) notSent(ctx context.Context, h *ledger.Hold, s Settlement) Outcome {
	err := h.NotSent(ctx, s.Reason)
	a.seen(h.Record().State)
	code := s.Code
	if code == "" {
		code = fault.FacilitatorUnavailable
	}
	charged := chargedBy(h.Record())
	if err != nil {
		charged = nil
	}
	return a.fail(fault.New(code, errors.Join(s.Cause, err)), charged)
}

func (a *attempt) uncertain(ctx context.Context, h *ledger.Hold, s Settlement) Outcome {
	err := h.Uncertain(ctx, s.Reason, s.Transaction)
	a.seen(h.Record().State)
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
		wrote.Go(func() { settled = h.Settled(ctx, *receipt, begins) })
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
	paid := Outcome{Receipt: &SettleResponse{Success: true, Transaction: receipt.Transaction, Network: receipt.Network, Payer: receipt.Payer}}
	if settled != nil {
		a.gate.log.ErrorContext(ctx, "settlement not recorded", "error", settled, "key", a.claim.Key, "transaction", receipt.Transaction)
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
		a.trace.Lookup = a.gate.now().Sub(begun)
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
	answer, err := ledger.NewAnswer(out.Status, out.Body)
	if err == nil {
		err = h.Redeem(ctx, answer)
	}
	if errors.Is(err, ledger.ErrLost) {
		return a.fail(fault.New(fault.SettlementUncertain, err), moved(true))
	}
	if err != nil {
		// The payer has paid and here is the answer. The next claim finds the
		// payment settled, or asks for evidence.
		a.gate.log.ErrorContext(ctx, "answer not recorded", "error", err, "key", a.claim.Key)
		a.trace.Cause = err
		return out
	}
	a.seen(ledger.Redeemed)
	return out
}

// owe ends a lookup that gave no answer: the payment stands.
func (a *attempt) owe(ctx context.Context, h *ledger.Hold, f *fault.Error, began bool) Outcome {
	var err error
	if began {
		err = h.Release(ctx, ledger.Failure{Code: string(f.Code), Message: f.Public()})
	} else if !h.Released() {
		err = h.Return(ctx)
	}
	if err != nil {
		a.gate.log.ErrorContext(ctx, "owed lookup not recorded", "error", err, "key", a.claim.Key)
	}
	return a.owed(f, h.Record(), ledger.NextLookup(h.Record()))
}

// owed answers a fault after settlement: charged, and to be had again with the
// same signature until the lookups are used up.
func (a *attempt) owed(f *fault.Error, r ledger.Record, wait time.Duration) Outcome {
	last := ledger.LastLookup(r)
	if !last && wait > 0 {
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
