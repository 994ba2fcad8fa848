package x402

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// Time budgets of a signed request.
const (
	verifyBudget = 3 * time.Second
	// settleBudget is the most that one settlement may take.
	settleBudget = 15 * time.Second
	// leastSettle is the least that is worth starting one with.
	leastSettle = 2 * time.Second
	// afterwork is kept for writing the verdict and the answer down.
	afterwork = 2 * time.Second
	// evidenceBudget is what a look at the chain may take, and leastEvidence
	// what it is worth beginning with.
	evidenceBudget = 4 * time.Second
	leastEvidence  = time.Second / 2
	// leaseMargin is how long a lease outlives its invocation.
	leaseMargin = 3 * time.Second
)

// Gate is the way a priced request goes: claim, settle, look up, redeem. It
// never settles one authorization twice, never runs its work before money has
// moved, and never forgets money that moved or may have moved.
type Gate struct {
	ledger      *ledger.Ledger
	facilitator Facilitator
	evidence    Evidence // nil: none
	slots       Slots    // nil: none
	window      time.Duration
	now         func() time.Time
	log         *slog.Logger
}

// GateConfig are the parts of a Gate; all but Evidence are required.
type GateConfig struct {
	Ledger      *ledger.Ledger
	Facilitator Facilitator
	// Evidence is a view of the chain. Without one a payment in doubt can stay
	// in doubt, and a used nonce is taken for a payment where there is doubt.
	Evidence Evidence
	// Slots cap how many settle and look up at once; nil is no cap.
	Slots Slots
	// Window is how long after its answer a payment stands for a request that
	// comes without a purchase key: another payment of the same payer for the
	// same request is the same purchase. 0 is as long as it has no answer.
	Window time.Duration
	Now    func() time.Time
	Log    *slog.Logger
}

// Slots cap concurrent work.
type Slots interface {
	// Acquire takes a slot for a client that is free again at until, whatever
	// happens. Its error is a *fault.Error: overloaded, or ledger_unavailable.
	Acquire(ctx context.Context, client string, until time.Time) (Slot, error)
}

// Meter counts what a payment costs us against the limit of whoever sends it.
type Meter interface {
	// Open counts a payment that is in order as far as the request itself shows.
	// Nothing is read, written or asked before. Its error is a *fault.Error, and
	// is what the request is answered with.
	Open(ctx context.Context) error
	// Close is called once after an Open, when it is known what becomes of the
	// payment, beside the last write of the request. refused says that it came to
	// nothing by its payer's fault, and not by what is on record about it.
	Close(ctx context.Context, refused bool)
}

// Slot is one place.
type Slot interface {
	Release(ctx context.Context) error
}

// NewGate returns a Gate.
func NewGate(c GateConfig) *Gate {
	if c.Ledger == nil || c.Facilitator == nil || c.Now == nil || c.Log == nil {
		panic("x402.NewGate: ledger, facilitator, clock and log are required")
	}
	return &Gate{ledger: c.Ledger, facilitator: c.Facilitator, evidence: c.Evidence, slots: c.Slots, window: c.Window, now: c.Now, log: c.Log}
}

// Request is a priced request that carries a PAYMENT-SIGNATURE.
type Request struct {
	Signature string // the header
	Offer     *Offer
	// Client names who sends it to the Slots.
	Client string
	// Meter counts it; nil counts nothing.
	Meter Meter
	// Keys are the values of the header Idempotency-Key, or of what carries a
	// purchase key in its place on another transport.
	Keys []string
	// Arrived is when the request came, and Deadline when the invocation must be
	// over.
	Arrived, Deadline time.Time
	// Prepare validates the parameters. It is called once the payment is
	// known to be in order, and its error is answered without a charge.
	Prepare func() (Job, error)
	// Error renders the body of an error answer. It must not fail.
	Error func(f *fault.Error, s Standing) []byte
}

// Job is the work that is paid for.
type Job struct {
	// Fingerprint names the request: method, path, the operation's parameters
	// after normalisation.
	Fingerprint string
	// Budget is what Run may take.
	Budget time.Duration
	// Timeout is the fault when Run cannot have its budget.
	Timeout fault.Code
	// Anew says that without a purchase key every payment is a purchase of its
	// own, because there is no answer that two of them could share (ping).
	Anew bool
	// Run does the work and returns the answer or a *fault.Error.
	Run func(ctx context.Context) (Reply, error)
}

// Reply is what the work came to.
type Reply struct {
	Body []byte // JSON
	// Owed names the parts of a bundle that failed for a reason that is ours
	// and not the target's. They are looked up again without a charge.
	Owed []string
	// Prevented says that no part that is owed was tried, because we wait after
	// a failure of our own, so that the lookup uses none up.
	Prevented bool
}

// Standing is how a payment stands when a request is answered.
type Standing struct {
	// Charged says whether money has moved for this authorization; nil when
	// that is not known.
	Charged *bool
	// Retryable says that the same signature may be sent again without a new
	// charge.
	Retryable bool
}

// Outcome is what to answer.
type Outcome struct {
	Status int
	Body   []byte // JSON; nil on a challenge, whose body is the offer
	// Fault is nil for a result. A challenge has one too, with the reason.
	Fault    *fault.Error
	Standing Standing
	Receipt  *SettleResponse // PAYMENT-RESPONSE, when set
	Replayed bool            // the answer comes from the ledger
	// Answered is when a replayed answer was stored.
	Answered time.Time
	// Owed names the parts of a bundle that are owed still; the header
	// Answer-Owed.
	Owed  []string
	Trace Trace
	// recorded says that nobody had to be asked about the payment: the request
	// itself or the record decides.
	recorded bool
}

// refused says that the payment came to nothing by its payer's fault, after
// somebody was asked about it.
func (o Outcome) refused() bool { return o.Status == 402 && !o.recorded }

// Trace is what the request's log line says about its payment.
type Trace struct {
	Payer, Nonce, Transaction string
	States                    []ledger.State
	Class                     string // of the settlement, when one was tried
	Verdict                   string // the chain's, when it was asked
	Reason                    string // why not, as far as it may be logged
	// Purchase says what another payment of the same purchase had to do with
	// it: "joined" or "taken_over"; empty for nothing.
	Purchase string
	// How long each phase took; 0 for one that did not happen.
	Verify, Claim, Slot, Settle, Evidence, Lookup, Record time.Duration
	Extensions                                            map[string]string // the facilitator's notes on extensions
	Cause                                                 error             // private
	// Unrecorded says that the ledger did not take a verdict of this request:
	// what it came to is not on record, or may not be.
	Unrecorded bool
}

// Serve takes a signed request all the way. It detaches from the client's
// context: once money may move, the work is finished whether or not somebody
// still listens.
func (g *Gate) Serve(ctx context.Context, r Request) Outcome {
	ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), r.Deadline)
	defer cancel()
	a := &attempt{gate: g, request: r}
	out := a.serve(ctx)
	a.weight.close(ctx, out.refused())
	a.weight.wait()
	out.Trace = a.trace
	return out
}

// attempt is one signed request on its way.
type attempt struct {
	gate    *Gate
	request Request
	payment *Payment
	claim   ledger.Payment
	terms   Requirements // what this payment is judged by and settled under
	key     string       // the purchase key, or empty
	badKey  error        // what is wrong with it
	job     Job
	resend  bool // of another payment that may have been sent: not past its window
	slot    *place
	weight  *weight // nil until it is counted
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
	a.claim.Request = job.Fingerprint
	a.name()
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

// unclaimed answers a request that is turned away before its claim. The same
// payment may have been used before, so the record says whether it is charged.
func (a *attempt) unclaimed(ctx context.Context, f *fault.Error) Outcome {
	r, err := a.gate.ledger.Fetch(ctx, a.claim.Key)
	switch {
	case err != nil:
		f = fault.Newf(f.Code, errors.Join(f, err), "%s", f.Public())
		return a.fail(f, nil)
	case r == nil || r.AuthDigest != a.claim.AuthDigest && r.AuthDigest != "":
		return a.fail(f, moved(false))
	case r.AuthDigest != "" && !r.Vouches(a.claim):
		return a.fail(f, chargedBy(*r)) // what anybody can read on the chain
	}
	return a.with(Outcome{Receipt: responseOf(*r)}, a.fail(f, chargedBy(*r)))
}

// proceed follows the standing of a claim.
func (a *attempt) proceed(ctx context.Context, c ledger.Claim) Outcome {
	out := a.standing(ctx, c)
	out.recorded = out.recorded || c.Standing != ledger.Held
	return out
}

func (a *attempt) standing(ctx context.Context, c ledger.Claim) Outcome {
	switch c.Standing {
	case ledger.Held:
		if c.Record.State != ledger.Settling || a.resend {
			return a.held(ctx, c.Hold)
		}
		if out := a.adopt(c.Record); out != nil {
			return a.shut(ctx, c.Hold, *out)
		}
		return a.buy(ctx, c.Hold)
	case ledger.InFlight:
		charged := chargedBy(c.Record)
		if charged != nil && !*charged {
			charged = nil // the other attempt may be moving it now
		}
		return a.with(Outcome{Receipt: responseOf(c.Record)}, a.fail(fault.New(fault.PaymentInProgress, nil).After(c.Wait), charged))
	case ledger.Answered:
		return a.replay(c.Record)
	case ledger.Waiting:
		return a.owedAgain(c.Record, c.Wait)
	case ledger.Exhausted:
		return a.owedAgain(c.Record, 0)
	case ledger.OtherRequest:
		return *a.refuseAs("authorization already used for another request", c.Record)
	case ledger.OtherAuthorization:
		return a.otherNonce(c.Record, true)
	case ledger.Over:
		return a.ended(c.Record)
	case ledger.Replaced:
		return a.replaced(ctx, c.Record)
	case ledger.Unproven:
		return *a.unproven(c.Record)
	}
	return a.fail(fault.New(fault.PaymentUnavailable, errors.New("unknown standing")), nil)
}

// held goes on with a claim that was won: a slot, the settlement unless the
// money has moved already, the lookup.
func (a *attempt) held(ctx context.Context, h *ledger.Hold) (out Outcome) {
	a.slot = &place{weight: a.weight}
	if a.gate.slots != nil {
		begun := a.gate.now()
		slot, err := a.gate.slots.Acquire(ctx, a.request.Client, a.request.Deadline.Add(leaseMargin))
		a.trace.Slot = a.since(begun)
		if err != nil {
			return a.noSlot(ctx, h, fault.From(err))
		}
		a.slot.slot = slot
	}
	defer func() {
		// What became of another payment of the purchase does not decide yet.
		if !a.resend {
			a.weight.close(ctx, out.refused())
		}
		a.slot.leave(ctx, a.gate.log)
	}()
	if h.Record().State == ledger.Settling {
		return a.settle(ctx, h)
	}
	return a.lookUp(ctx, h, nil)
}

// noSlot gives the claim back: nothing was sent, and no lookup was used up.
func (a *attempt) noSlot(ctx context.Context, h *ledger.Hold, f *fault.Error) Outcome {
	if h.Record().State == ledger.Settling {
		return a.unsent(ctx, h, Settlement{Class: NotSent, Code: f.Code, Reason: string(f.Code), Cause: f})
	}
	if err := h.Return(bare(ctx)); err != nil {
		a.unrecorded(ctx, "claim not given back", err)
	}
	out := a.fail(f, moved(true))
	out.Receipt = responseOf(h.Record())
	return out
}

// unrecorded notes a verdict that the ledger did not take, for the log and the
// alarm. A lease that was lost is no fault of the ledger.
func (a *attempt) unrecorded(ctx context.Context, what string, err error) {
	if !errors.Is(err, ledger.ErrLost) {
		a.trace.Unrecorded = true
	}
	a.gate.log.ErrorContext(ctx, what, "error", err, "key", a.claim.Key, "transaction", a.trace.Transaction)
}

// place is a slot that is left once, beside the last write of an attempt.
type place struct {
	slot   Slot    // nil without a cap
	weight *weight // of the request
	once   sync.Once
	left   sync.WaitGroup
}

// leaving begins to give the slot back while something else is written. It is
// called when money has moved, which decides what the request weighs.
func (p *place) leaving(ctx context.Context, log *slog.Logger) {
	p.weight.close(ctx, false)
	p.release(ctx, log)
}

func (p *place) release(ctx context.Context, log *slog.Logger) {
	if p.slot == nil {
		return
	}
	p.once.Do(func() {
		p.left.Go(func() {
			if err := p.slot.Release(ctx); err != nil {
				// It runs out by itself.
				log.WarnContext(ctx, "slot not released", "error", err)
			}
		})
	})
}

// leave gives the slot back and waits: nothing outlives an invocation.
func (p *place) leave(ctx context.Context, log *slog.Logger) {
	p.release(ctx, log)
	p.left.Wait()
}

// weight is a request that its Meter has counted.
type weight struct {
	meter  Meter
	once   sync.Once
	closed sync.WaitGroup
}

// close begins to tell the Meter what became of the request; only the first call
// does.
func (w *weight) close(ctx context.Context, refused bool) {
	if w == nil {
		return
	}
	w.once.Do(func() { w.closed.Go(func() { w.meter.Close(ctx, refused) }) })
}

// wait waits for it: nothing outlives an invocation.
func (w *weight) wait() {
	if w != nil {
		w.closed.Wait()
	}
}

// bare is ctx without its end: what a verdict is written under. A process that
// was held up past its deadline and then learns that money moved must still be
// able to say so; each call of a store is bounded by itself.
func bare(ctx context.Context) context.Context { return context.WithoutCancel(ctx) }

// spare is the time that is left beside the lookup's budget and writing
// everything down.
func (a *attempt) spare() time.Duration {
	return a.request.Deadline.Sub(a.gate.now()) - a.job.Budget - afterwork
}

// settleTime is what a settlement may take. One in doubt leaves time to ask
// the chain afterwards.
func (a *attempt) settleTime(doubt bool) time.Duration {
	left := a.spare()
	if doubt && a.gate.evidence != nil {
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
