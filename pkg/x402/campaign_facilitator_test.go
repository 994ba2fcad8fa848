package x402_test

import (
	"context"
	"slices"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// outageKind is a lasting fault that the primary facilitator has while a schedule has faults.
// Single faults come in addition.
type outageKind int

const (
	noOutage               outageKind = iota
	outageUnreachable                 // connections to the primary fail
	outageRejecting                   // the primary answers 401 to every request
	outageHanging                     // the primary never answers, and settles nothing
	outageHangingButPaying            // the primary never answers, but settles
	outageKinds                       // the number of kinds, including noOutage
)

// lieRange says which answers of the primary facilitator about an authorization are false. The
// answers about each authorization are counted separately. A false answer says that the
// payer's balance is insufficient, although the primary settles the payment or has settled it.
// The primary gives false answers in the phase without faults as well.
type lieRange struct {
	start int // number of true answers before the false ones
	count int // number of false answers; all answers after these are true
}

func (l lieRange) contains(n int) bool { return n >= l.start && n < l.start+l.count }

// Verify implements x402.Facilitator. It checks the signature of a contract wallet. Once an
// authorization is used or cancelled, the token contract rejects every signature for it, so
// Verify then reports only that the nonce is used.
func (p *process) Verify(_ context.Context, pay x402.Payload, _ x402.Requirements) x402.Verification {
	p.await()
	down, w := p.drawFault(3), p.w
	defer w.lock()()
	w.executePending()
	p.askedToVerify = true
	if down {
		return x402.Verification{Fault: fault.New(fault.FacilitatorUnavailable, nil)}
	}
	if p.kind == actorStranger && p.recordedBefore {
		w.noteViolation("a stranger's copy was verified")
	}
	switch a := w.authorizationOf(pay.Payload.Authorization.Nonce); {
	case a.spent():
		return x402.Verification{Reason: x402.ReasonNonceUsed, NonceUsed: true}
	case isForged(pay.Payload.Signature):
		return x402.Verification{Reason: "invalid_exact_evm_signature"}
	}
	return x402.Verification{Valid: true}
}

func (p *process) Settle(ctx context.Context, pay x402.Payload, r x402.Requirements) x402.Settlement {
	return p.settle(ctx, pay, r, primaryName)
}

// fallbackFacilitator is the second facilitator of a process. It settles on the same chain as
// the primary.
type fallbackFacilitator struct{ *process }

func (s fallbackFacilitator) Settle(ctx context.Context, pay x402.Payload, r x402.Requirements) x402.Settlement {
	return s.settle(ctx, pay, r, fallbackName)
}

func (p *process) settle(ctx context.Context, pay x402.Payload, r x402.Requirements, name string) x402.Settlement {
	a := p.checkSend(pay, r, name)
	s := p.settleWithFaults(ctx, a, name)
	p.noteAnswer(a, name, s)
	return s
}

// settleWithFaults simulates one call of Settle. At random, the facilitator is fast or slow,
// executes the transfer late, refuses the payment, lies, or never gets the request. Its answer
// may be lost, and the process may freeze or die before it reads the answer.
func (p *process) settleWithFaults(ctx context.Context, a *authorization, name string) x402.Settlement {
	p.await()
	for _, exception := range []func(context.Context, *authorization, string) (x402.Settlement, bool){p.faultyAnswer, p.falseRefusal} {
		if s, done := exception(ctx, a, name); done {
			return s
		}
	}
	ctx = p.dropDeadlineIfStopped(ctx)
	if p.drawFault(8) {
		defer p.w.lock()()
		a.possibleSends--
		return x402.Settlement{Class: x402.NotSent, Code: fault.FacilitatorUnavailable}
	}
	losesAnswer, executesLate, refusesPayment, dropsRequest := p.drawFault(10), p.drawFault(8), p.drawFault(6), p.drawFault(6)
	if p.drawFault(8) || p.w.refusesFalsely && p.drawFault(50) {
		return p.settleWithAnyReply(a)
	}
	takes, delay := p.drawDuration(2*time.Second), p.drawDuration(90*time.Second)
	if p.drawFault(15) {
		takes = p.drawDuration(20 * time.Second)
	}
	select {
	case <-time.After(takes):
	case <-ctx.Done():
		return p.hangUp(a, dropsRequest || refusesPayment, delay)
	}
	s := p.executeSettlement(a, executesLate, refusesPayment, dropsRequest, delay)
	if p.w.freezesInSettle {
		p.pause(30)
	}
	if p.w.hasStalls && p.drawFault(30) {
		p.die()
	}
	p.pause(2)
	switch {
	case losesAnswer:
		return x402.Settlement{Class: x402.Unknown, Reason: "connection_lost"}
	case ctx.Err() != nil && p.chance(50):
		// The process froze before it could read the answer, and thawed after its deadline.
		return timedOut()
	}
	return s
}

func timedOut() x402.Settlement { return x402.Settlement{Class: x402.Unknown, Reason: "timeout"} }

// faultyAnswer returns a faulty answer of a facilitator, and whether there is one. While there
// are faults, the primary has its outage most of the time. The fallback has no outage. In some
// schedules, it lies about a payment in doubt that was sent to the primary: it does not settle
// this payment, and reports a refusal or a used nonce. If the Gate has chain evidence, which
// can expose the lie, the fallback may instead report a settlement.
func (p *process) faultyAnswer(ctx context.Context, a *authorization, name string) (x402.Settlement, bool) {
	w := p.w
	if !w.hasFallback || !p.drawFault(70) {
		return x402.Settlement{}, false
	}
	if name == primaryName && (w.primaryOutage == outageHanging || w.primaryOutage == outageHangingButPaying) {
		<-ctx.Done()
		return p.hangUp(a, w.primaryOutage == outageHanging, p.drawDuration(20*time.Second)), true
	}
	which := p.drawDuration(3)
	defer w.lock()()
	switch {
	case name == fallbackName && (!w.fallbackLies || p.attemptOn(a).requests[primaryName] == 0 || !p.inDoubt(a)):
		return x402.Settlement{}, false
	case name == fallbackName && which == 1 && w.chainVisible:
		w.noteEvent("the fallback reported a success that was none")
		return x402.Settlement{Class: x402.Moved, Transaction: a.tx}, true
	case name == fallbackName && which == 2:
		w.noteEvent("the fallback refused in doubt")
		return declined(), true
	case name == fallbackName:
		return usedNonce(), true
	case w.primaryOutage == outageUnreachable:
		a.possibleSends--
		return unreached(), true
	case w.primaryOutage == outageRejecting:
		return turnedAway(), true
	}
	return x402.Settlement{}, false
}

// falseRefusal returns a false refusal of the primary (lieRange), and whether there is one.
func (p *process) falseRefusal(_ context.Context, a *authorization, name string) (x402.Settlement, bool) {
	w := p.w
	if w.lies.count == 0 || name != primaryName {
		return x402.Settlement{}, false
	}
	defer w.lock()()
	w.executePending()
	n, now := a.primaryRequests, w.chainNow()
	a.primaryRequests++
	if !w.lies.contains(n) || !a.used && !now.Add(6*time.Second).Before(a.validBefore) || a.cancelled {
		return x402.Settlement{}, false
	}
	if !a.used {
		a.movedAfterRefusal = true
		w.execute(a, now, p.attemptOn(a).claimedAt, true)
	}
	if n == w.lies.start && !a.movedAfterRefusal {
		w.noteEvent("lied after the truth")
	}
	return declined(), true
}

// settleWithAnyReply draws a reply and, separately, whether the money moves. The money may
// move at once or later. If the reply says that the payment was refused, or that the
// facilitator turned the request away, the money moves only if refusesFalsely is set. If
// refusesFalsely is not set and the nonce is already used, the reply says that the nonce is
// used.
func (p *process) settleWithAnyReply(a *authorization) x402.Settlement {
	all := []x402.Settlement{
		declined(), lostReply(), turnedAway(), screened(), {Class: x402.Unknown, Reason: "unexpected_settle_error"},
		{Class: x402.Refused, Reason: "invalid_exact_evm_payload_signature", BadSignature: true},
		{Class: x402.Unknown, Reason: "insufficient_funds", Transaction: a.tx, AboutPayer: true},
	}
	s := all[p.rng.IntN(len(all))]
	moves, late, delay := p.chance(60), p.chance(50), p.drawDuration(90*time.Second)
	w := p.w
	defer w.lock()()
	w.executePending()
	if a.spent() && !w.refusesFalsely {
		return usedNonce()
	}
	no := s.Class == x402.Refused || s.Class == x402.TurnedAway
	if !moves || no && !w.refusesFalsely {
		return s
	}
	if !late {
		delay = 0
	}
	a.movedAfterRefusal = a.movedAfterRefusal || no
	p.submit(a, delay)
	return s
}

// executeSettlement does the facilitator's side of one settlement. The first of the following
// cases that applies decides. If dropsRequest is true, the facilitator drops the request, and
// the call times out. If the authorization has expired or expires within six seconds, the
// facilitator says that it has expired. If the nonce is used, the facilitator says so. If
// refusesPayment is true, the facilitator refuses the payment. If executesLate is true, the
// facilitator executes the transfer after the delay. Otherwise it executes the transfer at
// once.
func (p *process) executeSettlement(a *authorization, executesLate, refusesPayment, dropsRequest bool, delay time.Duration) x402.Settlement {
	w := p.w
	defer w.lock()()
	w.executePending()
	switch {
	case dropsRequest:
		return timedOut()
	case !w.chainNow().Add(6 * time.Second).Before(a.validBefore):
		// Facilitators check the window before anything else.
		return x402.Settlement{Class: x402.Refused, Reason: "invalid_exact_evm_payload_authorization_valid_before", Expired: true}
	case a.spent():
		return usedNonce()
	case refusesPayment:
		return declined()
	case executesLate:
		p.submit(a, delay)
		return x402.Settlement{Class: x402.Unknown, Reason: "settlement_pending", Transaction: a.tx}
	}
	w.execute(a, w.chainNow(), p.attemptOn(a).claimedAt, true)
	return x402.Settlement{Class: x402.Moved, Transaction: a.tx}
}

func (p *process) submit(a *authorization, after time.Duration) {
	a.pending = append(a.pending, pendingTransaction{p.w.chainNow().Add(after), p.attemptOn(a).claimedAt})
}

// hangUp returns the result of a call of Settle that timed out before the facilitator
// answered. If doesNothing is true, the facilitator moves no money, because it has dropped the
// request or refuses the payment. Otherwise it executes the transfer after the delay.
func (p *process) hangUp(a *authorization, doesNothing bool, delay time.Duration) x402.Settlement {
	defer p.w.lock()()
	if !doesNothing {
		p.w.noteEvent("executed after we hung up")
		p.submit(a, delay)
	}
	return timedOut()
}

func (p *process) checkSend(pay x402.Payload, r x402.Requirements, name string) *authorization {
	w := p.w
	defer w.lock()()
	w.executePending()
	a := w.authorizationOf(pay.Payload.Authorization.Nonce)
	w.trace("  p%d sends %s to %s", p.number, w.shortName(a.key), name)
	at := p.attemptOn(a)
	at.sends++
	at.requests[name]++
	a.possibleSends++
	p.sends, p.lastPayment = p.sends+1, a
	// needsNewTerms says that this is the payment of the request, that it was not on record or
	// was refused, and that its transfer is not on the chain. After a deploy, such a payment must
	// be sent under the new terms.
	needsNewTerms := a == p.payment && (p.readState == "" || p.readState == ledger.Refused) && !a.used
	// cannotExecute says that the authorization can no longer execute, because it is used,
	// cancelled or past its window. If another payment owns the purchase, this payment may be
	// sent only if it cannot execute.
	cannotExecute := a.spent() || !w.chainNow().Before(a.validBefore)
	w.noteViolations(map[string]bool{
		"sent without a claim":                                  at.claimedAt.IsZero(),
		"sent after the lease":                                  !at.claimedAt.IsZero() && p.now().Sub(p.arrived) > minimumLease,
		"a forged signature was sent":                           isForged(pay.Payload.Signature),
		"sent with another signature":                           pay.Payload.Signature != a.forms[form{w.signsWithKey, withToken}].signature,
		"settled under other terms than it was offered":         r.Amount != "5000" || r.PayTo != terms().PayTo,
		"settled under the terms of before a deploy":            needsNewTerms && !w.deployAt.IsZero() && p.begun.After(w.deployAt),
		"sent twice by one request":                             at.sends > 1 && !w.hasFallback,
		"another payment was sent past its window":              a != p.payment && !p.now().Add(5*time.Second).Before(a.validBefore),
		"sent without a purchase":                               a.purchase == "",
		"sent, and this attempt did not open its purchase":      a.purchase != "" && !at.openedPurchase,
		"sent for a purchase that is made with another payment": a.purchase != "" && w.owner(a.purchase) != a && !cannotExecute,
		"a superseded payment was sent":                         !a.supersededAt.IsZero() && p.begun.After(a.supersededAt),
		"worked without a slot":                                 p.lacksSlot(),
	})
	if w.hasFallback {
		p.checkFacilitatorChoice(a, name)
	}
	return a
}

// checkFacilitatorChoice checks that the process was allowed to send the payment to the named
// facilitator.
func (p *process) checkFacilitatorChoice(a *authorization, name string) {
	w, at := p.w, p.attemptOn(a)
	if r := w.record(a); r == nil || !slices.Contains(r.Asked, name) {
		w.noteViolation("asked, and not named on record")
	}
	recorded := a.refusedBy
	if !a.refusedAt.Before(at.wroteAt) {
		recorded = "" // the refusal was recorded after this process wrote the record that permits the request
	}
	for _, refuser := range []string{recorded, at.refusedBy} {
		if refuser != "" && refuser != name {
			w.noteViolation("a refusal about the payer was taken to the other facilitator")
		}
	}
	if name == primaryName || a.refusedBy != "" {
		return
	}
	class, asked := at.classes[primaryName]
	switch {
	case !asked:
		w.noteViolation("the fallback was asked, and not the primary")
	case class == x402.Moved || class == x402.Refused:
		w.noteViolation("the fallback was asked after a verdict")
	case p.inDoubt(a) && w.chainVisible && at.verdict == nil:
		w.noteViolation("the fallback was asked at once in doubt")
	}
}

// inDoubt reports whether this process must assume that a payment may have moved money. Either
// the process recorded doubt, or the primary's answer left the outcome unknown.
func (p *process) inDoubt(a *authorization) bool {
	class, asked := p.attemptOn(a).classes[primaryName]
	return p.attemptOn(a).wroteDoubt || asked && class == x402.Unknown
}

// noteAnswer notes a facilitator's answer to this process. A process that died before the
// answer does not call it.
func (p *process) noteAnswer(a *authorization, name string, s x402.Settlement) {
	w := p.w
	defer w.lock()()
	at, doubt, class := p.attemptOn(a), p.inDoubt(a), s.Class
	if at.classes[name] == x402.Unknown && at.requests[name] > 1 && class != x402.Moved {
		class = x402.Unknown // an earlier request left a doubt, and only a success resolves this doubt
	}
	at.classes[name] = class
	// If the primary may have settled the payment, a refusal by the fallback decides nothing.
	inDoubt := name == fallbackName && doubt && at.requests[primaryName] > 0
	if (s.Class == x402.Refused || s.AboutPayer) && !inDoubt {
		at.refusedBy = name
	}
	if class == x402.Refused && !inDoubt {
		at.refusal = &s
	}
	if name == fallbackName && s.Class == x402.Moved && doubt && a.used {
		w.noteEvent("the fallback settled in doubt")
	}
}

// refusedFalselyAtFirst reports whether this process was the first to send the authorization,
// and a facilitator then refused the payment although it moved the money. The Gate does not
// check a first refusal against the chain. Therefore the refusal remains on record until the
// reconciler finds the transfer.
func (p *process) refusedFalselyAtFirst(a *authorization) bool {
	return p.attemptOn(a).refusal != nil && a.movedAfterRefusal && !p.attemptOn(a).sentBefore
}

func (w *world) checkRefusals(p *process, out *x402.Outcome) {
	for a, at := range p.attempts {
		r, s := w.record(a), at.refusal
		again := at.sentBefore || at.classes[primaryName] == x402.TurnedAway
		switch told := saysNothingMoved(out); {
		case s == nil || !again || r == nil:
		case s.NonceUsed && a.moved() && a.movedByUs && told:
			w.noteViolation("refused a payment that has moved, of which the facilitator says that it is used")
		case s.NonceUsed && !w.chainVisible && !p.storeFailed.Load() && !r.Paid():
			w.noteViolation("what the facilitator calls used was sent before, and is not on record as paid")
		case s.NonceUsed || s.Expired || !told || !at.sentBefore || !w.chainVisible:
		case at.verdict == nil:
			w.noteViolation("refused again, and the chain was not asked")
		case *at.verdict == x402.CannotTell:
			w.noteViolation("refused again, and the chain could not tell")
		}
	}
}
