package x402_test

import (
	"slices"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

func (x *explorer) standing(r *ledger.Payment, s *state) ledger.Standing {
	return ledger.Stand(r, ledger.View{Now: x.clock(s), Node: x.world.node})
}

func (x *explorer) meaning(r *ledger.Payment, s *state) ledger.Meaning {
	return x.rules.Meanings[x.standing(r, s)]
}

// isOver reports whether a payment is paid, but gives a request no right to an answer. Another
// payment of the purchase may then be charged. This is the case if the payment was made at
// another endpoint, if it is refunded or a refund is begun or due, or if its answer was given
// and the request arrived when that answer was no longer kept or valid.
func (x *explorer) isOver(r *ledger.Payment, endpoint int8, arrived time.Time) bool {
	switch {
	case r == nil:
		return false
	case r.Paid() && r.Endpoint != endpointName(endpoint):
		return true
	case r.State == ledger.Refunded:
		return true
	case r.State == ledger.Redeemed && x.world.keyed:
		return !arrived.Before(r.AnsweredAt.Add(ledger.KeptFor))
	case r.State == ledger.Redeemed:
		return !arrived.Before(r.AnswerValidUntil)
	case r.State == ledger.Settled:
		return r.SendingBack != nil || r.DueBack != ""
	}
	return false
}

// move records that the money of an authorization moves. byUs says that a facilitator to which
// we sent the authorization moved the money. stale says that the payer was told, after the
// authorization was sent, that nothing is charged. If byUs is true, move notes a violation if
// stale is true, or if another payment for the same purchase was charged and was not yet over.
// If a facilitator has lied about a payment, some of these cases are no violations.
func (x *explorer) move(s *state, auth int, byUs, stale bool) {
	c := &s.chain[auth]
	c.truth, c.at, c.byUs = truthMoved, s.now, byUs
	if !byUs {
		return
	}
	if stale && !c.lied {
		x.violated("told that nothing is charged, and charged")
	}
	if x.world.separate {
		return
	}
	for other := range payments {
		o := s.chain[other]
		twice := other != auth && o.truth == truthMoved && o.byUs
		over := c.over&(1<<other) != 0 || o.over&(1<<auth) != 0
		lied := !x.world.node && (o.lied || c.lied)
		if twice && !over && !lied {
			x.violated("charged twice for one purchase")
		}
	}
}

// checkSend checks that a payment which is about to reach a facilitator may be sent there.
func (x *explorer) checkSend(s *state, t task, c *call) {
	auth := c.auth
	r, now := x.payment(s, auth), x.clock(s)
	if r == nil {
		x.violated("sent without a record")
		return
	}
	executable := s.chain[auth].truth == truthUnused && now.Before(x.endOf(s, auth))
	p, opened := x.records[s.recs[purchase]].(ledger.Purchase)
	doubtAlone := !x.world.node && r.Doubt // without a node, the doubt can be resolved only by sending the payment again
	name := primaryName
	if c.second {
		name = fallbackName
	}
	x.check(map[string]bool{
		"asked, and not named on record":                        x.world.twoFacilitators && !slices.Contains(r.Asked, name),
		"sent for a purchase that is made with another payment": executable && !x.world.separate && (!opened || p.Owner != r.Key),
		"a superseded payment was sent":                         executable && r.State == ledger.Superseded,
		"sent although the check refuses":                       t.refuses && !doubtAlone,
		"sent from another endpoint":                            r.Endpoint != endpointName(t.endpoint),
	})
}

// checkRun notes a violation if two processes whose leases have not ended do the work for the
// same payment at once. It also notes a violation if a process begins the work for a payment
// whose refund was begun.
func (x *explorer) checkRun(s *state, slot int, n *node) {
	auth := n.job.auth
	for other, p := range s.procs {
		if p.node == 0 || other == slot {
			continue
		}
		o := x.nodes[p.node]
		live := func(n *node) bool { return x.instants[n.task.at].Add(exploredLease).After(x.clock(s)) }
		if o.job != nil && o.job.auth == auth && live(n) && live(o) {
			x.violated("two runs for one payment at once")
		}
	}
	if r := x.payment(s, auth); n.parent.job == nil && r != nil && r.SendingBack != nil {
		x.violated("worked for a payment whose refund was begun")
	}
}

// countsAsPaid reports whether the Gate may treat an authorization as paid. If there is no node
// to ask, this includes an authorization that the payer has cancelled, because a facilitator
// then says only that the nonce is used.
func (x *explorer) countsAsPaid(c onChain) bool {
	return c.truth == truthMoved || !x.world.node && c.truth == truthCancelled
}
