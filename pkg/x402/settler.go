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

	holder *holder
	doubt  doubt // of the earlier attempts
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
func (h *holder) order(budget time.Duration) *Order {
	r := h.record()
	earlier := doubtOf(r)
	return &Order{
		Budget:    budget,
		Recovered: h.claim.Recovered,
		HasChain:  h.gate.Evidence != nil,
		InDoubt:   earlier == inDoubt,
		Refused:   r.Refusals > 0,
		RefusedBy: r.RefusedBy,
		holder:    h,
		doubt:     earlier,
	}
}

// Ask has the record name a facilitator that is about to be asked, other than the first. Only
// if it succeeds may that one be sent the payment.
func (o *Order) Ask(ctx context.Context, facilitator string) error {
	return o.holder.hold.Ask(withoutDeadline(ctx), facilitator)
}

// Executable says that a facilitator can still execute the authorization.
func (o *Order) Executable() bool {
	return executable(o.holder.record(), o.holder.gate.Now())
}

// Spare is the time that is left of the request for settlement and chain.
func (o *Order) Spare() time.Duration { return o.holder.spare() }

// Pause waits, and reports whether it did: not beyond a point in time, nor when the request
// has ended.
func (o *Order) Pause(ctx context.Context, d time.Duration, until time.Time) bool {
	return o.holder.pause(ctx, d, until)
}

// Send has a facilitator settle the payment, within a budget. The class is that of the
// facilitator, or NotResent. A refusal near the end of the window counts as one about the
// window, which facilitators check first.
func (o *Order) Send(ctx context.Context, f Facilitator, budget time.Duration) Settlement {
	h := o.holder
	r := h.record()
	if reason := h.notResent(r); reason != "" {
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
	begun := h.gate.Now()
	s := f.Settle(ctx, h.request.Offer.payload(exact, r.Terms), h.terms)
	h.trace.Settle += h.since(begun)
	if s.Class == Unknown && !s.NoDecision {
		h.dues.atFault = true
	}
	if s.Class == Refused && !o.Executable() {
		s.Expired = true
	}
	return s
}

// notResent is why a payment is not sent again that is not the request's own, but owns the
// purchase, or for which the request proves nothing; empty if it is.
func (h *holder) notResent(r ledger.Payment) string {
	now := h.gate.Now()
	elsewhere := !r.SoldAt(h.job.Endpoint)
	hasCheck := h.job.Check != nil || elsewhere // the request may be about something else
	switch {
	case h.opensNothing && h.gate.Evidence != nil && hasCheck:
		return "the check of what it is for cannot be asked"
	case !h.joined:
		return ""
	case elsewhere:
		return "it was made at another endpoint"
	case !executable(r, now):
		return "the window of the authorization is over"
	case !h.request.Offer.accepts(h.terms, now):
		return "its terms are not accepted any more"
	}
	return ""
}

// AskChain asks the chain within a budget, if the reply in a result does not decide, and
// adds the finding to the result.
func (o *Order) AskChain(ctx context.Context, r *Result, budget time.Duration) {
	r.Finding = Finding{Fate: notAsked}
	if !asksChain(classOf(r.Settlement), o.doubt) {
		return
	}
	r.Finding = o.Find(ctx, r.Settlement, budget)
	r.Cause = errors.Join(r.Cause, r.Finding.Cause)
}

// Find asks the chain within a budget, if there is a node and time for it. s is the last
// reply of a facilitator.
func (o *Order) Find(ctx context.Context, s Settlement, budget time.Duration) Finding {
	return o.holder.find(ctx, o.holder.record(), s, budget)
}

// executable says that a facilitator can still execute the authorization of a record.
func executable(r ledger.Payment, now time.Time) bool {
	return now.Add(leastWindow).Before(r.ValidBefore)
}

// find asks the chain about a payment within a budget, if there is a node and time for
// it. s is the facilitator's last reply.
func (a *attempt) find(ctx context.Context, r ledger.Payment, s Settlement, budget time.Duration) (f Finding) {
	if a.gate.Evidence == nil {
		return Finding{Fate: noNode}
	}
	a.dues.worked = true
	defer func() { a.trace.Fate = f.Fate.String() }()
	budget = min(budget, a.spare())
	if budget < LeastEvidence {
		return Finding{Cause: errors.New("no time left to ask the chain")}
	}
	q, err := QuestionOf(r)
	if err != nil {
		return Finding{Cause: err}
	}
	q.Transaction = cmp.Or(s.Transaction, r.Transaction)
	if s.Class == Unknown {
		q.Sent = true
	}
	ctx, cancel := context.WithTimeout(ctx, budget)
	defer cancel()
	begun := a.gate.Now()
	defer func() { a.trace.Evidence += a.since(begun) }()
	return a.gate.Evidence.Find(ctx, q)
}
