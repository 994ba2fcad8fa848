package x402_test

import (
	"errors"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// checkEnd checks the outcome of a process that has ended.
func (x *explorer) checkEnd(s *state, p running, n *node) {
	out := n.end.out
	if n.end.panicked {
		x.violated("a process panicked")
		return
	}
	if out == nil {
		x.checkOperator(s, n)
		return
	}
	if isIllegal(out) && !outrun(n) {
		x.violated("an illegal transition")
	}
	auth := int(n.task.auth)
	answered := x.answering(s, n)
	charged := out.Payment.Charged
	switch {
	case out.Body != nil || out.Replayed:
		x.checkAnswer(s, p, n, answered)
	case charged != nil && *charged:
		x.check(map[string]bool{
			"told that money moved, and it did not":    !x.countsAsPaid(s.chain[answered]),
			"what was over is owed to another payment": x.wasOver(p, n, answered),
		})
	}
	if charged != nil && !*charged {
		x.tellUncharged(s, n, auth)
	}
	x.checkRefusal(p, n)
	if out.Fault != nil && out.Fault.Code == fault.PaymentInProgress && n.reached == n.task.at {
		x.checkWait(s)
		x.checkPause(s, p, n)
	}
	if n.task.refuses && p.openTo && !faulty(n) && out.Body == nil {
		x.checkGuard(s, auth)
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

// checkGuard checks that the seller's check does not keep a paid payment from its answer. It is
// called after the check has refused a request whose payment was already paid. It notes a
// violation if an attempt may still do the work for the payment.
func (x *explorer) checkGuard(s *state, auth int) {
	if r := x.payment(s, auth); r != nil && x.meaning(r, s).Claim == ledger.Held {
		x.violated("the check refuses what is paid")
	}
}

// outrun reports whether writes of this process have failed more than three times because
// another process had written first. A process that fails so often to record that a payment is
// paid gives up recording, and gives an answer that is not on record.
func outrun(n *node) bool {
	const tries = 3
	met := 0
	for ; n.parent != nil; n = n.parent {
		if n.by.reply.what == replyStands {
			met++
		}
	}
	return met > tries
}

// faulty reports whether a call of the store by this process has failed.
func faulty(n *node) bool {
	for ; n.parent != nil; n = n.parent {
		if n.by.reply.what == replyFailed || n.by.reply.what == replyLost {
			return true
		}
	}
	return false
}

// answering returns the authorization that the outcome of a request is about. The request may
// have brought another payment, which then got the outcome of the payment that owns the purchase.
func (x *explorer) answering(s *state, n *node) int {
	if r := n.end.out.Receipt; r != nil && r.Success && r.Transaction != "" {
		return int(r.Transaction[2]-'0') - 1
	}
	if n.end.worked >= 0 {
		return n.end.worked
	}
	for _, auth := range []int{n.end.reread, n.end.held} {
		if auth >= 0 && s.recs[auth] != 0 && x.payment(s, auth).Paid() {
			return auth
		}
	}
	return int(n.task.auth)
}

// checkRefusal checks the outcome of a request that got no answer.
func (x *explorer) checkRefusal(p running, n *node) {
	out := n.end.out
	if out.Body != nil {
		return
	}
	last, sent := n.said(int(n.task.auth))
	undisturbed := !faulty(n) && n.reached == n.task.at
	x.check(map[string]bool{
		"a kept answer was not given":            p.kept && undisturbed && x.world.tokens,
		"blames a facilitator that has answered": sent && last != neverReached && out.Fault.Code == fault.FacilitatorUnavailable,
		"a verdict was not recorded":             out.Trace.Unrecorded && !faulty(n) && !outrun(n),
	})
}

// checkWait is called after a payer was told that an attempt is under way. It notes a violation
// if the leases of all payments have ended. In a world with two processes at once, checkWait
// notes no violation.
func (x *explorer) checkWait(s *state) {
	for auth := range payments {
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
	if x.world.atOnce == 1 {
		x.violated("told to wait, and nobody works")
	}
}

// checkPause is called after a payer was told that an attempt is under way. It notes a violation
// in this case: the request brought a new payment, another payment owns the purchase, an attempt
// for the owner is under way, and the process has not waited for that attempt.
func (x *explorer) checkPause(s *state, p running, n *node) {
	for owner := range payments {
		if owner == int(n.task.auth) || !x.owns(s, owner) {
			continue
		}
		r := x.payment(s, owner)
		underWay := r.State != ledger.Redeemed && r.LeaseUntil.After(x.clock(s))
		if p.fresh && underWay && !n.paused() && !n.overtaken() {
			x.violated("did not wait for another payment of the purchase")
		}
	}
}

// overtaken reports whether a write of a payment's record by this process has failed because
// another process had written that record first.
func (n *node) overtaken() bool {
	for ; n.parent != nil; n = n.parent {
		if n.by.reply.what == replyStands && n.parent.main.key < payments {
			return true
		}
	}
	return false
}

// paused reports whether a process has paused to wait for another process.
func (n *node) paused() bool {
	for ; n.parent != nil; n = n.parent {
		if c := n.parent.main; c != nil && !n.by.job && c.kind == callPause {
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
			x.violated("an illegal transition")
		}
		return
	}
	r := x.payment(s, int(n.task.auth))
	due := x.meaning(r, s).Case == ledger.CaseRefundDue
	if illegal && due {
		x.violated("a refund is due, and cannot be made")
	}
}

// tellUncharged checks that the payer may be told that nothing is charged, and notes that the
// payer was told so.
func (x *explorer) tellUncharged(s *state, n *node, auth int) {
	c := &s.chain[auth]
	moved := c.truth == truthMoved && c.byUs
	last, _ := n.said(auth)
	again := last == refusesMoved || last == saysExpired
	x.check(map[string]bool{
		"charged, and told that nothing was":                      moved && !c.lied,
		"refused again falsely, and told that nothing is charged": moved && again && x.world.node,
	})
	own := x.payment(s, auth)
	// A payer who is told that nothing is charged signs a new payment for the same purchase.
	// The outcome of the new payment depends on the payment that owns the purchase. Therefore,
	// if that payment has moved money, its record must not be in doubt.
	replaced := own != nil && (own.State == ledger.Superseded || own.Endpoint != endpointName(n.task.endpoint))
	if p, ok := x.records[s.recs[purchase]].(ledger.Purchase); ok && x.world.atOnce == 1 && !x.world.separate && n.end.held >= 0 && !replaced {
		owner := x.keyOf(p.Owner)
		o, r := s.chain[owner], x.payment(s, owner)
		if r != nil && owner != auth && o.truth == truthMoved && o.byUs && !o.lied && r.InDoubt() {
			x.violated("told that nothing is charged, and the purchase is in doubt")
		}
	}
	c.stale = c.pending
	for slot := range s.procs {
		if o := &s.procs[slot]; o.node != 0 {
			o.stale |= o.claimed & (1 << auth)
		}
	}
}

// checkAnswer checks an answer that a payer gets for an authorization, and notes whether a whole
// answer is now on record.
func (x *explorer) checkAnswer(s *state, p running, n *node, auth int) {
	out, c, r := n.end.out, &s.chain[auth], x.payment(s, auth)
	x.check(map[string]bool{
		"an answer for money that has not moved": !x.countsAsPaid(*c),
		"an answer, and not charged":             out.Payment.Charged == nil || !*out.Payment.Charged,
		"an answer after a refund":               c.returned,
		"a second answer":                        c.fresh && !out.Replayed && !outrun(n),
		"answered at another endpoint":           r != nil && r.Endpoint != endpointName(n.task.endpoint),
		"opened by what is on the chain":         p.sent && auth == int(n.task.auth),
		"an answer that does not stand any more": x.wasOver(p, n, auth),
	})
	if r != nil && r.State == ledger.Redeemed && r.Answer != nil && r.Answer.Stored && len(r.Answer.Owed) == 0 {
		c.complete = true
		c.fresh = c.fresh || !out.Replayed && !outrun(n)
	}
}

// wasOver reports whether the outcome of a request with a new payment is about another payment,
// which was already over (isOver) when the request arrived.
func (x *explorer) wasOver(p running, n *node, auth int) bool {
	return auth != int(n.task.auth) && p.fresh && x.world.atOnce == 1 && p.over&(1<<auth) != 0
}
