package e2e

import (
	"time"

	"github.com/hostfacts/hostfacts/pkg/fault"
)

// chainRefusals are the cases in which the payment can be refused, or its fate is not
// seen.
func chainRefusals() []chainCase {
	return []chainCase{
		{
			// The facilitator's word for a token that takes no transfers does not
			// exclude a broadcast, so the payment is in doubt until it is proved.
			name: "the token is paused", said: []string{saysFailed, saysFailed, saysSettled},
			play: func(p *payer) {
				p.doubt(0)
				p.send(fails(fault.SettlementUncertain))
				p.books(0)
				p.node.Pause(p, false)
				p.send(p.answer())
			},
		},
		{
			name: "cancelled before the first attempt", said: []string{saysUsed, saysSettled},
			play: func(p *payer) {
				p.sign(0)
				p.node.Cancel(p, p.client.Wallet, p.signed.Authorization.Nonce)
				p.sendTwice("authorization was cancelled", saysUsed)
				p.buy() // with another nonce
			},
		},
		{
			// Once a safe block is past its end, an unused authorization is refused
			// for good; a moment earlier it is not.
			name: "expired while in doubt", said: []string{saysFailed, saysExpired, saysExpired},
			play: func(p *payer) {
				p.doubt(90 * time.Second)
				p.node.Pause(p, false)
				p.node.IncreaseTime(p, 120*time.Second)
				// Past the end at the latest block, not at the safe one.
				p.wait(p.send(fails(fault.SettlementUncertain)))
				p.node.Mine(p, 33)
				p.sendTwice("authorization expired unused", saysExpired)
			},
		},
		{
			name: "no money", who: (*chainWorld).pauper, said: []string{saysBalance},
			play: func(p *payer) {
				p.sign(0)
				p.send(declined(saysBalance))
			},
		},
		{
			// The facilitator's answer is lost, and the node cannot be asked. "Already
			// used" alone is neither a proof nor a refusal.
			name: "the service cannot see the chain, and the payer comes back",
			said: []string{saysSettled, saysUsed, saysUsed},
			play: func(p *payer) {
				p.sign(0)
				p.rpc.cut()
				p.relay.deaf.Store(true)
				p.wait(p.send(fails(fault.SettlementUncertain)))
				p.relay.deaf.Store(false)
				p.books(1)
				p.wait(p.send(fails(fault.SettlementUncertain)))
				is(p, "lookups", p.lab.dns.lookups(p.name), 0)
				p.rpc.mend()
				p.send(p.answer())
			},
		},
	}
}

// doubt brings a payment into doubt that has not moved: the token is paused.
func (p *payer) doubt(window time.Duration) {
	p.Helper()
	p.node.Pause(p, true)
	p.sign(window)
	p.wait(p.send(fails(fault.SettlementUncertain)))
}
