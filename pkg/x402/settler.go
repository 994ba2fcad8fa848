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

// Settler settles the payments of a Gate. One returns a Settler for a single Facilitator.
// Package fallback has a Settler for two facilitators.
type Settler interface {
	// First names the facilitator that is asked first. A record has this name as soon as its
	// payment is claimed. The name is empty if there is only one facilitator.
	First() string
	// Reserve returns how much of the time for a settlement is reserved for the chain, if the
	// payment was sent before.
	Reserve() time.Duration
	// Settle settles the payment of an order within its budget, and reports how far it got. It
	// sends the payment only with Order.Send.
	Settle(ctx context.Context, o *Order) Result
	// Verify does what Facilitator.Verify does.
	Verify(ctx context.Context, p Payload, r Requirements) Verification
}

// Time budgets that a Settler and its Gate share.
const (
	LeastSettle    = 2 * time.Second // a settlement is started only if at least this much time is left
	EvidenceBudget = 4 * time.Second // the chain is asked for at most this long, if no facilitator is asked afterwards
	LeastEvidence  = time.Second / 2 // the chain is asked only if at least this much time is left
)

// One returns a Settler that asks one facilitator, and then the chain if the reply does not
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

// Order is a payment that a Gate wants to have settled. It has what is known about the
// payment, and methods for settling it. It is valid until Settle returns.
type Order struct {
	Budget    time.Duration // time for the settlement, without the time for the chain
	Recovered bool          // the signer was recovered from the signature
	HasChain  bool          // a node is configured that can be asked

	// These three fields describe earlier attempts. InDoubt means that an attempt may have
	// moved money. Refused means that a facilitator refused the payment for a reason about the
	// payer, and RefusedBy names that facilitator. RefusedBy is empty if the facilitator had
	// no name at that time.
	InDoubt, Refused bool
	RefusedBy        string

	holder *holder
	doubt  doubt // doubt about the earlier attempts
}

// Result is the outcome of an order.
type Result struct {
	// Settlement is the combined reply of all facilitators that were asked.
	Settlement
	// Finding is the last finding from the chain. It comes from AskChain or Find.
	Finding Finding
	// SentElsewhere means that the payment was first sent to another facilitator, which turned
	// it away. The reply is from a later facilitator.
	SentElsewhere bool
	// RefusedBy names the facilitator that refused the payment for a reason about the payer.
	// It is empty if no facilitator did. The record keeps the first such name.
	RefusedBy string
	// Asked has the reply of each facilitator, for the log.
	Asked []Ask
}

// Ask is the reply of one facilitator, if there are several.
type Ask struct {
	Facilitator string // its name
	Fallback    bool   // whether this facilitator is asked only after another one failed
	Class       string // the text of Class.String
	Reason      string // the Reason of the Settlement
	Took        time.Duration
}

// order returns the order for the payment that is held.
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

// Ask writes into the record that a facilitator other than the first is about to be asked. The
// payment may be sent to that facilitator only if Ask succeeds.
func (o *Order) Ask(ctx context.Context, facilitator string) error {
	return o.holder.hold.Ask(withoutDeadline(ctx), facilitator)
}

// Executable reports whether a facilitator can still execute the authorization.
func (o *Order) Executable() bool {
	return executable(o.holder.record(), o.holder.gate.Now())
}

// Spare returns the time that the request has left for the settlement and the chain.
func (o *Order) Spare() time.Duration { return o.holder.spare() }

// Pause waits for d, and reports whether it did. It returns false if the wait would not end
// before until, or if the request ends first.
func (o *Order) Pause(ctx context.Context, d time.Duration, until time.Time) bool {
	return o.holder.pause(ctx, d, until)
}

// Send asks a facilitator to settle the payment within a budget. The class of the result comes
// from the facilitator's reply or, if nothing was sent, is NotResent or NotSent. A refusal
// near the end of the window counts as Expired, because facilitators check the window first.
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

// notResent returns why a payment is not sent again, or the empty string if it may be sent.
// There can be a reason only if the payment belongs to the owner of the purchase and not to
// the request, or if the request does not prove a right to the answer.
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

// AskChain asks the chain within a budget if the facilitator's reply in a result does not
// decide, and adds the finding to the result.
func (o *Order) AskChain(ctx context.Context, r *Result, budget time.Duration) {
	r.Finding = Finding{Fate: notAsked}
	if !asksChain(classOf(r.Settlement), o.doubt) {
		return
	}
	r.Finding = o.Find(ctx, r.Settlement, budget)
	r.Cause = errors.Join(r.Cause, r.Finding.Cause)
}

// Find asks the chain within a budget, if there is a node and enough time. s is the last reply
// of a facilitator.
func (o *Order) Find(ctx context.Context, s Settlement, budget time.Duration) Finding {
	return o.holder.find(ctx, o.holder.record(), s, budget)
}

// executable reports whether a facilitator can still execute the authorization of a record.
func executable(r ledger.Payment, now time.Time) bool {
	return now.Add(leastWindow).Before(r.ValidBefore)
}

// find asks the chain about a payment within a budget, if there is a node and enough time. s
// is the last reply of a facilitator.
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
