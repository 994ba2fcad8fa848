package x402_test

import (
	"context"
	"slices"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// Verify implements x402.Facilitator: it checks a contract wallet's signature. Once
// the nonce is used, a call of the token fails for any signature, so that it can
// only report that.
func (p *process) Verify(ctx context.Context, pay x402.Payload, _ x402.Requirements) x402.Verification {
	p.await()
	down := p.drawFault(3)
	w := p.w
	w.mu.Lock()
	defer w.mu.Unlock()
	w.executePending()
	p.verified = true
	if down {
		return x402.Verification{Fault: fault.New(fault.FacilitatorUnavailable, nil)}
	}
	a := w.authorizationOf(pay.Payload.Authorization.Nonce)
	if p.kind == asStranger && p.recordedBefore {
		w.violated("a stranger's copy was verified")
	}
	switch {
	case a.used || a.cancelled:
		return x402.Verification{Reason: x402.ReasonNonceUsed, NonceUsed: true}
	case isForged(pay.Payload.Signature):
		return x402.Verification{Reason: "invalid_exact_evm_signature"}
	}
	return x402.Verification{Valid: true}
}

// Settle implements x402.Facilitator as the first facilitator. It settles, fast or
// slowly, loses its answer, executes late, refuses, or never gets the request.
func (p *process) Settle(ctx context.Context, pay x402.Payload, r x402.Requirements) x402.Settlement {
	return p.settle(ctx, pay, r, primaryName)
}

func (p *process) settle(ctx context.Context, pay x402.Payload, r x402.Requirements, by string) x402.Settlement {
	a := p.checkSend(ctx, pay, r, by)
	s := p.settleWithFaults(ctx, a, by)
	p.noteAnswer(a, by, s)
	if p.w.brokenRule == "an unknown outcome at the primary counts as a rejection" && p.w.fallback && by == primaryName && s.Class == x402.Unknown {
		s.Class, s.Code = x402.TurnedAway, fault.FacilitatorUnavailable
	}
	return s
}

func (p *process) settleWithFaults(ctx context.Context, a *authorization, by string) x402.Settlement {
	p.await()
	if s, done := p.outage(ctx, a, by); done {
		return s
	}
	if s, done := p.lie(a, by); done {
		return s
	}
	ctx = p.unhurried(ctx)
	if p.drawFault(8) {
		p.w.mu.Lock()
		a.possibleSends--
		p.w.mu.Unlock()
		return x402.Settlement{Class: x402.NotSent, Code: fault.FacilitatorUnavailable}
	}
	lost, late, refuses, nothing := p.drawFault(10), p.drawFault(8), p.drawFault(6), p.drawFault(6)
	if p.drawFault(8) || p.w.falseRefusals && p.drawFault(50) {
		return p.classified(p.settleWithAnyReply(a))
	}
	takes, delay := p.drawDuration(2*time.Second), p.drawDuration(90*time.Second)
	if p.drawFault(15) {
		takes = p.drawDuration(20 * time.Second)
	}
	select {
	case <-time.After(takes):
	case <-ctx.Done():
		return p.hangUp(a, nothing || refuses, delay)
	}
	s := p.executeSettlement(a, late, refuses, nothing, delay)
	if p.w.freezesInSettle {
		p.pause(30)
	}
	if p.w.stalls && p.drawFault(30) {
		p.die()
	}
	p.pause(2)
	switch {
	case lost:
		return p.classified(x402.Settlement{Class: x402.Unknown, Reason: "connection_lost"})
	case ctx.Err() != nil && p.chance(50):
		// The process was frozen beyond its deadline and had not read the answer.
		return x402.Settlement{Class: x402.Unknown, Reason: "timeout"}
	}
	return p.classified(s)
}

// checkSend checks the invariants of a payment that is being sent to a facilitator.
func (p *process) checkSend(ctx context.Context, pay x402.Payload, r x402.Requirements, by string) *authorization {
	w := p.w
	w.mu.Lock()
	defer w.mu.Unlock()
	w.executePending()
	a := w.authorizationOf(pay.Payload.Authorization.Nonce)
	w.trace("  p%d sends %s to %s", p.number, w.number(a.key), by)
	p.sent++
	p.sends[a]++
	p.current = a
	a.possibleSends++
	switch {
	case p.claims[a].IsZero():
		w.violated("sent without a claim")
	case p.now().Sub(p.arrived) > minimumLease:
		w.violated("sent after the lease")
	}
	if isForged(pay.Payload.Signature) {
		w.violated("a forged signature was sent")
	}
	if pay.Payload.Signature != a.forms[form{w.ownKey, withToken}].signature {
		w.violated("sent with another signature")
	}
	if r.Amount != "5000" || r.PayTo != terms().PayTo {
		w.violated("settled under other terms than it was offered")
	}
	// For a transfer that is on the chain already, the terms that it paid are right.
	if fresh := p.readState == "" || p.readState == ledger.Refused; a == p.pay && fresh && !a.used && !w.deployAt.IsZero() && p.begun.After(w.deployAt) {
		w.violated("settled under the terms of before a deploy")
	}
	if p.sends[a] > 1 && !w.fallback {
		w.violated("sent twice by one request")
	}
	if w.fallback {
		p.checkFacilitatorChoice(ctx, a, by)
	}
	if a != p.pay {
		if !p.now().Add(5 * time.Second).Before(a.validBefore) {
			w.violated("another payment was sent past its window")
		}
	}
	w.checkSlot(p)
	p.checkOwnership(a)
	return a
}

// checkOwnership checks that a payment that is being sent owns its purchase: this
// attempt has written the purchase with this payment as the owner. Only a payment
// that can no longer execute may have lost it since.
func (p *process) checkOwnership(a *authorization) {
	w := p.w
	dead := a.used || a.cancelled || !w.chainNow().Before(a.validBefore)
	switch owner := w.owner(a.purchase); {
	case a.purchase == "":
		w.violated("sent without a purchase")
	case !p.openedPurchase[a]:
		w.violated("sent, and this attempt did not open its purchase")
	case owner != a && !dead:
		w.violated("sent for a purchase that is made with another payment")
	}
	if !a.supersededAt.IsZero() && p.begun.After(a.supersededAt) {
		w.violated("a superseded payment was sent")
	}
}

// executeSettlement is the facilitator's side of one settlement. It drops the
// request (nothing), refuses, or executes the transfer, late or at once.
func (p *process) executeSettlement(a *authorization, late, refuses, nothing bool, delay time.Duration) x402.Settlement {
	w := p.w
	w.mu.Lock()
	defer w.mu.Unlock()
	w.executePending()
	now := w.chainNow()
	switch {
	case nothing:
		return x402.Settlement{Class: x402.Unknown, Reason: "timeout"}
	case !now.Add(6 * time.Second).Before(a.validBefore):
		// Facilitators check the window before anything else.
		return x402.Settlement{Class: x402.Refused, Reason: "invalid_exact_evm_payload_authorization_valid_before", Expired: true}
	}
	switch {
	case a.used || a.cancelled:
		told := w.brokenRule != "a used nonce is a refusal" && (w.brokenRule != "without a chain, used in doubt is not paid" || w.chainVisible)
		return x402.Settlement{Class: x402.Refused, Reason: x402.ReasonNonceUsed, NonceUsed: told}
	case refuses:
		return x402.Settlement{Class: x402.Refused, Reason: "invalid_exact_evm_insufficient_balance"}
	case late:
		a.pending = append(a.pending, pendingTransaction{now.Add(delay), p.claims[a]})
		return x402.Settlement{Class: x402.Unknown, Reason: "settlement_pending", Transaction: a.tx}
	}
	w.execute(a, now, p.claims[a], true)
	return x402.Settlement{Class: x402.Moved, Transaction: a.tx}
}

// hangUp is the client's timeout. The facilitator still executes the transfer,
// unless it never got the request or refuses it.
func (p *process) hangUp(a *authorization, nothing bool, delay time.Duration) x402.Settlement {
	w := p.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if !nothing {
		w.observed("executed after we hung up")
		a.pending = append(a.pending, pendingTransaction{w.chainNow().Add(delay), p.claims[a]})
	}
	return p.classified(x402.Settlement{Class: x402.Unknown, Reason: "timeout"})
}

// classified is an answer as the facilitator's client reports it.
func (p *process) classified(s x402.Settlement) x402.Settlement {
	if p.w.brokenRule == "an unknown outcome is a refusal" && s.Class == x402.Unknown {
		s.Class = x402.Refused
	}
	return s
}

// settleWithAnyReply is a facilitator with any reply of a class. A refusal, or a rejection
// before settlement, is true unless falseRefusals is set. With any other reply the money
// may have moved, or move later.
func (p *process) settleWithAnyReply(a *authorization) x402.Settlement {
	all := []x402.Settlement{
		declined(), lost(), turned(), screened(), {Class: x402.Unknown, Reason: "unexpected_settle_error"},
		{Class: x402.Refused, Reason: "invalid_exact_evm_payload_signature", BadSignature: true},
		{Class: x402.Unknown, Reason: "insufficient_funds", Transaction: a.tx, AboutPayer: true},
	}
	s := all[p.rng.IntN(len(all))]
	moves, late, delay := p.chance(60), p.chance(50), p.drawDuration(90*time.Second)
	w := p.w
	w.mu.Lock()
	defer w.mu.Unlock()
	w.executePending()
	if (a.used || a.cancelled) && !w.falseRefusals {
		return x402.Settlement{Class: x402.Refused, Reason: x402.ReasonNonceUsed, NonceUsed: true}
	}
	no := s.Class == x402.Refused || s.Class == x402.TurnedAway
	if !moves || no && !w.falseRefusals {
		return s
	}
	at := w.chainNow()
	if late {
		at = at.Add(delay)
	}
	a.movedAfterRefusal = a.movedAfterRefusal || no
	a.pending = append(a.pending, pendingTransaction{at, p.claims[a]})
	return s
}

// fallbackFacilitator is the second facilitator as a process reaches it, on the
// same chain.
type fallbackFacilitator struct{ *process }

func (s fallbackFacilitator) Settle(ctx context.Context, pay x402.Payload, r x402.Requirements) x402.Settlement {
	return s.settle(ctx, pay, r, fallbackName)
}

// checkFacilitatorChoice checks the rules of which of two facilitators may be asked,
// how often, and for how long. The lock is held.
func (p *process) checkFacilitatorChoice(ctx context.Context, a *authorization, by string) {
	w := p.w
	if p.requestsTo[a] == nil {
		p.requestsTo[a] = map[string]int{}
	}
	p.requestsTo[a][by]++
	if r := w.record(a); r == nil || !slices.Contains(r.Asked, by) {
		w.violated("asked, and not named on record")
	}
	recorded := a.refusedBy
	if !a.refusedAt.Before(p.lastWrites[a].at) {
		recorded = "" // by another process, after this one's last write, which permitted it to ask
	}
	for _, refuser := range []string{recorded, p.refusedBy[a]} {
		if refuser != "" && refuser != by {
			w.violated("a refusal about the payer was taken to the other facilitator")
		}
	}
	alone := a.refusedBy != ""
	if by == primaryName || alone {
		return
	}
	class, asked := p.lastClass[a][primaryName]
	switch {
	case !asked:
		w.violated("the fallback was asked, and not the primary")
	case class == x402.Moved || class == x402.Refused:
		w.violated("the fallback was asked after a verdict")
	case !p.inDoubt(a):
	case w.chainVisible && !p.asked(a):
		w.violated("the fallback was asked at once in doubt")
	}
}

// noteAnswer remembers a facilitator's answer. A process that died before gets none.
func (p *process) noteAnswer(a *authorization, by string, s x402.Settlement) {
	w := p.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if p.lastClass[a] == nil {
		p.lastClass[a] = map[string]x402.Class{}
	}
	doubt := p.inDoubt(a)
	class := s.Class
	if p.lastClass[a][by] == x402.Unknown && p.requestsTo[a][by] > 1 && class != x402.Moved {
		class = x402.Unknown // only success resolves the doubt that the first request left
	}
	p.lastClass[a][by] = class
	inDoubt := by == fallbackName && doubt && p.requestsTo[a][primaryName] > 0 // it decides nothing
	if (s.Class == x402.Refused || s.AboutPayer) && !inDoubt {
		p.refusedBy[a] = by
	}
	if class == x402.Refused && !inDoubt {
		p.heard[a] = s
	}
	p.pins = inDoubt && class == x402.Refused && w.brokenRule == "the fallback's refusal in doubt is on record"
	if by == fallbackName && s.Class == x402.Moved && doubt && a.used {
		w.observed("the fallback settled in doubt")
	}
}
