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

// lookup is one run of the job for a payment whose money has moved.
type lookup struct {
	*holder
	paid *SettleResponse
	// began reports whether the job was run. It is not run if too little time is left.
	began     bool
	leaseLost bool // another attempt has taken the lease of the payment
}

// lookUp runs the job of a payment whose money has moved, if enough time is left for the job's
// whole budget. Up to half a second of the budget may be missing, because some time passes
// between the end of the settlement and this call. newReceipt is a receipt that is not on
// record yet, or nil if the receipt is on record. lookUp writes a new receipt to the ledger
// while the job runs.
func (h *holder) lookUp(ctx context.Context, newReceipt *ledger.Receipt) *Outcome {
	const tolerance = time.Second / 2
	proof := cmp.Or(newReceipt, h.record().Receipt)
	l := &lookup{
		holder: h,
		paid:   successResponse(proof),
		began:  h.spareTime() >= -tolerance,
	}
	sale := l.sale(proof, newReceipt == nil)
	var writing sync.WaitGroup
	var writeErr error
	if newReceipt != nil {
		writing.Go(func() { writeErr = h.hold.Settled(withoutDeadline(ctx), *newReceipt, l.began) })
	}
	var reply Reply
	var jobErr error
	if l.began {
		reply, jobErr = l.callJob(ctx, sale)
	} else {
		jobErr = h.job.Timeout.New(errors.New("no time left for the lookup"))
	}
	writing.Wait()
	if h.wrote(ctx, "settlement not recorded", writeErr) {
		h.noteState(ledger.Settled)
	}
	l.leaseLost = errors.Is(writeErr, ledger.ErrLost)
	if unfinished, ok := errors.AsType[*Unfinished](jobErr); ok {
		return l.answerUnfinished(ctx, unfinished)
	}
	f := faultOf(jobErr)
	// The lookup has ended, so the cost of the request is known.
	h.dues.close(ctx, reply.Silent || f != nil && f.IsSilence())
	return l.end(ctx, reply, f)
}

// sale returns the payment as the job sees it. recorded means that the settlement was already
// on record when this attempt began.
func (l *lookup) sale(proof *ledger.Receipt, recorded bool) Sale {
	r := l.record()
	return Sale{
		Payer:       proof.Payer,
		Network:     proof.Network,
		Transaction: proof.Transaction,
		Amount:      l.terms.Amount,
		Purchase:    digestOf(r.Key),
		Repeat:      recorded && r.Lookups > 1,
	}
}

// faultOf returns an error of the job as a fault. It returns nil if err is nil.
func faultOf(err error) *fault.Error {
	if err == nil {
		return nil
	}
	return fault.From(err)
}

// end records the outcome of a lookup and returns the answer.
func (l *lookup) end(ctx context.Context, reply Reply, f *fault.Error) *Outcome {
	switch {
	case l.leaseLost:
		// Another attempt has the lease, so this answer cannot be stored and is not given. But
		// the settlement was recorded (ledger.Hold.Settled). Therefore the payer can get the
		// answer with the next retry.
		return faultOutcome(fault.New(fault.SettlementUncertain, ledger.ErrLost), new(true)).withResponse(l.paid)
	case f == nil, f.Info().Class == fault.Answer:
		return l.redeem(ctx, reply, f).withResponse(l.paid)
	case f.IsSilence() && ledger.SilenceDecides(l.record(), l.gate.Now()):
		return l.redeem(ctx, reply, silenceFault(f)).withResponse(l.paid)
	}
	return l.endOwed(ctx, f).withResponse(l.paid)
}

// answerUnfinished answers a payment whose work continues although its time is up: the answer
// is owed. When the work has ended, Outcome.Finish records the outcome of the work. Until then
// the lease prevents other runs, and the slot remains taken.
func (l *lookup) answerUnfinished(ctx context.Context, u *Unfinished) *Outcome {
	slot := l.dues.slot
	l.dues.slot = nil
	l.dues.close(ctx, false)
	ctx = withoutDeadline(ctx)
	f := l.job.Timeout.New(u)
	out := l.responder().owed(f, l.record(), true).withResponse(l.paid)
	out.Finish = func() {
		reply, err := awaitRest(u)
		l.end(ctx, reply, faultOf(err))
		if slot != nil {
			l.dues.release(ctx, slot)
		}
	}
	return out
}

// awaitRest waits for the end of work that continues although its time is up, and returns the
// result of the work.
func awaitRest(u *Unfinished) (reply Reply, err error) {
	defer func() {
		if p := recover(); p != nil {
			reply = Reply{}
			err = fault.New(fault.InternalError, fmt.Errorf("unfinished work panicked: %v", p))
		}
	}()
	reply, err = u.Rest()
	if err != nil {
		return Reply{}, err
	}
	return reply, nil
}

// callJob runs the job within its budget. After a panic, which is a bug of ours, the answer is
// owed.
func (l *lookup) callJob(ctx context.Context, sale Sale) (reply Reply, err error) {
	ctx, cancel := context.WithTimeout(context.WithValue(ctx, saleKey{}, sale), l.job.Budget)
	defer cancel()
	begun := l.gate.Now()
	defer func() {
		l.trace.Lookup = l.since(begun)
		if p := recover(); p != nil {
			reply = Reply{}
			err = fault.New(fault.InternalError, fmt.Errorf("lookup panicked: %v", p))
		}
	}()
	reply, err = l.job.Run(ctx)
	if err != nil {
		return Reply{}, err
	}
	return reply, nil
}

// redeem stores the answer, which uses up the payment. The answer is a result, or a fault that
// states a fact about the target. If an answer is already stored, a result replaces it only if
// the result has fewer owed parts.
func (l *lookup) redeem(ctx context.Context, reply Reply, f *fault.Error) *Outcome {
	stored := storedAnswer(l.record())
	if f == nil && stored != nil && len(reply.Owed) >= len(stored.Owed) {
		return l.keepStoredAnswer(ctx, reply.Prevented)
	}
	out := l.answerWith(reply, f)
	begun := l.gate.Now()
	signed := l.signReceipt(ctx, out.Body)
	out.Receipt = l.paid.withReceipt(signed)
	answer, err := l.gate.Ledger.NewAnswer(out.Status, out.Body)
	if err == nil {
		answer.Owed = reply.Owed
		answer.Receipt = signed
		answer.Header = reply.Header
		err = l.hold.Redeem(withoutDeadline(ctx), answer, l.request.Window, reply.Prevented)
	}
	l.trace.Record = l.since(begun)
	if errors.Is(err, ledger.ErrLost) {
		return faultOutcome(fault.New(fault.SettlementUncertain, err), new(true))
	}
	// The payer has paid, and gets the answer even if it could not be stored. After a failed
	// write, the next claim finds that the payment is settled, or asks the chain.
	if l.wrote(ctx, "answer not recorded", err) {
		l.noteState(ledger.Redeemed)
	} else {
		l.trace.Cause = err
	}
	return out
}

// storedAnswer returns the answer that is stored in a record, or nil if there is none.
func storedAnswer(r ledger.Payment) *ledger.Answer {
	if r.Answer == nil || !r.Answer.Stored {
		return nil
	}
	return r.Answer
}

// answerWith returns the outcome for a result or, if f is not nil, for a fault about the
// target.
func (l *lookup) answerWith(reply Reply, f *fault.Error) *Outcome {
	out := &Outcome{
		Status:  cmp.Or(reply.Status, http.StatusOK),
		Header:  reply.Header,
		Body:    reply.Body,
		Owed:    reply.Owed,
		Payment: PaymentStatus{Charged: new(true)},
	}
	if f != nil {
		out.Status = f.Info().Status
		out.Fault = f
		out.Body = l.request.Error(f, out.Payment)
	}
	return out
}

// signBudget is the maximum time for signing a receipt, including the time to read the key if
// the key is in a secret. The constant writeTime includes this time, and the time for storing
// the answer.
const signBudget = time.Second

// signReceipt returns the signed receipt of the answer that this attempt gives. If there is no
// key, or if the key is not available in time, signReceipt returns the empty string, and the
// answer is given without a receipt.
func (l *lookup) signReceipt(ctx context.Context, body []byte) string {
	if l.gate.Receipts == nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(withoutDeadline(ctx), signBudget)
	defer cancel()
	jws, err := l.gate.Receipts.Sign(ctx, receipt.Statement{
		IssuedAt:     l.gate.Now().Unix(),
		Network:      l.paid.Network,
		Payer:        l.paid.Payer,
		Transaction:  l.paid.Transaction,
		Request:      l.job.Fingerprint,
		ResourceURL:  l.request.Offer.required.Resource.URL,
		ResponseHash: receipt.HashOf(body),
	})
	if err != nil {
		l.trace.Unreceipted = true
		l.gate.Log.WarnContext(ctx, "no receipt", "error", err)
		return ""
	}
	return jws
}

// successResponse returns the PAYMENT-RESPONSE for the receipt of a transfer, or nil if r is
// nil. Apart from the signed receipt of the answer, it is the same on every answer to the
// payment.
func successResponse(r *ledger.Receipt) *SettleResponse {
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

// withReceipt returns a copy of the response with a signed receipt. If jws is empty, it
// returns the response itself.
func (s *SettleResponse) withReceipt(jws string) *SettleResponse {
	if jws == "" {
		return s
	}
	out := *s
	out.Extensions.OfferReceipt.Info.Receipt = SignedReceipt{Format: FormatJWS, Signature: jws}
	return &out
}

// keepStoredAnswer ends a lookup of a bundle that found no more parts than the stored answer
// has. It replays the stored answer.
func (l *lookup) keepStoredAnswer(ctx context.Context, prevented bool) *Outcome {
	err := l.hold.KeepAnswer(withoutDeadline(ctx), prevented)
	l.wrote(ctx, "lookup of a bundle not recorded", err)
	return l.responder().replay(l.record())
}

// endOwed ends a lookup that gave no answer. The payment remains settled, so the payer remains
// charged. As long as the seller allows another lookup, the payer can retry with the same
// signature.
func (l *lookup) endOwed(ctx context.Context, f *fault.Error) *Outcome {
	counts := l.began && !f.IsPrevented()
	if storedAnswer(l.record()) != nil {
		return l.keepStoredAnswer(ctx, !counts)
	}
	begun := l.gate.Now()
	err := l.release(withoutDeadline(ctx), f, counts)
	l.trace.Record = l.since(begun)
	r := l.record()
	if !l.wrote(ctx, "owed lookup not recorded", err) {
		// It is not known whether the lookup counts, because the write failed. The payer must
		// therefore not be told that no lookup is left.
		r.Lookups--
	}
	more := ledger.Stand(&r, l.view()) != ledger.StandingExhausted
	wait := max(ledger.NextLookup(r), f.Wait())
	return l.responder().owed(f.After(wait), r, more)
}

// release gives the lease back after a lookup that gave no answer. If the lookup counts, it
// also records the fault.
func (l *lookup) release(ctx context.Context, f *fault.Error, counts bool) error {
	if counts {
		return l.hold.Release(ctx, ledger.Failure{
			Code:    string(f.Code),
			Status:  f.Info().Status,
			Message: f.Public(),
			Silence: f.IsSilence(),
			Pause:   f.Pause(),
		})
	}
	if l.hold.Released() {
		return nil
	}
	return l.hold.GiveBack(ctx)
}

// wrote reports whether a write of this attempt succeeded. If the write failed, wrote logs the
// message, and sets Trace.Unrecorded for the alarm. A lost lease is only logged, because it is
// not a failure of the ledger.
func (h *holder) wrote(ctx context.Context, message string, err error) bool {
	if err == nil {
		return true
	}
	if !errors.Is(err, ledger.ErrLost) {
		h.trace.Unrecorded = true
	}
	h.gate.Log.ErrorContext(ctx, message, "error", err, "key", h.claim.Key, "transaction", h.trace.Transaction)
	return false
}

// withoutDeadline returns ctx without its deadline, for writing an outcome. Even a process
// that was frozen past the deadline must record that money moved. The write still ends,
// because every call of a store has a separate timeout.
func withoutDeadline(ctx context.Context) context.Context { return context.WithoutCancel(ctx) }
