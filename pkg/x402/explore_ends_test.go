package x402_test

import (
	"errors"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// checkEnd checks the outcome of a process that has ended.
func (x *explorer) checkEnd(s *state, p processState, n *node) {
	out := n.end.out
	if n.end.panicked {
		x.noteViolation("a process panicked")
		return
	}
	if out == nil {
		x.checkOperator(s, n)
		return
	}
	if isIllegal(out) && !wasOutrun(n) {
		x.noteViolation("an illegal transition")
	}
	auth := int(n.task.auth)
	answered := x.answeredAuth(s, n)
	charged := out.Payment.Charged
	switch {
	case out.Body != nil || out.Replayed:
		x.checkAnswer(s, p, n, answered)
	case charged != nil && *charged:
		x.noteViolations(map[string]bool{
			"told that money moved, and it did not":    !x.countsAsPaid(s.chain[answered]),
			"what was over is owed to another payment": x.wasOver(p, n, answered),
		})
	}
	if charged != nil && !*charged {
		x.tellUncharged(s, n, auth)
	}
	x.checkRefusal(p, n)
	if out.Fault != nil && out.Fault.Code == fault.PaymentInProgress && n.reachedAt == n.task.begunAt {
		x.checkWait(s)
		x.checkPause(s, p, n)
	}
	if n.task.checkRefuses && p.couldRunLookup && !storeFailed(n) && out.Body == nil {
		x.checkSellerCheck(s, auth)
	}
}

// isIllegal reports whether a request met an event that cannot happen, or a record that cannot
// exist.
func isIllegal(out *x402.Outcome) bool {
	if errors.Is(out.Trace.Cause, ledger.ErrIllegal) {
		return true
	}
	return out.Fault != nil && (errors.Is(out.Fault, ledger.ErrIllegal) || errors.Is(out.Fault, ledger.ErrCorrupt))
}

// checkSellerCheck is called after the seller's check refused a request and the request got no
// answer, although its payment was already paid. The check must not stop the lookup for a paid
// payment. So checkSellerCheck notes a violation if the lookup can still run now.
func (x *explorer) checkSellerCheck(s *state, auth int) {
	if r := x.payment(s, auth); r != nil && x.meaning(r, s).Claim == ledger.Held {
		x.noteViolation("the check refuses what is paid")
	}
}

// wasOutrun reports whether writes of this process have failed more than three times because
// another process had written first. If so many attempts to record a payment as paid fail, the
// process stops trying, and gives an answer that is not on record.
func wasOutrun(n *node) bool {
	const tries = 3
	met := 0
	for ; n.parent != nil; n = n.parent {
		if n.incomingEdge.reply.result == replyConflict {
			met++
		}
	}
	return met > tries
}

// storeFailed reports whether a call of the store by this process has failed.
func storeFailed(n *node) bool {
	for ; n.parent != nil; n = n.parent {
		if n.incomingEdge.reply.result == replyFailed || n.incomingEdge.reply.result == replyLost {
			return true
		}
	}
	return false
}

// answeredAuth returns the authorization that the outcome of a request is about. The request
// may have brought another payment, which then got the outcome of the payment that owns the
// purchase.
func (x *explorer) answeredAuth(s *state, n *node) int {
	if r := n.end.out.Receipt; r != nil && r.Success && r.Transaction != "" {
		return int(r.Transaction[2]-'0') - 1
	}
	if n.end.workedAuth >= 0 {
		return n.end.workedAuth
	}
	for _, auth := range []int{n.end.lastReadAuth, n.end.leasedAuth} {
		if auth >= 0 && s.recs[auth] != 0 && x.payment(s, auth).Paid() {
			return auth
		}
	}
	return int(n.task.auth)
}

// checkRefusal checks the outcome of a request that got no answer.
func (x *explorer) checkRefusal(p processState, n *node) {
	out := n.end.out
	if out.Body != nil {
		return
	}
	last, sent := n.lastReply(int(n.task.auth))
	undisturbed := !storeFailed(n) && n.reachedAt == n.task.begunAt
	x.noteViolations(map[string]bool{
		"a kept answer was not given":            p.answerReplayable && undisturbed && x.world.echoesTokens,
		"blames a facilitator that has answered": sent && last != neverReached && out.Fault.Code == fault.FacilitatorUnavailable,
		"a verdict was not recorded":             out.Trace.Unrecorded && !storeFailed(n) && !wasOutrun(n),
	})
}

// checkWait is called after a payer was told that an attempt is under way. It notes a violation
// if the leases of all payments have ended. In a world with two processes at once, checkWait
// notes no violation.
func (x *explorer) checkWait(s *state) {
	for auth := range paymentCount {
		r := x.payment(s, auth)
		if r == nil {
			continue
		}
		// A payer whose answer could not be kept is also told to wait.
		unkept := r.State == ledger.Redeemed && !r.Answer.Stored
		if unkept || r.LeaseUntil.After(x.clock(s)) {
			return
		}
	}
	if x.world.maxProcesses == 1 {
		x.noteViolation("told to wait, and nobody works")
	}
}

// checkPause is called after a payer was told that an attempt is under way. It notes a violation
// in this case: the request brought a new payment, another payment owns the purchase, an attempt
// for the owner is under way, and the process has not waited for that attempt.
func (x *explorer) checkPause(s *state, p processState, n *node) {
	for owner := range paymentCount {
		if owner == int(n.task.auth) || !x.owns(s, owner) {
			continue
		}
		r := x.payment(s, owner)
		underWay := r.State != ledger.Redeemed && r.LeaseUntil.After(x.clock(s))
		if p.hadNoRecord && underWay && !n.paused() && !n.overtaken() {
			x.noteViolation("did not wait for another payment of the purchase")
		}
	}
}

// overtaken reports whether a write of a payment's record by this process has failed because
// another process had written that record first.
func (n *node) overtaken() bool {
	for ; n.parent != nil; n = n.parent {
		if n.incomingEdge.reply.result == replyConflict && n.parent.mainCall.key < paymentCount {
			return true
		}
	}
	return false
}

// paused reports whether a process has paused to wait for another process.
func (n *node) paused() bool {
	for ; n.parent != nil; n = n.parent {
		if c := n.parent.mainCall; c != nil && !n.incomingEdge.isJob && c.kind == callPause {
			return true
		}
	}
	return false
}

// checkOperator checks how an operator's command, or a run of the Reconciler, has ended.
func (x *explorer) checkOperator(s *state, n *node) {
	illegal := errors.Is(n.end.err, ledger.ErrIllegal)
	if n.task.kind == taskReconcile {
		if illegal {
			x.noteViolation("an illegal transition")
		}
		return
	}
	r := x.payment(s, int(n.task.auth))
	due := x.meaning(r, s).Case == ledger.CaseRefundDue
	if illegal && due {
		x.noteViolation("a refund is due, and cannot be made")
	}
}

// tellUncharged checks that the payer may be told that nothing is charged, and notes that the
// payer was told so.
func (x *explorer) tellUncharged(s *state, n *node, auth int) {
	c := &s.chain[auth]
	moved := c.truth == truthMoved && c.movedByUs
	last, _ := n.lastReply(auth)
	again := last == refusesMoved || last == saysExpired
	x.noteViolations(map[string]bool{
		"charged, and told that nothing was":                      moved && !c.liedAbout,
		"refused again falsely, and told that nothing is charged": moved && again && x.world.hasNode,
	})
	own := x.payment(s, auth)
	// A payer who is told that nothing is charged signs a new payment for the same purchase.
	// The outcome of the new payment depends on the payment that owns the purchase. Therefore,
	// if the owner has moved money, the owner's record must not be in doubt.
	replaced := own != nil && (own.State == ledger.Superseded || own.Endpoint != endpointName(n.task.endpoint))
	if p, ok := x.records[s.recs[purchaseRecord]].(ledger.Purchase); ok && x.world.maxProcesses == 1 && !x.world.separatePurchases && n.end.leasedAuth >= 0 && !replaced {
		owner := x.keyOf(p.Owner)
		o, r := s.chain[owner], x.payment(s, owner)
		if r != nil && owner != auth && o.truth == truthMoved && o.movedByUs && !o.liedAbout && r.InDoubt() {
			x.noteViolation("told that nothing is charged, and the purchase is in doubt")
		}
	}
	c.toldUncharged = c.pending
	for slot := range s.procs {
		if o := &s.procs[slot]; o.node != 0 {
			o.toldUncharged |= o.claimedAuths & (1 << auth)
		}
	}
}

// checkAnswer checks an answer that a payer gets for an authorization, and notes whether a whole
// answer is now on record.
func (x *explorer) checkAnswer(s *state, p processState, n *node, auth int) {
	out, c, r := n.end.out, &s.chain[auth], x.payment(s, auth)
	x.noteViolations(map[string]bool{
		"an answer for money that has not moved": !x.countsAsPaid(*c),
		"an answer, and not charged":             out.Payment.Charged == nil || !*out.Payment.Charged,
		"an answer after a refund":               c.refunded,
		"a second answer":                        c.answeredFirsthand && !out.Replayed && !wasOutrun(n),
		"answered at another endpoint":           r != nil && r.Endpoint != endpointName(n.task.endpoint),
		"opened by what is on the chain":         p.sentWithoutToken && auth == int(n.task.auth),
		"an answer that does not stand any more": x.wasOver(p, n, auth),
	})
	if r != nil && r.State == ledger.Redeemed && r.Answer != nil && r.Answer.Stored && len(r.Answer.Owed) == 0 {
		c.hasFullAnswer = true
		c.answeredFirsthand = c.answeredFirsthand || !out.Replayed && !wasOutrun(n)
	}
}

// wasOver reports whether a request with a new payment got the outcome of an old payment that
// was already over (isOver) when the request arrived. With two processes at once, wasOver
// always returns false.
func (x *explorer) wasOver(p processState, n *node, auth int) bool {
	return auth != int(n.task.auth) && p.hadNoRecord && x.world.maxProcesses == 1 && p.overAuths&(1<<auth) != 0
}
