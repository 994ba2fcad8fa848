package x402

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/receipt"
)

// lookUp runs the job of a payment whose money has moved, if the job's whole budget is left,
// give or take the moment between the end of the settlement and this call. settled is nil
// when the ledger already has it; otherwise it is written while the job runs.
func (a *attempt) lookUp(ctx context.Context, h *ledger.Hold, settled *ledger.Receipt) *Outcome {
	const moment = time.Second / 2
	begins := a.spare() >= -moment
	proof := cmp.Or(settled, h.Record().Receipt)
	sale := Sale{
		Payer:       proof.Payer,
		Network:     proof.Network,
		Transaction: proof.Transaction,
		Amount:      a.terms.Amount,
		Purchase:    digestOf(h.Record().Key),
		Repeat:      settled == nil && h.Record().Lookups > 1,
	}
	var writing sync.WaitGroup
	var err error
	if settled != nil {
		writing.Go(func() { err = h.Settled(withoutDeadline(ctx), *settled, begins) })
	}
	reply := Reply{}
	f := a.job.Timeout.New(errors.New("no time left for the lookup"))
	var unfinished *Unfinished
	if begins {
		reply, f, unfinished = a.run(ctx, sale)
	}
	writing.Wait()
	if a.wrote(ctx, "settlement not recorded", err) {
		a.seen(ledger.Settled)
	}
	l := &lookup{hold: h, paid: success(proof), began: begins, lost: errors.Is(err, ledger.ErrLost)}
	if unfinished != nil {
		return a.answerUnfinished(ctx, l, unfinished)
	}
	// The lookup has ended, so that what the request counts as is known.
	a.close(ctx, reply.Silent || f != nil && f.IsSilence())
	return a.endLookup(ctx, l, reply, f)
}

// lookup is a lookup whose outcome has to be recorded.
type lookup struct {
	hold  *ledger.Hold
	paid  *SettleResponse
	began bool
	lost  bool // another attempt has the lease
}

// endLookup records the outcome of a lookup, and answers.
func (a *attempt) endLookup(ctx context.Context, l *lookup, reply Reply, f *fault.Error) *Outcome {
	if l.lost {
		// The receipt is on record: the next retry gets the answer.
		return failed(fault.New(fault.SettlementUncertain, ledger.ErrLost), new(true)).with(l.paid)
	}
	if f != nil && f.Info().Class != fault.Answer {
		if !f.IsSilence() || !ledger.SilenceDecides(l.hold.Record(), a.gate.Now()) {
			return a.endUnanswered(ctx, l.hold, f, l.began && !f.IsPrevented()).with(l.paid)
		}
		f = silence(f)
	}
	return a.redeem(ctx, l.hold, reply, f, l.paid).with(l.paid)
}

// answerUnfinished answers a payment whose work goes on after its time: the answer is owed,
// and Finish records it when it is there. Until then the lease keeps other runs out, and the
// slot counts the work.
func (a *attempt) answerUnfinished(ctx context.Context, l *lookup, u *Unfinished) *Outcome {
	slot := a.dues.slot
	a.dues.slot = nil
	a.close(ctx, false)
	ctx = withoutDeadline(ctx)
	out := a.answerOwed(a.job.Timeout.New(u), l.hold.Record(), true).with(l.paid)
	out.Finish = func() {
		reply, f := a.rest(u)
		a.endLookup(ctx, l, reply, f)
		if slot != nil {
			a.release(ctx, slot)
		}
	}
	return out
}

// rest waits for the end of work that goes on after its time.
func (a *attempt) rest(u *Unfinished) (reply Reply, f *fault.Error) {
	defer func() {
		if p := recover(); p != nil {
			reply = Reply{}
			f = fault.New(fault.InternalError, fmt.Errorf("unfinished work panicked: %v", p))
		}
	}()
	reply, err := u.Rest()
	if err != nil {
		return Reply{}, fault.From(err)
	}
	return reply, nil
}

// run runs the job within its budget. After a panic, which is a bug of ours, the
// answer is owed.
func (a *attempt) run(ctx context.Context, sale Sale) (reply Reply, f *fault.Error, u *Unfinished) {
	ctx, cancel := context.WithTimeout(context.WithValue(ctx, saleKey{}, sale), a.job.Budget)
	defer cancel()
	begun := a.gate.Now()
	defer func() {
		a.trace.Lookup = a.since(begun)
		if p := recover(); p != nil {
			reply = Reply{}
			f = fault.New(fault.InternalError, fmt.Errorf("lookup panicked: %v", p))
		}
	}()
	reply, err := a.job.Run(ctx)
	if errors.As(err, &u) {
		return Reply{}, nil, u
	}
	if err != nil {
		return Reply{}, fault.From(err), nil
	}
	return reply, nil, nil
}

// redeem stores the answer that uses the payment up: a result, or a fault that is
// a fact about the target. The answer of a lookup that ran again is stored only if
// fewer of its parts are owed.
func (a *attempt) redeem(ctx context.Context, h *ledger.Hold, reply Reply, f *fault.Error, paid *SettleResponse) *Outcome {
	if had := h.Record().Answer; f == nil && had != nil && had.Stored && len(reply.Owed) >= len(had.Owed) {
		return a.noBetter(ctx, h, reply.Prevented)
	}
	out := &Outcome{
		Status:  cmp.Or(reply.Status, http.StatusOK),
		Header:  reply.Header,
		Body:    reply.Body,
		Payment: PaymentStatus{Charged: new(true)},
	}
	if f != nil {
		out.Status = f.Info().Status
		out.Fault = f
		out.Body = a.request.Error(f, out.Payment)
	}
	begun := a.gate.Now()
	signed := a.signed(ctx, paid, out.Body)
	out.Receipt = paid.with(signed)
	answer, err := a.gate.Ledger.NewAnswer(out.Status, out.Body)
	if err == nil {
		answer.Owed = reply.Owed
		answer.Receipt = signed
		answer.Header = reply.Header
		err = h.Redeem(withoutDeadline(ctx), answer, a.request.Window, reply.Prevented)
	}
	a.trace.Record = a.since(begun)
	if errors.Is(err, ledger.ErrLost) {
		return failed(fault.New(fault.SettlementUncertain, err), new(true))
	}
	out.Owed = reply.Owed
	// The payer has paid and gets the answer also where it is not stored. The next
	// claim finds the payment settled, or asks for evidence.
	if a.wrote(ctx, "answer not recorded", err) {
		a.seen(ledger.Redeemed)
	} else {
		a.trace.Cause = err
	}
	return out
}

// signBudget is the most that signing may take. It is a part of afterwork: the key
// can be in a secret that has to be read first, and the answer must still be stored.
const signBudget = time.Second

// signed is the receipt of an answer that this attempt gives; empty without a key,
// or without one in time. An answer without a receipt is an answer all the same.
func (a *attempt) signed(ctx context.Context, paid *SettleResponse, body []byte) string {
	if a.gate.Receipts == nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(withoutDeadline(ctx), signBudget)
	defer cancel()
	jws, err := a.gate.Receipts.Sign(ctx, receipt.Statement{
		IssuedAt:     a.gate.Now().Unix(),
		Network:      paid.Network,
		Payer:        paid.Payer,
		Transaction:  paid.Transaction,
		Request:      a.job.Fingerprint,
		ResourceURL:  a.request.Offer.required.Resource.URL,
		ResponseHash: receipt.HashOf(body),
	})
	if err != nil {
		a.trace.Unreceipted = true
		a.gate.Log.WarnContext(ctx, "no receipt", "error", err)
		return ""
	}
	return jws
}

// success is the PAYMENT-RESPONSE of a receipt, the same on every answer; nil without one.
func success(r *ledger.Receipt) *SettleResponse {
	if r == nil {
		return nil
	}
	return &SettleResponse{
		Success:     true,
		Transaction: r.Transaction,
		Network:     r.Network,
		Payer:       r.Payer,
	}
}

// with returns the response with a signed receipt, if there is one.
func (s *SettleResponse) with(jws string) *SettleResponse {
	if jws == "" {
		return s
	}
	out := *s
	out.Extensions.OfferReceipt.Info.Receipt = SignedReceipt{Format: FormatJWS, Signature: jws}
	return &out
}

// noBetter ends a lookup of a bundle whose answer has no more parts than the one
// that is stored, and replays that.
func (a *attempt) noBetter(ctx context.Context, h *ledger.Hold, prevented bool) *Outcome {
	a.wrote(ctx, "lookup of a bundle not recorded", h.KeepAnswer(withoutDeadline(ctx), prevented))
	return a.replay(h.Record())
}

// endUnanswered ends a lookup that gave no answer: the payment stays settled. It is charged, and
// retryable with the same signature while the seller allows another lookup.
func (a *attempt) endUnanswered(ctx context.Context, h *ledger.Hold, f *fault.Error, began bool) *Outcome {
	if had := h.Record().Answer; had != nil && had.Stored {
		return a.noBetter(ctx, h, !began)
	}
	var err error
	begun := a.gate.Now()
	if began {
		err = h.Release(withoutDeadline(ctx), ledger.Failure{
			Code:    string(f.Code),
			Status:  f.Info().Status,
			Message: f.Public(),
			Silence: f.IsSilence(),
			Pause:   f.Pause(),
		})
	} else if !h.Released() {
		err = h.Return(withoutDeadline(ctx))
	}
	a.trace.Record = a.since(begun)
	r := h.Record()
	if !a.wrote(ctx, "owed lookup not recorded", err) {
		r.Lookups-- // it may not count, so the payer is not told that none is left
	}
	left := ledger.Stand(&r, a.view()) != ledger.StandingExhausted
	return a.answerOwed(f.After(max(ledger.NextLookup(r), f.Wait())), r, left)
}

// wrote says whether a verdict was written, and notes one that could not be, for the
// log and the alarm. A lost lease is not a failure of the ledger.
func (a *attempt) wrote(ctx context.Context, otherwise string, err error) bool {
	if err == nil {
		return true
	}
	a.trace.Unrecorded = a.trace.Unrecorded || !errors.Is(err, ledger.ErrLost)
	a.gate.Log.ErrorContext(ctx, otherwise, "error", err, "key", a.claim.Key, "transaction", a.trace.Transaction)
	return false
}

// withoutDeadline is ctx without its deadline, for writing a verdict: a process that was
// frozen past it must still record that money moved. Each call of a store has a time-out.
func withoutDeadline(ctx context.Context) context.Context { return context.WithoutCancel(ctx) }
