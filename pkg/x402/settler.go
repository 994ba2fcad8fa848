package x402

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// Settler has the payments of a Gate settled. One makes it of a single Facilitator, and
// package fallback of two.
type Settler interface {
	// First names the facilitator that is asked first. A record names it from its claim
	// on. It is empty where there is only one facilitator.
	First() string
	// Reserve is how much of the time for a settlement is kept for the chain, for a
	// payment that was sent before.
	Reserve() time.Duration
	// Settle has the payment of an order settled within its budget, and says how far it
	// got. It sends the payment with Order.Send only.
	Settle(ctx context.Context, o *Order) Result
	// Verify is that of Facilitator.
	Verify(ctx context.Context, p Payload, r Requirements) Verification
}

// Time budgets that a Settler and its Gate share.
const (
	LeastSettle    = 2 * time.Second // the least with which a settlement is begun
	EvidenceBudget = 4 * time.Second // the most for the chain, where nobody is asked afterwards
	LeastEvidence  = time.Second / 2 // the least with which the chain is asked
)

// One is a Settler that asks one facilitator, and then the chain if the reply does not
// decide.
func One(f Facilitator) Settler { return one{f} }

type one struct{ Facilitator }

func (one) First() string          { return "" }
func (one) Reserve() time.Duration { return EvidenceBudget }

func (s one) Settle(ctx context.Context, o *Order) Result {
	r := Result{Settlement: o.Send(ctx, s.Facilitator, o.Budget)}
	o.AskChain(ctx, &r, EvidenceBudget)
	return r
}

// Order is one payment that a Gate wants settled: what is known of it, and what can be done
// with it. It is valid until Settle returns.
type Order struct {
	Budget    time.Duration // what the settlement may take, the chain not included
	Recovered bool          // the signer was recovered from the signature
	HasChain  bool          // there is a node that can be asked

	// What the record says of earlier attempts. InDoubt says that one may have moved money.
	// Refused says that a facilitator refused the payment, and RefusedBy which one, for a
	// reason about the payer. One that had no name then has none here.
	InDoubt, Refused bool
	RefusedBy        string

	attempt *attempt
	hold    *ledger.Hold
	doubt   doubt // of the earlier attempts
}

// Result is what came of an order.
type Result struct {
	// Settlement is the reply of the facilitators together.
	Settlement
	// Finding is what the chain showed last. It comes from AskChain or Find.
	Finding Finding
	// SentElsewhere says that another facilitator was sent the payment before the one
	// whose reply this is, and turned it away.
	SentElsewhere bool
	// RefusedBy names the facilitator that refused the payment for a reason about the
	// payer; empty when none did. The record keeps the first one.
	RefusedBy string
	// Asked are the replies one by one, for the log.
	Asked []Ask
}

// Ask is the reply of one facilitator of several.
type Ask struct {
	Facilitator string // its name
	Fallback    bool   // it is asked only when another one fails
	Class       string // as Class.String has it
	Reason      string // that of the Settlement
	Took        time.Duration
}

// order is the order for the payment of a hold.
func (a *attempt) order(h *ledger.Hold, budget time.Duration) *Order {
	r := h.Record()
	d := doubtOf(r)
	return &Order{
		Budget:    budget,
		Recovered: a.claim.Recovered,
		HasChain:  a.gate.Evidence != nil,
		InDoubt:   d == inDoubt,
		Refused:   r.Refusals > 0,
		RefusedBy: r.RefusedBy,
		attempt:   a,
		hold:      h,
		doubt:     d,
	}
}

// Ask has the record name a facilitator that is about to be asked, other than the first. Only
// if it succeeds may that one be sent the payment.
func (o *Order) Ask(ctx context.Context, facilitator string) error {
	return o.hold.Ask(withoutDeadline(ctx), facilitator)
}

// Executable says that a facilitator can still execute the authorization.
func (o *Order) Executable() bool { return o.attempt.executable(o.hold.Record()) }

// Spare is the time that is left of the request for settlement and chain.
func (o *Order) Spare() time.Duration { return o.attempt.spare() }

// Pause waits, and reports whether it did: not beyond a point in time, nor when the request
// has ended.
func (o *Order) Pause(ctx context.Context, d time.Duration, until time.Time) bool {
	return o.attempt.pause(ctx, d, until)
}

// Send has a facilitator settle the payment, within a budget. The class is that of the
// facilitator, or NotResent. A refusal near the end of the window counts as one about the
// window, which facilitators check first.
func (o *Order) Send(ctx context.Context, f Facilitator, budget time.Duration) Settlement {
	a := o.attempt
	r := o.hold.Record()
	if reason := a.notResent(r); reason != "" {
		return Settlement{Class: NotResent, Reason: cmp.Or(r.Reason, reason)}
	}
	var exact ExactPayload
	if err := json.Unmarshal(r.Payload, &exact); err != nil {
		return Settlement{
			Class:  NotSent,
			Code:   fault.PaymentUnavailable,
			Reason: "the stored payment is not readable",
			Cause:  err,
		}
	}
	ctx, cancel := context.WithTimeout(ctx, budget)
	defer cancel()
	begun := a.gate.Now()
	s := f.Settle(ctx, a.request.Offer.payload(exact, r.Terms), a.terms)
	a.trace.Settle += a.since(begun)
	switch {
	case s.Class == Unknown && !s.NoVerdict:
		a.dues.atFault = true
	case s.Class == Refused:
		s.Expired = s.Expired || !a.executable(r)
	}
	return s
}

// notResent is why a payment is not sent again that is not the request's own, but owns the
// purchase, or for which the request proves nothing; empty if it is.
func (a *attempt) notResent(r ledger.Payment) string {
	switch {
	case a.opensNothing && a.gate.Evidence != nil && (a.job.Check != nil || !r.SoldAt(a.job.Endpoint)):
		return "the check of what it is for cannot be asked" // the request may be about something else
	case !a.resend:
		return ""
	case !r.SoldAt(a.job.Endpoint):
		return "it was made at another endpoint"
	case !a.executable(r):
		return "the window of the authorization is over"
	case !a.request.Offer.accepts(a.terms, a.gate.Now()):
		return "its terms are not accepted any more"
	}
	return ""
}

// AskChain asks the chain within a budget, if the reply in a result does not decide, and
// adds the finding to the result.
func (o *Order) AskChain(ctx context.Context, r *Result, budget time.Duration) {
	r.Finding = Finding{Verdict: notAsked}
	if asksChain(classOf(r.Settlement), o.doubt) {
		r.Finding = o.Find(ctx, r.Settlement, budget)
		r.Cause = errors.Join(r.Cause, r.Finding.Cause)
	}
}

// Find asks the chain within a budget, if there is a node and time for it. s is the last
// reply of a facilitator.
func (o *Order) Find(ctx context.Context, s Settlement, budget time.Duration) Finding {
	return o.attempt.find(ctx, o.hold.Record(), s, budget)
}
