package x402

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// Ask is what came of asking one facilitator.
type Ask struct {
	Facilitator string
	Fallback    bool
	Class       string
	Reason      string
	Took        time.Duration
}

// take takes a payment to a facilitator, and to the fallback where the rules let
// it. budget is the time of a payment that is taken to one alone. In doubt the
// fallback's success is checked on the chain also where it is asked alone.
func (a *attempt) take(ctx context.Context, h *ledger.Hold, budget time.Duration) verdict {
	first, fallback := a.gate.route(h.Record())
	v := verdict{doubt: doubtOf(h.Record())}
	if fallback == nil {
		v.s, v.word = a.ask(ctx, h, first, budget)
		pin(h, first, v.s)
		if v.word == wordMoved && v.doubt == inDoubt && first.fallback && a.gate.evidence != nil {
			v.s.Class, v.word = Unknown, wordUnknown
			a.traced(v.s)
			a.check(ctx, h, &v, true)
			return v
		}
		a.consult(ctx, h, &v, evidenceBudget)
		return v
	}
	v.s, v.word = a.askTwice(ctx, h, first, min(budget, primaryBudget))
	a.consult(ctx, h, &v, chainBudget)
	switch secondAfter(v) {
	case secondAtOnce:
		a.atOnce(ctx, h, fallback, &v)
	case secondInDoubt:
		a.inDoubt(ctx, h, fallback, &v)
	case secondNever:
	}
	return v
}

// askTwice asks the primary, and sends the same once more when its answer left
// doubt. Nothing but success clears that doubt. A payment whose transaction it has
// named is on its way, and is looked up on the chain.
func (a *attempt) askTwice(ctx context.Context, h *ledger.Hold, p *source, budget time.Duration) (Settlement, facilitatorWord) {
	end := a.gate.now().Add(budget)
	if s, ok := a.enter(ctx, h, p); !ok {
		return s, wordNotSent
	}
	s, w := a.sendTo(ctx, h, p, min(budget, firstBudget))
	pin(h, p, s)
	left := end.Sub(a.gate.now())
	if w == wordUnknown && s.Transaction == "" && !s.AboutPayer && left >= leastResend && a.executable(h.Record()) {
		again, word := a.sendTo(ctx, h, p, left)
		pin(h, p, again)
		s, w = resent(s, again), wordUnknown
		if word == wordMoved {
			w = word
		}
		a.traced(s)
	}
	if w != wordNotResent {
		p.breaker.leave(s, a.claim.Recovered)
	}
	return s, w
}

// pin has the record name a facilitator that refused the payment for a reason about
// the payer: only that one is asked about it from then on.
func pin(h *ledger.Hold, f *source, s Settlement) {
	if f.name != "" && (s.Class == Refused || s.AboutPayer) {
		h.RefusedBy(f.name)
	}
}

// resent joins the answer of a request that left doubt and of the same request
// sent again.
func resent(first, again Settlement) Settlement {
	if again.Class == Moved {
		return again
	}
	first.AboutPayer = again.AboutPayer || again.Class == Refused
	first.NoVerdict = first.NoVerdict && (again.NoVerdict || operatorsFault(again))
	first.Transaction = again.Transaction
	first.Cause = errors.Join(first.Cause, again.Cause)
	return first
}

// executable says that a facilitator can still execute the authorization.
func (a *attempt) executable(r ledger.Record) bool {
	return a.gate.now().Add(leastWindow).Before(r.ValidBefore)
}

// consult asks the chain, if the reply leaves it to it.
func (a *attempt) consult(ctx context.Context, h *ledger.Hold, v *verdict, budget time.Duration) {
	v.chain, v.finding = chainNotAsked, Finding{}
	if asks(v.word, v.doubt) {
		v.chain, v.finding = a.look(ctx, h.Record(), v.s, budget)
		v.s.Cause = errors.Join(v.s.Cause, v.finding.Cause)
	}
}

// atOnce asks the fallback in the place of a primary that has done nothing with
// the payment. Where both have not, the answer is the primary's, and it counts as
// sent if it was sent to either.
func (a *attempt) atOnce(ctx context.Context, h *ledger.Hold, fallback *source, v *verdict) {
	budget := min(fallbackBudget, a.spare())
	if budget < leastSettle || !a.executable(h.Record()) {
		return
	}
	s, w := a.ask(ctx, h, fallback, budget)
	pin(h, fallback, s)
	if w == wordUsed && v.word == wordTurnedAway && v.doubt == noDoubt {
		v.doubt = sentBefore // to the primary, by this attempt
	}
	if w == wordNotSent || w == wordTurnedAway && v.word == wordTurnedAway && !s.AboutPayer {
		v.s.Cause = errors.Join(v.s.Cause, s.Cause)
		a.traced(v.s)
		return
	}
	s.Cause = errors.Join(s.Cause, v.s.Cause)
	v.s, v.word = s, w
	a.consult(ctx, h, v, evidenceBudget)
}

// inDoubt asks the fallback about a payment that may have been made. If it says
// that it has made it, the chain confirms it, or nobody can. Whatever else it says
// leaves the doubt that there was, and it is not pinned to the payment: only the
// facilitator that may have been sent it before can say what came of that.
func (a *attempt) inDoubt(ctx context.Context, h *ledger.Hold, fallback *source, v *verdict) {
	budget := min(fallbackBudget, a.spare())
	if a.gate.evidence != nil {
		budget -= checkBudget
	}
	if budget < leastSettle || !a.executable(h.Record()) {
		return
	}
	s, w := a.ask(ctx, h, fallback, budget)
	if w == wordNotSent {
		v.s.Cause = errors.Join(v.s.Cause, s.Cause)
		a.traced(v.s)
		return
	}
	s.Cause = errors.Join(s.Cause, v.s.Cause)
	if w == wordMoved && a.gate.evidence == nil {
		v.s, v.word = s, w
		return
	}
	v.s.Class, v.s.Cause, v.word = Unknown, s.Cause, wordUnknown
	if s.Transaction != "" {
		v.s.Transaction = s.Transaction
	}
	a.traced(v.s)
	a.check(ctx, h, v, w == wordMoved)
}

// check looks at the chain after the fallback was asked in doubt, again and again
// while it should have the payment and does not.
func (a *attempt) check(ctx context.Context, h *ledger.Hold, v *verdict, moved bool) {
	until := a.gate.now().Add(min(a.spare(), chainBudget))
	for {
		v.chain, v.finding = a.look(ctx, h.Record(), v.s, until.Sub(a.gate.now()))
		if v.decided() || !moved || v.chain == chainMissing || !a.pause(ctx, checkPause, until.Add(-leastEvidence)) {
			v.s.Cause = errors.Join(v.s.Cause, v.finding.Cause)
			return
		}
	}
}

// ask takes the payment to one facilitator, within a budget.
func (a *attempt) ask(ctx context.Context, h *ledger.Hold, f *source, budget time.Duration) (Settlement, facilitatorWord) {
	end := a.gate.now().Add(budget)
	if s, ok := a.enter(ctx, h, f); !ok {
		return s, wordNotSent
	}
	s, w := a.sendTo(ctx, h, f, end.Sub(a.gate.now()))
	if w != wordNotResent {
		f.breaker.leave(s, a.claim.Recovered)
	}
	return s, w
}

// enter says whether a facilitator may be asked now, and has the record name it
// before it is. If not, it returns why.
func (a *attempt) enter(ctx context.Context, h *ledger.Hold, f *source) (Settlement, bool) {
	if !f.breaker.enter() {
		err := errors.New("the facilitator " + f.name + " is left alone for a while after a number of failures")
		return a.unasked(f, Settlement{Class: NotSent, Code: fault.FacilitatorUnavailable, Reason: "paused", Cause: err}), false
	}
	if f.name == "" || !f.fallback && slices.Contains(h.Record().Asked, f.name) { // the claim has named the primary
		return Settlement{}, true
	}
	if err := h.Ask(withoutDeadline(ctx), f.name); err != nil {
		return a.unasked(f, Settlement{Class: NotSent, Code: fault.LedgerUnavailable, Reason: "not recorded", Cause: err}), false
	}
	return Settlement{}, true
}

// unasked is the outcome of a facilitator that is not asked.
func (a *attempt) unasked(f *source, s Settlement) Settlement {
	a.asked(f, s, 0)
	a.traced(s)
	return s
}

// sendTo sends the payment to a facilitator that may be asked.
func (a *attempt) sendTo(ctx context.Context, h *ledger.Hold, f *source, budget time.Duration) (Settlement, facilitatorWord) {
	if budget < leastResend {
		return a.unasked(f, Settlement{Class: NotSent, Code: fault.PaymentUnavailable, Reason: "no time left to settle"}), wordNotSent
	}
	ctx, cancel := context.WithTimeout(ctx, budget)
	defer cancel()
	begun := a.gate.now()
	s, w := a.send(ctx, f, h.Record())
	if w != wordNotResent {
		a.asked(f, s, a.since(begun))
	}
	if s.Class == Unknown && !s.NoVerdict {
		a.weight.doubt()
	}
	return s, w
}

// asked notes for the log what came of one facilitator.
func (a *attempt) asked(f *source, s Settlement, took time.Duration) {
	if f.name == "" {
		return
	}
	a.trace.Asked = append(a.trace.Asked, Ask{Facilitator: f.name, Fallback: f.fallback, Class: s.Class.String(), Reason: s.Reason, Took: took})
}

// traced notes for the log what came of the facilitators together.
func (a *attempt) traced(s Settlement) {
	a.trace.Class, a.trace.Reason, a.trace.Transaction = s.Class.String(), s.Reason, s.Transaction
	a.trace.Cause, a.trace.Extensions = s.Cause, s.ExtensionResponses
}
