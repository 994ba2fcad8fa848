package x402

import (
	"context"
	"errors"
	"log/slog"
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
	// leaseMargin is how long a lease outlives its invocation.
	leaseMargin = 3 * time.Second
)

// Gate is the way a priced request goes: claim, settle, look up, redeem. It
// never settles one authorization twice, never runs its work before money has
// moved, and never forgets money that moved or may have moved.
type Gate struct {
	ledger      *ledger.Ledger
	facilitator Facilitator
	now         func() time.Time
	log         *slog.Logger
}

// GateConfig are the parts of a Gate; all are required.
type GateConfig struct {
	Ledger      *ledger.Ledger
	Facilitator Facilitator
	Now         func() time.Time
	Log         *slog.Logger
}

// NewGate returns a Gate.
func NewGate(c GateConfig) *Gate {
	if c.Ledger == nil || c.Facilitator == nil || c.Now == nil || c.Log == nil {
		panic("x402.NewGate: every part is required")
	}
	return &Gate{ledger: c.Ledger, facilitator: c.Facilitator, now: c.Now, log: c.Log}
}

// Request is a priced request that carries a PAYMENT-SIGNATURE.
type Request struct {
	Signature string // the header
	Offer     *Offer
	// Deadline is when the invocation must be over.
	Deadline time.Time
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
	// Run does the work and returns the JSON answer or a *fault.Error.
	Run func(ctx context.Context) ([]byte, error)
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
	Trace    Trace
}

// Trace is what the request's log line says about its payment.
type Trace struct {
	Payer, Nonce, Transaction string
	States                    []ledger.State
	Class                     string // of the settlement, when one was tried
	Reason                    string // why not, as far as it may be logged
	Settle, Lookup            time.Duration
	Cause                     error // private
}

// Serve takes a signed request all the way. It detaches from the client's
// context: once money may move, the work is finished whether or not somebody
// still listens.
func (g *Gate) Serve(ctx context.Context, r Request) Outcome {
	ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), r.Deadline)
	defer cancel()
	a := &attempt{gate: g, request: r}
	out := a.serve(ctx)
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
	job     Job
	trace   Trace
}

func (a *attempt) serve(ctx context.Context) Outcome {
	if out := a.admit(ctx); out != nil {
		return *out
	}
	job, err := a.request.Prepare()
	if err != nil {
		return a.fail(fault.From(err), moved(false))
	}
	a.job = job
	a.claim.Request = job.Fingerprint
	if a.settleTime() < leastSettle {
		return a.fail(fault.New(fault.PaymentUnavailable, errors.New("too little time left to settle")), nil)
	}
	c, err := a.gate.ledger.Claim(ctx, a.claim, a.request.Deadline.Add(leaseMargin))
	if err != nil {
		return a.ledgerFault(err, nil)
	}
	a.seen(c.Record.State)
	return a.proceed(ctx, c)
}

// proceed follows the standing of a claim.
func (a *attempt) proceed(ctx context.Context, c ledger.Claim) Outcome {
	switch c.Standing {
	case ledger.Held:
		if c.Record.State == ledger.Settling {
			return a.settle(ctx, c.Hold)
		}
		return a.lookUp(ctx, c.Hold, nil)
	case ledger.InFlight:
		return a.fail(fault.New(fault.PaymentInProgress, nil).After(c.Wait), chargedBy(c.Record))
	case ledger.Answered:
		return a.replay(c.Record)
	case ledger.Waiting:
		return a.owedAgain(c.Record, c.Wait)
	case ledger.Exhausted:
		return a.owedAgain(c.Record, 0)
	case ledger.OtherRequest:
		return a.refuse("authorization already used for another request", nil)
	case ledger.OtherAuthorization:
		return a.refuse("nonce already used for another authorization", nil)
	}
	return a.fail(fault.New(fault.PaymentUnavailable, errors.New("unknown standing")), nil)
}

// settleTime is what a settlement may take and still leave the lookup its
// budget and time to write everything down.
func (a *attempt) settleTime() time.Duration {
	left := a.request.Deadline.Sub(a.gate.now()) - a.job.Budget - afterwork
	return min(left, settleBudget)
}

func (a *attempt) seen(s ledger.State) {
	if n := len(a.trace.States); n == 0 || a.trace.States[n-1] != s {
		a.trace.States = append(a.trace.States, s)
	}
}
