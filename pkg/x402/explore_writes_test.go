package x402_test

import (
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// checkPurchase notes, when a purchase gets a new owner, whether the old owner was over (isOver).
// The new owner also inherits the notes about all earlier owners.
func (x *explorer) checkPurchase(before, after *state, slot int) {
	was, ok := x.records[before.recs[purchase]].(ledger.Purchase)
	is, _ := x.records[after.recs[purchase]].(ledger.Purchase)
	if !ok || was.Owner == is.Owner {
		return
	}
	old, next := x.keyOf(was.Owner), x.keyOf(is.Owner)
	over := before.chain[old].over
	t := x.nodes[before.procs[slot].node].task
	if x.isOver(x.payment(before, old), t.endpoint, x.instants[t.at]) {
		over |= 1 << old
	}
	after.chain[next].over |= over
}

// checkWrite checks a successful write of the record of a payment. It also notes facts that
// later checks need, about payments and about the purchase.
func (x *explorer) checkWrite(before, after *state, slot int, c *call) {
	if c.key == purchase {
		x.checkPurchase(before, after, slot)
	}
	if c.key >= payments {
		return
	}
	is := x.payment(after, c.key)
	was := x.payment(before, c.key)
	if was == nil {
		was = &ledger.Payment{}
	}
	x.checkKept(was, is, after.chain[c.key])
	x.checkProven(was, is, after, c.key)
	x.checkClaim(was, is, x.clock(after))
	x.checkVerdict(was, is, x.nodes[after.procs[slot].node], c.key)
	switch is.State { //nolint:exhaustive // nothing is noted for other states
	case ledger.Settling:
		after.procs[slot].claimed |= 1 << c.key
	case ledger.Refunded:
		after.chain[c.key].returned = true
	}
}

// checkKept notes a violation if a write loses a fact that the record must keep, or if the facts
// of the written record contradict each other.
func (x *explorer) checkKept(was, is *ledger.Payment, chain onChain) {
	proven := is.Paid() || is.Disproved
	x.check(map[string]bool{
		"a send was forgotten":                      was.Sent && !is.Sent,
		"doubt was forgotten without proof":         was.Doubt && !is.Doubt && !proven,
		"refused in doubt without proof":            was.Doubt && closedUnpaid(is) && !proven,
		"a payment was forgotten":                   was.Paid() && !is.Paid(),
		"in doubt without doubt":                    is.State == ledger.Uncertain && !is.Doubt,
		"superseded by nobody":                      is.State == ledger.Superseded && is.Owner == "",
		"an answer was given up":                    was.State == ledger.Redeemed && is.State != ledger.Redeemed,
		"refunded, and an answer was given":         is.State == ledger.Refunded && chain.complete,
		"answered, and its refund was begun":        was.SendingBack != nil && is.State == ledger.Redeemed && !is.Attested(),
		"an answer, and not on record as answered":  is.Answer != nil && is.State != ledger.Redeemed,
		"proof of payment, and not on record as it": is.Receipt != nil && !is.Paid(),
	})
}

// closedUnpaid reports whether a record is closed, and says that no money moved.
func closedUnpaid(r *ledger.Payment) bool {
	return r.State == ledger.Refused || r.State == ledger.Superseded
}

// checkProven checks a write that records as proven that an authorization has moved money, or
// that it never will. What is recorded must be true.
func (x *explorer) checkProven(was, is *ledger.Payment, s *state, auth int) {
	chain := s.chain[auth]
	if is.Disproved && !was.Disproved && x.verdict(s, &call{auth: auth, since: is.CreatedAt}) != x402.NeverPaid {
		x.violated("disproved without proof")
	}
	if is.Paid() && !was.Paid() {
		x.check(map[string]bool{
			"on record as paid, and it is not":        !x.countsAsPaid(chain),
			"taken for paid without having been sent": chain.truth == truthCancelled && !was.Sent && !was.Doubt,
		})
	}
}

// checkClaim checks that a write which claims a payment once more comes at a permitted time.
func (x *explorer) checkClaim(was, is *ledger.Payment, now time.Time) {
	if was.Attempt == 0 || is.Attempt == was.Attempt {
		return
	}
	released := was.LeaseUntil.IsZero()
	soon := func(since time.Time) bool { return released && now.Before(since.Add(time.Second)) }
	x.check(map[string]bool{
		"a live lease was taken":              was.LeaseUntil.After(now),
		"asked again at once after a refusal": was.State == ledger.Refused && soon(was.RefusedAt),
		"worked again at once":                was.Paid() && was.Lookups > 0 && soon(was.LookupAt),
		"worked, and silence is the answer":   silenceAnswers(was, now) && was.SendingBack == nil,
	})
}

// checkVerdict checks how the end of an attempt to settle is recorded, if the attempt has proved
// neither that money moved nor that it never will.
func (x *explorer) checkVerdict(was, is *ledger.Payment, n *node, auth int) {
	if was.State != ledger.Settling || !is.LeaseUntil.IsZero() || is.Paid() || is.Disproved {
		return
	}
	verdict, asked := n.shown(auth)
	x.check(map[string]bool{
		"a send was not recorded":                     n.reachedBy(auth) && !is.Sent,
		"doubt without a cause":                       is.Doubt && !was.Doubt && !n.doubts(auth, x.world.node),
		"a refusal was recorded, and nobody refused":  is.Refusals > was.Refusals && !n.heard(auth, facilitatorReply.refuses),
		"what the chain has decided was not recorded": asked && verdict == x402.NeverPaid,
	})
}

// said returns the last reply about an authorization that a facilitator gave to a process. ok is
// false if there was none.
func (n *node) said(auth int) (last facilitatorReply, ok bool) {
	for at := n; at.parent != nil; at = at.parent {
		if c := at.parent.main; !at.by.job && c.kind == callSettle && c.auth == auth {
			return facilitatorReply(at.by.reply.n), true
		}
	}
	return 0, false
}

// shown returns what the chain last showed to a process about an authorization. ok is false if
// the process has not asked the chain.
func (n *node) shown(auth int) (last x402.Fate, ok bool) {
	for at := n; at.parent != nil; at = at.parent {
		if c := at.parent.main; !at.by.job && c.kind == callFind && c.auth == auth {
			return x402.Fate(at.by.reply.n), true
		}
	}
	return 0, false
}

// reachedBy reports whether a process has sent an authorization to a facilitator.
func (n *node) reachedBy(auth int) bool {
	return n.heard(auth, func(w facilitatorReply) bool { return w != neverReached })
}

// heard looks at the replies about an authorization that facilitators gave to a process. It
// reports whether the given function returns true for one of these replies.
func (n *node) heard(auth int, is func(facilitatorReply) bool) bool {
	for at := n; at.parent != nil; at = at.parent {
		if c := at.parent.main; !at.by.job && c.kind == callSettle && c.auth == auth && is(facilitatorReply(at.by.reply.n)) {
			return true
		}
	}
	return false
}

// doubts reports whether a process has a reason to leave an authorization in doubt.
func (n *node) doubts(auth int, hasNode bool) bool {
	last, _ := n.said(auth)
	verdict, asked := n.shown(auth)
	switch {
	case n.task.kind == taskReconcile:
		return true
	case n.heard(auth, func(w facilitatorReply) bool { return w == saysNothing || w == movesUnheard || w == movesLater }):
		return true
	case !asked:
		return hasNode && n.reached > n.task.at // no time was left to ask the chain
	}
	return verdict == x402.CannotTell || verdict == x402.StillOpen && last == saysUsed
}
