package x402_test

import (
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// checkPurchase is called after a write of the purchase. If the purchase has a new owner,
// checkPurchase notes in the new owner's field overOwners which earlier owners were over
// (isOver) when they were replaced.
func (x *explorer) checkPurchase(before, after *state, slot int) {
	oldPurchase, ok := x.records[before.recs[purchaseRecord]].(ledger.Purchase)
	newPurchase, _ := x.records[after.recs[purchaseRecord]].(ledger.Purchase)
	if !ok || oldPurchase.Owner == newPurchase.Owner {
		return
	}
	old, next := x.keyOf(oldPurchase.Owner), x.keyOf(newPurchase.Owner)
	over := before.chain[old].overOwners
	t := x.nodes[before.procs[slot].node].task
	if x.isOver(x.payment(before, old), t.endpoint, x.instants[t.begunAt]) {
		over |= 1 << old
	}
	after.chain[next].overOwners |= over
}

// checkWrite checks a successful write of the record of a payment. It also notes facts that
// later checks need, about payments and about the purchase.
func (x *explorer) checkWrite(before, after *state, slot int, c *call) {
	if c.key == purchaseRecord {
		x.checkPurchase(before, after, slot)
	}
	if c.key >= paymentCount {
		return
	}
	updated := x.payment(after, c.key)
	old := x.payment(before, c.key)
	if old == nil {
		old = &ledger.Payment{}
	}
	x.checkFactsKept(old, updated, after.chain[c.key])
	x.checkProven(old, updated, after, c.key)
	x.checkClaim(old, updated, x.clock(after))
	x.checkVerdict(old, updated, x.nodes[after.procs[slot].node], c.key)
	switch updated.State { //nolint:exhaustive // nothing is noted for other states
	case ledger.Settling:
		after.procs[slot].claimedAuths |= 1 << c.key
	case ledger.Refunded:
		after.chain[c.key].refunded = true
	}
}

// checkFactsKept notes a violation if a write loses a fact that the record must keep, or if
// the facts of the written record contradict each other.
func (x *explorer) checkFactsKept(old, updated *ledger.Payment, chain chainState) {
	proven := updated.Paid() || updated.Disproved
	x.noteViolations(map[string]bool{
		"a send was forgotten":                      old.Sent && !updated.Sent,
		"doubt was forgotten without proof":         old.Doubt && !updated.Doubt && !proven,
		"refused in doubt without proof":            old.Doubt && closedUnpaid(updated) && !proven,
		"a payment was forgotten":                   old.Paid() && !updated.Paid(),
		"in doubt without doubt":                    updated.State == ledger.Uncertain && !updated.Doubt,
		"superseded by nobody":                      updated.State == ledger.Superseded && updated.Owner == "",
		"an answer was given up":                    old.State == ledger.Redeemed && updated.State != ledger.Redeemed,
		"refunded, and an answer was given":         updated.State == ledger.Refunded && chain.hasFullAnswer,
		"answered, and its refund was begun":        old.SendingBack != nil && updated.State == ledger.Redeemed && !updated.Attested(),
		"an answer, and not on record as answered":  updated.Answer != nil && updated.State != ledger.Redeemed,
		"proof of payment, and not on record as it": updated.Receipt != nil && !updated.Paid(),
	})
}

// closedUnpaid reports whether a record is closed, and says that no money moved.
func closedUnpaid(r *ledger.Payment) bool {
	return r.State == ledger.Refused || r.State == ledger.Superseded
}

// checkProven checks a write after which a record first says that an authorization has moved
// money, or that it never will. This must be true on the chain.
func (x *explorer) checkProven(old, updated *ledger.Payment, s *state, auth int) {
	chain := s.chain[auth]
	if updated.Disproved && !old.Disproved && x.verdict(s, &call{auth: auth, claimedAt: updated.CreatedAt}) != x402.NeverPaid {
		x.noteViolation("disproved without proof")
	}
	if updated.Paid() && !old.Paid() {
		x.noteViolations(map[string]bool{
			"on record as paid, and it is not":        !x.countsAsPaid(chain),
			"taken for paid without having been sent": chain.truth == truthCancelled && !old.Sent && !old.Doubt,
		})
	}
}

// checkClaim checks a write that claims a payment once more. A payment may be claimed again
// only at certain times.
func (x *explorer) checkClaim(old, updated *ledger.Payment, now time.Time) {
	if old.Attempt == 0 || updated.Attempt == old.Attempt {
		return
	}
	released := old.LeaseUntil.IsZero()
	soon := func(since time.Time) bool { return released && now.Before(since.Add(time.Second)) }
	x.noteViolations(map[string]bool{
		"a live lease was taken":              old.LeaseUntil.After(now),
		"asked again at once after a refusal": old.State == ledger.Refused && soon(old.RefusedAt),
		"worked again at once":                old.Paid() && old.Lookups > 0 && soon(old.LookupAt),
		"worked, and silence is the answer":   silenceIsAnswer(old, now) && old.SendingBack == nil,
	})
}

// checkVerdict checks a write that ends an attempt to settle. It checks nothing if the attempt
// has proved that money moved, or that it never will.
func (x *explorer) checkVerdict(old, updated *ledger.Payment, n *node, auth int) {
	if old.State != ledger.Settling || !updated.LeaseUntil.IsZero() || updated.Paid() || updated.Disproved {
		return
	}
	verdict, asked := n.lastFate(auth)
	x.noteViolations(map[string]bool{
		"a send was not recorded":                     n.hasSent(auth) && !updated.Sent,
		"doubt without a cause":                       updated.Doubt && !old.Doubt && !n.mayDoubt(auth, x.world.hasNode),
		"a refusal was recorded, and nobody refused":  updated.Refusals > old.Refusals && !n.hasReply(auth, facilitatorReply.isRefusal),
		"what the chain has decided was not recorded": asked && verdict == x402.NeverPaid,
	})
}

// lastReply returns the last reply about an authorization that a facilitator gave to a
// process. ok is false if there was none.
func (n *node) lastReply(auth int) (last facilitatorReply, ok bool) {
	for at := n; at.parent != nil; at = at.parent {
		if c := at.parent.mainCall; !at.incomingEdge.isJob && c.kind == callSettle && c.auth == auth {
			return facilitatorReply(at.incomingEdge.reply.n), true
		}
	}
	return 0, false
}

// lastFate returns what the chain last showed to a process about an authorization. ok is false
// if the process has not asked the chain.
func (n *node) lastFate(auth int) (last x402.Fate, ok bool) {
	for at := n; at.parent != nil; at = at.parent {
		if c := at.parent.mainCall; !at.incomingEdge.isJob && c.kind == callFind && c.auth == auth {
			return x402.Fate(at.incomingEdge.reply.n), true
		}
	}
	return 0, false
}

// hasSent reports whether a process has sent an authorization to a facilitator.
func (n *node) hasSent(auth int) bool {
	return n.hasReply(auth, func(w facilitatorReply) bool { return w != neverReached })
}

// hasReply reports whether a facilitator has given the process a certain reply about an
// authorization. matches returns true for such a reply.
func (n *node) hasReply(auth int, matches func(facilitatorReply) bool) bool {
	for at := n; at.parent != nil; at = at.parent {
		if c := at.parent.mainCall; !at.incomingEdge.isJob && c.kind == callSettle && c.auth == auth && matches(facilitatorReply(at.incomingEdge.reply.n)) {
			return true
		}
	}
	return false
}

// mayDoubt reports whether a process has a reason to leave an authorization in doubt.
func (n *node) mayDoubt(auth int, hasNode bool) bool {
	last, _ := n.lastReply(auth)
	verdict, asked := n.lastFate(auth)
	switch {
	case n.task.kind == taskReconcile:
		return true
	case n.hasReply(auth, func(w facilitatorReply) bool { return w == saysNothing || w == movesUnheard || w == movesLater }):
		return true
	case !asked:
		return hasNode && n.reachedAt > n.task.begunAt // the clock has moved since the process began, so there may have been no time left to ask the chain
	}
	return verdict == x402.CannotTell || verdict == x402.StillOpen && last == saysUsed
}
