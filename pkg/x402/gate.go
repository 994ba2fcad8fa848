package x402

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/hostfacts/hostfacts/pkg/strictjson"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// Time budgets of a signed request.
const (
	verifyBudget = 3 * time.Second
	// settleBudget is the most that one settlement may take.
	settleBudget = 15 * time.Second
	// leastSettle is the least time with which one is started.
	leastSettle = 2 * time.Second
	// afterwork is kept for writing the verdict and the answer to the ledger.
	afterwork = 2 * time.Second
	// evidenceBudget is the most that asking the chain may take, and
	// leastEvidence the least time with which it is started.
	evidenceBudget = 4 * time.Second
	leastEvidence  = time.Second / 2
	// leaseMargin is how long a lease outlives its invocation.
	leaseMargin = 3 * time.Second
)

// Gate takes a signed request through claim, settlement, lookup and redemption.
// It never settles one authorization twice, never runs the job before money has
// moved, and never loses the record of money that moved or may have moved.
type Gate struct {
	ledger      *ledger.Ledger
	facilitator Facilitator
	fallback    *Fallback // nil: none
	evidence    Evidence  // nil: none
	slots       Slots     // nil: none
	receipts    Receipts  // nil: none
	now         func() time.Time
	log         *slog.Logger
}

// GateConfig are the parts of a Gate; all but Fallback, Evidence, Slots and
// Receipts are required.
type GateConfig struct {
	Ledger      *ledger.Ledger
	Facilitator Facilitator
	// Fallback is asked when Facilitator fails; nil is none.
	Fallback *Fallback
	// Evidence reads the chain. Without it a payment in doubt can stay in doubt,
	// and the used nonce of a payment in doubt counts as paid.
	Evidence Evidence
	// Slots cap how many settle and look up at once; nil is no cap.
	Slots Slots
	// Receipts sign answers; nil is none.
	Receipts Receipts
	Now      func() time.Time
	Log      *slog.Logger
}

// NewGate returns a Gate.
func NewGate(c GateConfig) *Gate {
	if c.Ledger == nil || c.Facilitator == nil || c.Now == nil || c.Log == nil {
		panic("x402.NewGate: ledger, facilitator, clock and log are required")
	}
	return &Gate{ledger: c.Ledger, facilitator: c.Facilitator, fallback: c.Fallback, evidence: c.Evidence, slots: c.Slots, receipts: c.Receipts, now: c.Now, log: c.Log}
}

// Request is a priced request that carries a payment.
type Request struct {
	Signature string // the header PAYMENT-SIGNATURE
	// Payload is the payment where the transport carries it as a JSON object;
	// then Signature is not read.
	Payload strictjson.Object
	Offer   *Offer
	// Window is for how long after it was given an answer to this request stands
	// for a purchase without a key: another payment of the same payer for the same
	// request that arrives before is the same purchase. It is written with the
	// answer, and depends on the transport, whose clients wait for an answer and
	// call again after times of their own. With 0 a purchase ends with its answer.
	Window time.Duration
	// Client is the sender, as the Slots tell clients apart.
	Client string
	// Meter counts it; nil counts nothing.
	Meter Meter
	// Keys are the values of the header Idempotency-Key, or of what carries the
	// purchase key on another transport.
	Keys []string
	// Arrived is when the request came, and Deadline when the invocation must be
	// over.
	Arrived, Deadline time.Time
	// Prepare validates the parameters. It is called when the payment has been
	// admitted, and its error is answered without a charge.
	Prepare func() (Job, error)
	// Error renders the body of an error answer. It must not fail.
	Error func(f *fault.Error, s PaymentStatus) []byte
}

// Job is the work that is paid for.
type Job struct {
	// Fingerprint names the request: method, path, the operation's parameters
	// after normalisation. The receipt says it, so that it is printable ASCII and
	// holds nothing that the payer may not show.
	Fingerprint string
	// Budget is what Run may take.
	Budget time.Duration
	// Timeout is the fault when Run cannot have its budget; its class is owed.
	Timeout fault.Info
	// NoImplicitRetry says that without a purchase key every payment is a purchase of its
	// own, because there is no answer that two of them could share (ping).
	NoImplicitRetry bool
	// Run does the work and returns the answer or a *fault.Error. Its context has the
	// payment (SaleOf).
	Run func(ctx context.Context) (Reply, error)
}

// Reply is what the work came to.
type Reply struct {
	// Status is the HTTP status of the answer; 0 is 200.
	Status int
	// Header are stored with the body, such as its type; nil is none.
	Header map[string][]string
	Body   []byte
	// Owed names the parts of a bundle that failed on our side and not on the
	// target's. They are looked up again without a charge.
	Owed []string
	// Prevented says that no part that is owed was tried, because a pause after
	// an earlier failure of ours is not over. Such a lookup is not counted.
	Prevented bool
	// Silent says that a part is owed because the target was silent
	// (fault.Error.Silence).
	Silent bool
}

// PaymentStatus is what an answer says about its payment.
type PaymentStatus struct {
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
	Header map[string][]string // of a Reply
	Body   []byte              // nil on a challenge, whose body is the offer
	// Fault is nil for a result. A challenge has one too, with the reason.
	Fault    *fault.Error
	Payment  PaymentStatus
	Receipt  *SettleResponse // PAYMENT-RESPONSE, when set
	Replayed bool            // the answer comes from the ledger
	// Answered is when a replayed answer was stored.
	Answered time.Time
	// Owed names the parts of a bundle that are owed still; the header
	// Answer-Owed.
	Owed  []string
	Trace Trace
	// recorded says that the request itself or the record decided, so that
	// neither the facilitator nor the chain was asked.
	recorded bool
}

// refused says that the payment failed through its payer's fault, after the
// facilitator or the chain was asked about it.
func (o Outcome) refused() bool { return o.Status == 402 && !o.recorded }

// Trace is what the request's log line says about its payment.
type Trace struct {
	Payer, Nonce, Transaction string
	// Amount is what the payment is of, in atomic units, whether it was made or not.
	Amount  string
	States  []ledger.State
	Class   string // of the settlement, when one was tried
	Verdict string // the chain's, when it was asked
	// Asked are the facilitators that were asked, where there are two.
	Asked  []Ask
	Reason string // why not, as far as it may be logged
	// Purchase is "joined" when another payment of the same purchase answered,
	// "taken_over" when this one replaced another, and empty otherwise.
	Purchase string
	// How long each phase took; 0 for one that did not happen.
	Verify, Claim, Slot, Settle, Evidence, Lookup, Record time.Duration
	Extensions                                            map[string]string // the facilitator's notes on extensions
	Cause                                                 error             // private
	// UsedAsPaid says that the payment counts as paid because the facilitator says
	// that its authorization is used, and no node could be asked for what.
	UsedAsPaid bool
	// Unreceipted says that the answer has no receipt although a key is configured.
	Unreceipted bool
	// Unrecorded says that a verdict of this request could not be written to the
	// ledger, or may not have been.
	Unrecorded bool
}

// Serve answers a signed request. It does not end with the client's context:
// once money may move, the work is finished even if the client has gone.
func (g *Gate) Serve(ctx context.Context, r Request) Outcome {
	ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), r.Deadline)
	defer cancel()
	a := &attempt{gate: g, request: r}
	out := a.serve(ctx)
	a.weight.end(ctx, out)
	a.weight.wait()
	out.Trace = a.trace
	return out
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
	slot    *heldSlot
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

// unclaimed answers a request that fails before its claim. The same payment may
// have been used before, so the record says whether it is charged.
func (a *attempt) unclaimed(ctx context.Context, f *fault.Error) Outcome {
	r, err := a.gate.ledger.Fetch(ctx, a.claim.Key)
	switch {
	case err != nil:
		f = f.Because(errors.Join(f, err))
		return a.fail(f, nil)
	case r == nil || r.AuthDigest != a.claim.AuthDigest && r.AuthDigest != "":
		return a.fail(f, charged(false))
	case r.AuthDigest != "" && !r.Vouches(a.claim):
		return a.fail(f, chargedBy(*r)) // no receipt: charged is public on the chain
	}
	return a.with(Outcome{Receipt: responseOf(*r)}, a.fail(f, chargedBy(*r)))
}

// proceed answers by the standing of a claim.
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
			return a.endUnsent(ctx, c.Hold, *out)
		}
		return a.buy(ctx, c.Hold)
	case ledger.InFlight:
		charged := chargedBy(c.Record)
		if charged != nil && !*charged {
			charged = nil // the other attempt may be moving it now
		}
		return a.with(Outcome{Receipt: responseOf(c.Record)}, a.fail(a.repeatable(fault.New(fault.PaymentInProgress, nil).After(c.Wait), c.Record), charged))
	case ledger.Answered:
		return a.replay(c.Record)
	case ledger.Waiting:
		return a.owedAgain(c.Record, c.Wait)
	case ledger.Exhausted:
		if ledger.SilenceStands(c.Record, a.gate.now()) {
			return a.silenceStands(ctx, c.Record)
		}
		return a.owedAgain(c.Record, 0)
	case ledger.OtherRequest:
		return *a.refuseAs("authorization already used for another request", c.Record)
	case ledger.OtherPurchase:
		return a.with(Outcome{Receipt: responseOf(c.Record)}, a.fail(otherName(c.Record), chargedBy(c.Record)))
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

// held goes on with a claim that was won: it acquires a slot, settles unless the
// money has moved already, and looks up.
func (a *attempt) held(ctx context.Context, h *ledger.Hold) (out Outcome) {
	a.slot = &heldSlot{weight: a.weight}
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
		// The outcome of another payment of the purchase is not yet that of the
		// request.
		if !a.resend {
			a.weight.end(ctx, out)
		}
		a.slot.leave(ctx, a.gate.log)
	}()
	if h.Record().State == ledger.Settling {
		return a.settle(ctx, h)
	}
	return a.lookUp(ctx, h, nil)
}

// noSlot gives the claim back: nothing was sent, and no lookup is counted.
func (a *attempt) noSlot(ctx context.Context, h *ledger.Hold, f *fault.Error) Outcome {
	if h.Record().State == ledger.Settling {
		return a.unsent(ctx, h, Settlement{Class: NotSent, Code: f.Code, Reason: string(f.Code), Cause: f})
	}
	if err := h.Return(withoutDeadline(ctx)); err != nil {
		a.unrecorded(ctx, "claim not given back", err)
	}
	out := a.fail(f, charged(true))
	out.Receipt = responseOf(h.Record())
	return out
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
// record it; each call of a store has a time-out of its own.
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
