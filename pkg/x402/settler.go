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

// Settler settles the payments of a Gate. The function One makes a Settler for a single
// Facilitator. Package fallback has a Settler for two facilitators.
type Settler interface {
	// First names the facilitator that is asked first. When a payment is claimed, this name is
	// written to its record. The name is empty if there is only one facilitator.
	First() string
	// Reserve returns how much of the time for a settlement is reserved for asking the chain,
	// if the payment was sent before.
	Reserve() time.Duration
	// Settle settles the payment of an order within the order's budget, and reports how far
	// the settlement got. It sends the payment only with Order.Send.
	Settle(ctx context.Context, o *Order) Result
	// Verify does what Facilitator.Verify does.
	Verify(ctx context.Context, p Payload, r Requirements) Verification
}

// These are the time budgets that a Settler and its Gate share.
const (
	LeastSettle    = 2 * time.Second // a settlement is started only if at least this much time is left
	EvidenceBudget = 4 * time.Second // maximum time for asking the chain, if no facilitator is asked afterwards
	LeastEvidence  = time.Second / 2 // the chain is asked only if at least this much time is left
)

// One returns a Settler that asks one facilitator. If the facilitator's reply does not decide
// whether the money has moved, the Settler then asks the chain.
func One(f Facilitator) Settler { return singleSettler{f} }

type singleSettler struct{ Facilitator }

func (singleSettler) First() string          { return "" }
func (singleSettler) Reserve() time.Duration { return EvidenceBudget }

func (s singleSettler) Settle(ctx context.Context, o *Order) Result {
	r := Result{Settlement: o.Send(ctx, s.Facilitator, o.Budget)}
	o.AskChain(ctx, &r, EvidenceBudget)
	return r
}

// Order is a payment that a Gate wants settled. It holds the known facts about the payment,
// and has methods for settling it. An Order is valid until Settler.Settle returns.
type Order struct {
	Budget    time.Duration // time for the settlement, without the time for asking the chain
	Recovered bool          // whether the signer was recovered from the signature
	HasChain  bool          // whether there is a node that can be asked

	// The following three fields describe earlier attempts. InDoubt means that an attempt may
	// have moved money. Refused means that a facilitator refused the payment for a reason
	// about the payer. RefusedBy names that facilitator, and is empty if the record does not
	// name it.
	InDoubt, Refused bool
	RefusedBy        string

	holder *holder
	doubt  doubt // doubt about the earlier attempts
}

// Result is the outcome of an order.
type Result struct {
	// Settlement is the combined reply of all facilitators that were asked.
	Settlement
	// Finding is the last finding from the chain, from AskChain or Find.
	Finding Finding
	// SentElsewhere means that the payment was first sent to another facilitator, which turned
	// it away. Settlement is then the reply of the facilitator that was asked afterwards.
	SentElsewhere bool
	// RefusedBy names the facilitator that refused the payment for a reason about the payer.
	// It is empty if no facilitator refused. If several facilitators refuse, the record keeps
	// the name of the first.
	RefusedBy string
	// Asked lists the reply of each facilitator, for the log.
	Asked []Ask
}

// Ask says what one facilitator replied. A Settler with several facilitators records one Ask
// for each that it asked.
type Ask struct {
	Facilitator string // name of the facilitator
	Fallback    bool   // whether this facilitator is asked only after another one failed
	Class       string // the text of Class.String
	Reason      string // the Reason of the Settlement
	Took        time.Duration
}

// order returns the order for the payment that this attempt holds.
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

// Ask records that a facilitator other than the first is about to be asked. The payment may be
// sent to that facilitator only if Ask succeeds.
func (o *Order) Ask(ctx context.Context, facilitator string) error {
	return o.holder.hold.Ask(withoutDeadline(ctx), facilitator)
}

// Executable reports whether a facilitator can still execute the authorization.
func (o *Order) Executable() bool {
	return isExecutable(o.holder.record(), o.holder.gate.Now())
}

// Spare returns the time that the request has left for the settlement and the chain.
func (o *Order) Spare() time.Duration { return o.holder.spareTime() }

// Pause waits for d, and reports whether the whole of d has passed. It returns false at once
// if d would not end before the deadline, and returns false early if the request ends.
func (o *Order) Pause(ctx context.Context, d time.Duration, deadline time.Time) bool {
	return o.holder.pause(ctx, d, deadline)
}

// Send asks a facilitator to settle the payment within a budget. If the payment must not be
// sent again, the class of the result is NotResent. If the stored payment cannot be read, the
// class is NotSent. Otherwise the class comes from the facilitator's reply. Facilitators check
// the window first. So if a refusal comes when less than leastWindow is left of the window,
// the result also has Expired.
func (o *Order) Send(ctx context.Context, f Facilitator, budget time.Duration) Settlement {
	h := o.holder
	r := h.record()
	if reason := h.notResentReason(r); reason != "" {
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

// notResentReason returns why a payment must not be sent again, or the empty string if the
// payment may be sent. There can be a reason only if the request has joined a purchase that
// another payment owns, or if the request does not prove a right to the answer.
func (h *holder) notResentReason(r ledger.Payment) string {
	now := h.gate.Now()
	otherEndpoint := !r.SoldAt(h.job.Endpoint)
	// If the payment was made at another endpoint, the job of this request is not the job that
	// was paid for. The job that was paid for may have a check.
	hasCheck := h.job.Check != nil || otherEndpoint
	switch {
	case h.provesNoRight && h.gate.Evidence != nil && hasCheck:
		return "the check of what it is for cannot be asked"
	case !h.hasJoined:
		return ""
	case otherEndpoint:
		return "it was made at another endpoint"
	case !isExecutable(r, now):
		return "the window of the authorization is over"
	case !h.request.Offer.accepts(h.terms, now):
		return "its terms are not accepted any more"
	}
	return ""
}

// AskChain asks the chain within a budget, if the facilitator's reply in r does not decide. It
// adds the chain's finding to r.
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

// isExecutable reports whether a facilitator can still execute the authorization of a record.
func isExecutable(r ledger.Payment, now time.Time) bool {
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
	budget = min(budget, a.spareTime())
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
