package e2e

import (
	"fmt"
	"net/http"
	"time"

	"github.com/hostfacts/hostfacts/infra/chaintest"
	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/fault"
)

const wasCancelled = "authorization was cancelled"

// chainRefusals are the cases in which the payment can be refused.
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
				p.sendTwice(wasCancelled, saysUsed)
				p.buy() // with another nonce
			},
		},
		{
			// The payer's cancellation pays more for its place in the block than the
			// facilitator's transaction, which fails.
			name: "cancelled while the transaction waits for its block", options: brief,
			said: []string{saysPending, saysPending, saysFailed}, play: playOvertaken,
		},
		{
			// Nothing was broadcast, but nobody could know.
			name: "cancelled while in doubt", said: []string{saysFailed, saysUsed},
			play: func(p *payer) {
				p.doubt(0)
				p.node.Pause(p, false)
				p.node.Cancel(p, p.client.Wallet, p.signed.Authorization.Nonce)
				p.sendTwice(wasCancelled, saysUsed)
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
			name: "no money at first", who: (*chainWorld).pauper, said: []string{saysBalance, saysSettled}, play: playPauper,
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

func playOvertaken(p *payer) {
	p.node.SetAutomine(p, false)
	p.sign(0)
	p.wait(p.send(fails(fault.SettlementUncertain)))
	p.awaitPool(1)
	p.node.Call(p, "eth_sendTransaction", map[string]string{
		"from": chaintest.Account(8), "to": chaintest.USDC, "gas": "0x100000", "gasPrice": "0x174876e800",
		"data": fmt.Sprintf("0x%x", chaintest.CancelCall(p, p.client.Wallet, p.signed.Authorization.Nonce)),
	})
	p.awaitPool(2)
	p.node.Mine(p, 1)
	var block struct{ Transactions []string }
	p.ask(&block, "eth_getBlockByNumber", "latest", false)
	if len(block.Transactions) != 2 {
		p.Fatalf("the block has transactions %v, want both", block.Transactions)
	}
	for i, hash := range block.Transactions {
		is(p, fmt.Sprintf("transaction %d of the block succeeded", i), p.node.Receipt(p, hash).Success, i == 0)
	}
	p.sendTwice(wasCancelled, saysFailed)
}

// playPauper: a refusal that is certain costs nothing, and the same signature can be
// used when the money is there.
func playPauper(p *payer) {
	p.mint(dnsPrice(p) - 1)
	p.sign(0)
	for range 2 { // the second time from the record: nobody is asked within a second
		p.send(declined(saysBalance))
	}
	p.books(0)
	p.mint(1)
	p.sendUntil(p.answer(), func(e exchange) bool { return e.status != http.StatusPaymentRequired })
	p.signAnew() // the money is spent, and none is needed: it is the same purchase
}

// chainOutages are the cases in which the service cannot look at the chain.
func chainOutages() []chainCase {
	return []chainCase{
		{
			// "Already used" alone is neither a proof nor a refusal.
			name: "the service cannot see the chain, and the payer comes back",
			said: []string{saysSettled, saysUsed, saysUsed},
			play: func(p *payer) {
				p.blind()
				p.wait(p.send(fails(fault.SettlementUncertain)))
				is(p, "lookups", p.lab.dns.lookups(p.name), 0)
				p.rpc.mend()
				p.send(p.answer())
			},
		},
		{
			name: "the service cannot see the chain, and it is reconciled", said: []string{saysSettled}, play: playReconciled,
			books: "1 answer sold for $0.005, $0.005 received in 1 payment; no differences",
		},
		{
			// The reference facilitator finds fault with every signature when it cannot
			// read the chain.
			name: "the node dies", said: []string{saysSettled, saysSignature, saysSignature, saysSignature, saysSignature},
			play: playNodeDies, dead: true,
		},
	}
}

// blind brings a payment into doubt that has moved: the facilitator's answer is
// lost, and the node cannot be asked.
func (p *payer) blind() {
	p.Helper()
	p.sign(0)
	p.rpc.cut()
	p.relay.deaf.Store(true)
	p.wait(p.send(fails(fault.SettlementUncertain)))
	p.relay.deaf.Store(false)
	p.books(1)
}

// playReconciled: make reconcile finds the payment while the service is stopped,
// and when it runs again the payer gets his answer without another settlement.
func playReconciled(p *payer) {
	p.blind()
	p.service.End(p)
	for _, run := range []struct {
		mend  bool
		lines []string
	}{
		{false, []string{"in doubt  1 of 1 listed\n          1 no evidence\n", "owed      0, refunds due: 0 (make owed lists them)\n"}},
		{true, []string{"in doubt  1 of 1 listed\n          1 found paid\n", "owed      1, refunds due: 0 (make owed lists them)\n"}},
		{true, []string{"in doubt  0 of 0 listed\n", "owed      1, refunds due: 0 (make owed lists them)\n"}},
	} {
		if run.mend {
			p.rpc.mend()
		}
		mentions(p, "reconcile", string(testbed.Run(p, p.operate("reconcile"))), run.lines...)
	}
	p.startService(p.relay.url)
	p.send(p.answer())
}

// playNodeDies: nobody can say any more, so nobody says it. The payment stays in
// doubt and is never refused.
func playNodeDies(p *payer) {
	late := p.payer()
	late.sign(0)
	p.blind()
	p.node.Kill()
	for range 2 {
		p.wait(p.send(fails(fault.SettlementUncertain)))
	}
	p.rpc.mend() // and nobody behind it
	p.send(fails(fault.SettlementUncertain))
	// What a signature without fault cannot decide in doubt is a refusal before.
	late.send(declined(saysSignature))
	is(late, "lookups of "+late.name, late.lab.dns.lookups(late.name), 0)
}
