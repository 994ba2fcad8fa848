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
)

// Serve answers a signed request. It does not end with the client's context:
// once money may move, the work is finished even if the client has gone. No
// goroutine of the request outlives it.
func (g *Gate) Serve(ctx context.Context, r Request) (out Outcome) {
	ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), r.Deadline)
	defer cancel()
	a := &attempt{gate: g, request: r, dues: &dues{}}
	defer func() {
		a.dues.close(ctx, g.log, a.dues.doubted || out.Status == http.StatusPaymentRequired && !out.recorded)
		a.dues.closing.Wait()
		out.Trace = a.trace
	}()
	return a.serve(ctx)
}

// attempt is one signed request while it is served.
type attempt struct {
	gate    *Gate
	request Request
	payment *Payment
	claim   ledger.Payment
	terms   Requirements // what this payment is judged by and settled under
	key     string       // the purchase key, or empty
	badKey  error        // what is wrong with it
	job     Job
	resend  bool // it sends another payment of the purchase again, before its window ends
	dues    *dues
	trace   Trace
}

func (a *attempt) serve(ctx context.Context) Outcome {
	if out := a.admit(ctx); out != nil {
		return *out
	}
	if a.badKey != nil {
		return a.unclaimed(ctx, fault.From(a.badKey))
	}
	job, err := a.request.Prepare()
	if err != nil {
		return a.unclaimed(ctx, fault.From(err))
	}
	a.job = job
	a.claim.Request, a.claim.Purchase = job.Fingerprint, a.purchase()
	if a.settleTime(false) < leastSettle {
		return a.fail(fault.New(fault.PaymentUnavailable, errors.New("too little time left to settle")), nil)
	}
	begun := a.gate.now()
	c, err := a.gate.ledger.Claim(ctx, a.claim, a.request.Deadline.Add(leaseMargin))
	a.trace.Claim = a.since(begun)
	if err != nil {
		return a.ledgerFault(err, nil)
	}
	a.seen(c.Record.State)
	return a.proceed(ctx, c)
}

// unclaimed answers a request that fails before its claim. The same payment may
// have been used before, so the record says whether it is charged.
func (a *attempt) unclaimed(ctx context.Context, f *fault.Error) Outcome {
	r, err := a.gate.ledger.Fetch(ctx, a.claim.Key)
	switch {
	case err != nil:
		return a.fail(f.Because(errors.Join(f, err)), nil)
	case r == nil || r.AuthDigest != a.claim.AuthDigest && r.AuthDigest != "":
		return a.fail(f, new(false))
	case r.AuthDigest != "" && !r.Vouches(a.claim):
		return a.fail(f, chargedBy(*r)) // no receipt: charged is public on the chain
	}
	return a.fail(f, chargedBy(*r)).with(responseOf(*r))
}

// proceed answers by the result of a claim.
func (a *attempt) proceed(ctx context.Context, c ledger.Claim) Outcome {
	if c.Result != ledger.Held {
		out := a.fromRecord(ctx, c)
		out.recorded = true
		return out
	}
	if c.Record.State != ledger.Settling || a.resend {
		return a.held(ctx, c.Hold)
	}
	if out := a.adopt(c.Record); out != nil {
		return a.endUnsent(ctx, c.Hold, *out)
	}
	return a.buy(ctx, c.Hold)
}

// fromRecord answers a claim that was not won.
func (a *attempt) fromRecord(ctx context.Context, c ledger.Claim) Outcome {
	r := c.Record
	switch c.Result {
	case ledger.InFlight:
		charged := chargedBy(r)
		if charged != nil && !*charged {
			charged = nil // the other attempt may be moving it now
		}
		return a.fail(a.repeatable(fault.New(fault.PaymentInProgress, nil).After(c.Wait), r), charged).with(responseOf(r))
	case ledger.Answered:
		return a.replay(r)
	case ledger.Waiting:
		return a.owedAgain(r, c.Wait)
	case ledger.Exhausted:
		if ledger.SilenceStands(r, a.gate.now()) {
			return a.silenceStands(ctx, r)
		}
		return a.owedAgain(r, 0)
	case ledger.OtherRequest:
		return a.refuseAs("authorization already used for another request", r)
	case ledger.OtherPurchase:
		return a.fail(otherName(r), chargedBy(r)).with(responseOf(r))
	case ledger.OtherAuthorization:
		return a.otherNonce(r, true)
	case ledger.Over:
		return a.ended(r)
	case ledger.Replaced:
		return a.replaced(ctx, r)
	case ledger.Unproven:
		return a.unproven(r)
	case ledger.Held:
	}
	return a.fail(fault.New(fault.PaymentUnavailable, errors.New("unknown result of a claim")), nil)
}

// held goes on with a claim that was won: it acquires a slot, settles unless the
// money has moved already, and looks up.
func (a *attempt) held(ctx context.Context, h *ledger.Hold) Outcome {
	if a.gate.slots != nil && a.dues.slot == nil {
		begun := a.gate.now()
		slot, err := a.gate.slots.Acquire(ctx, a.request.Client, a.request.Deadline.Add(leaseMargin))
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
func (a *attempt) noSlot(ctx context.Context, h *ledger.Hold, f *fault.Error) Outcome {
	if h.Record().State == ledger.Settling {
		return a.unsent(ctx, h, Settlement{Code: f.Code, Reason: string(f.Code), Cause: f})
	}
	if err := h.Return(withoutDeadline(ctx)); err != nil {
		a.unrecorded(ctx, "claim not given back", err)
	}
	return a.fail(f, new(true)).with(responseOf(h.Record()))
}

// lookUp runs the job of a payment whose money has moved, if its whole budget is left
// but for the moment that passes between the end of the settlement and the call. receipt
// is nil when the ledger already holds it; otherwise it is written while the job runs.
func (a *attempt) lookUp(ctx context.Context, h *ledger.Hold, receipt *ledger.Receipt) Outcome {
	const moment = time.Second / 2
	begins := a.spare() >= -moment
	var wrote sync.WaitGroup
	var settled error
	repeat := receipt == nil && h.Record().Lookups > 1
	if receipt != nil {
		wrote.Go(func() { settled = h.Settled(withoutDeadline(ctx), *receipt, begins) })
	} else {
		receipt = h.Record().Receipt
	}
	var reply Reply
	failed := a.job.Timeout.New(errors.New("no time left for the lookup"))
	if begins {
		reply, failed = a.run(context.WithValue(ctx, saleKey{}, Sale{
			Payer: receipt.Payer, Network: receipt.Network, Transaction: receipt.Transaction, Amount: a.trace.Amount, Repeat: repeat,
		}))
	}
	wrote.Wait()
	// The lookup has ended, so that what the request counts as is known.
	a.dues.close(ctx, a.gate.log, reply.Silent || failed != nil && failed.IsSilence())
	paid := success(*receipt)
	if settled != nil {
		a.unrecorded(ctx, "settlement not recorded", settled)
		if errors.Is(settled, ledger.ErrLost) {
			// The receipt is on record, and another attempt has the lease: the
			// next retry gets the answer.
			return a.fail(fault.New(fault.SettlementUncertain, settled), new(true)).with(paid)
		}
	} else {
		a.seen(ledger.Settled)
	}
	if failed != nil && failed.Info().Class != fault.Answer {
		if !begins || !failed.IsSilence() || !ledger.LastLookup(h.Record(), a.gate.now()) {
			return a.owe(ctx, h, failed, begins && !failed.IsPrevented()).with(paid)
		}
		failed = silence(failed)
	}
	return a.redeem(ctx, h, reply, failed, paid).with(paid)
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
func (a *attempt) redeem(ctx context.Context, h *ledger.Hold, reply Reply, f *fault.Error, paid *SettleResponse) Outcome {
	if had := h.Record().Answer; f == nil && had != nil && had.Stored && len(reply.Owed) >= len(had.Owed) {
		return a.noBetter(ctx, h, reply.Prevented)
	}
	out := Outcome{Status: cmp.Or(reply.Status, http.StatusOK), Header: reply.Header, Body: reply.Body, Payment: PaymentStatus{Charged: new(true)}}
	if f != nil {
		out.Status, out.Fault, out.Body = f.Info().Status, f, a.request.Error(f, out.Payment)
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
		return a.fail(fault.New(fault.SettlementUncertain, err), new(true))
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
	if err := h.KeepAnswer(withoutDeadline(ctx), prevented); err != nil {
		a.unrecorded(ctx, "lookup of a bundle not recorded", err)
	}
	return a.replay(h.Record())
}

// owe ends a lookup that gave no answer: the payment stays settled. It is charged, and
// retryable with the same signature until the lookups are used up.
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
	return a.owed(f.After(max(ledger.NextLookup(r), f.Wait())), r, !ledger.Spent(r, a.gate.now()))
}

// unrecorded notes a verdict that could not be written, for the log and the
// alarm. A lost lease is not a failure of the ledger.
func (a *attempt) unrecorded(ctx context.Context, what string, err error) {
	if !errors.Is(err, ledger.ErrLost) {
		a.trace.Unrecorded = true
	}
	a.gate.log.ErrorContext(ctx, what, "error", err, "key", a.claim.Key, "transaction", a.trace.Transaction)
}

// withoutDeadline is ctx without its deadline, for writing a verdict. A process that was
// frozen past its deadline and then learns that money moved must still be able to
// record it; each call of a store has a time-out.
func withoutDeadline(ctx context.Context) context.Context { return context.WithoutCancel(ctx) }

// spare is the time that is left when the lookup's budget and the writes to the
// ledger are subtracted.
func (a *attempt) spare() time.Duration {
	return a.request.Deadline.Sub(a.gate.now()) - a.job.Budget - afterwork
}

// settleTime is how long a settlement may take. Of a payment that was sent before it
// leaves time to ask the chain afterwards.
func (a *attempt) settleTime(sent bool) time.Duration {
	left := a.spare()
	switch {
	case !sent || a.gate.evidence == nil:
	case a.gate.fallback != nil:
		left -= chainBudget
	default:
		left -= evidenceBudget
	}
	return min(left, settleBudget)
}

func (a *attempt) since(begun time.Time) time.Duration { return a.gate.now().Sub(begun) }

func (a *attempt) seen(s ledger.State) {
	if n := len(a.trace.States); n == 0 || a.trace.States[n-1] != s {
		a.trace.States = append(a.trace.States, s)
	}
}
