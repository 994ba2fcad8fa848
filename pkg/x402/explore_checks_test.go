package x402_test

import (
	"slices"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

func (x *explorer) standing(r *ledger.Payment, s *state) ledger.Standing {
	return ledger.Stand(r, ledger.View{Now: x.clock(s), Node: x.world.hasNode})
}

func (x *explorer) meaning(r *ledger.Payment, s *state) ledger.Meaning {
	return x.rules.Meanings[x.standing(r, s)]
}

// isOver reports whether a payment is paid, but gives a request no right to an answer. Another
// payment of the purchase may then be charged. There are three such cases. The payment was
// made at another endpoint. It is refunded, or a refund is begun or due. Or its answer was
// given, and was no longer kept or valid when the request arrived.
func (x *explorer) isOver(r *ledger.Payment, endpoint int8, arrived time.Time) bool {
	switch {
	case r == nil:
		return false
	case r.Paid() && r.Endpoint != endpointName(endpoint):
		return true
	case r.State == ledger.Refunded:
		return true
	case r.State == ledger.Redeemed && x.world.hasKey:
		return !arrived.Before(r.AnsweredAt.Add(ledger.KeptFor))
	case r.State == ledger.Redeemed:
		return !arrived.Before(r.AnswerValidUntil)
	case r.State == ledger.Settled:
		return r.SendingBack != nil || r.DueBack != ""
	}
	return false
}

// moveMoney records that the money of an authorization moves. movedByUs says that a
// facilitator to which we sent the authorization moved the money. toldUncharged says that the
// payer was told, after the authorization was sent, that nothing is charged. If movedByUs is
// true, moveMoney notes a violation in two cases:
//
//   - toldUncharged is true, and no facilitator has lied about this authorization;
//   - another payment for the same purchase was charged and was not yet over. This is no
//     violation if there is no node and a facilitator has lied about either payment.
func (x *explorer) moveMoney(s *state, auth int, movedByUs, toldUncharged bool) {
	c := &s.chain[auth]
	c.truth, c.spentAt, c.movedByUs = truthMoved, s.now, movedByUs
	if !movedByUs {
		return
	}
	if toldUncharged && !c.liedAbout {
		x.noteViolation("told that nothing is charged, and charged")
	}
	if x.world.separatePurchases {
		return
	}
	for other := range paymentCount {
		o := s.chain[other]
		chargedTwice := other != auth && o.truth == truthMoved && o.movedByUs
		over := c.overOwners&(1<<other) != 0 || o.overOwners&(1<<auth) != 0
		mayBeLie := !x.world.hasNode && (o.liedAbout || c.liedAbout)
		if chargedTwice && !over && !mayBeLie {
			x.noteViolation("charged twice for one purchase")
		}
	}
}

// checkSend checks that a payment which is about to reach a facilitator may be sent there.
func (x *explorer) checkSend(s *state, t task, c *call) {
	auth := c.auth
	r, now := x.payment(s, auth), x.clock(s)
	if r == nil {
		x.noteViolation("sent without a record")
		return
	}
	executable := s.chain[auth].truth == truthUnused && now.Before(x.windowEnd(s, auth))
	p, opened := x.records[s.recs[purchaseRecord]].(ledger.Purchase)
	doubtAlone := !x.world.hasNode && r.Doubt // without a node, the doubt can be resolved only by sending the payment again
	name := primaryName
	if c.toSecond {
		name = fallbackName
	}
	x.noteViolations(map[string]bool{
		"asked, and not named on record":                        x.world.twoFacilitators && !slices.Contains(r.Asked, name),
		"sent for a purchase that is made with another payment": executable && !x.world.separatePurchases && (!opened || p.Owner != r.Key),
		"a superseded payment was sent":                         executable && r.State == ledger.Superseded,
		"sent although the check refuses":                       t.checkRefuses && !doubtAlone,
		"sent from another endpoint":                            r.Endpoint != endpointName(t.endpoint),
	})
}

// checkRun notes a violation if two processes whose leases have not ended do the work for the
// same payment at once. It also notes a violation if a process begins the work for a payment
// whose refund was begun.
func (x *explorer) checkRun(s *state, slot int, n *node) {
	auth := n.jobCall.auth
	for other, p := range s.procs {
		if p.node == 0 || other == slot {
			continue
		}
		o := x.nodes[p.node]
		live := func(n *node) bool { return x.instants[n.task.begunAt].Add(exploredLease).After(x.clock(s)) }
		if o.jobCall != nil && o.jobCall.auth == auth && live(n) && live(o) {
			x.noteViolation("two runs for one payment at once")
		}
	}
	if r := x.payment(s, auth); n.parent.jobCall == nil && r != nil && r.SendingBack != nil {
		x.noteViolation("worked for a payment whose refund was begun")
	}
}

// countsAsPaid reports whether the Gate may treat an authorization as paid. If there is no node
// to ask, this includes an authorization that the payer has cancelled, because a facilitator
// then says only that the nonce is used.
func (x *explorer) countsAsPaid(c chainState) bool {
	return c.truth == truthMoved || !x.world.hasNode && c.truth == truthCancelled
}
