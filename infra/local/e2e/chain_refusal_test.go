package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/chaintest"
	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

func refusalStories() []chainScenario {
	return []chainScenario{
		{"the token is paused", chainOptions{}, playPaused},
		{"cancelled before the first attempt", chainOptions{}, playCancelled},
		{"cancelled while the transaction waits for its block", chainOptions{confirm: shortConfirm}, playOvertaken},
		{"cancelled while in doubt", chainOptions{}, playCancelledInDoubt},
		{"expired while in doubt", chainOptions{}, playExpired},
		{"no money at first", chainOptions{}, playPauper},
	}
}

// playPaused: the facilitator's word for a token that takes no transfers does
// not exclude a broadcast, so the payment is in doubt until it is proved.
func playPaused(t testing.TB, w *chainWorld) {
	p := w.payer()
	w.node.Pause(t, true)
	p.sign(0)
	p.wait(p.send(fails(fault.SettlementUncertain)))
	p.send(fails(fault.SettlementUncertain))
	said(t, w, saysFailed, saysFailed)
	p.books(0)
	w.node.Pause(t, false)
	p.send(p.answer())
	said(t, w, saysFailed, saysFailed, saysSettled)
	p.books(1)
	p.send(p.answer().replayed())
	p.lookups(1)
}

// playCancelled: the payer takes the authorization back before it is used.
func playCancelled(t testing.TB, w *chainWorld) {
	p := w.payer()
	p.sign(0)
	w.node.Cancel(t, p.client.Wallet, p.signed.Authorization.Nonce)
	const cancelled = "authorization was cancelled"
	p.sendDisproved(cancelled, saysUsed)
	p.sendDisproved(cancelled, cancelled) // from the record: nobody is asked again
	said(t, w, saysUsed)
	p.books(0)
	p.lookups(0)

	p.sign(0) // another nonce
	p.send(p.answer())
	p.books(1)
}

// playOvertaken: the payer's cancellation pays more for its place in the block
// than the facilitator's transaction, which fails.
func playOvertaken(t testing.TB, w *chainWorld) {
	p := w.payer()
	w.node.SetAutomine(t, false)
	p.sign(0)
	p.wait(p.send(fails(fault.SettlementUncertain)))
	w.awaitPool(1)
	w.node.Call(t, "eth_sendTransaction", map[string]string{
		"from": chaintest.Account(8), "to": chaintest.USDC, "gas": "0x100000", "gasPrice": "0x174876e800",
		"data": fmt.Sprintf("0x%x", chaintest.CancelCall(t, p.client.Wallet, p.signed.Authorization.Nonce)),
	})
	w.awaitPool(2)
	w.node.Mine(t, 1)
	var block struct{ Transactions []string }
	if err := json.Unmarshal(w.node.Call(t, "eth_getBlockByNumber", "latest", false), &block); err != nil || len(block.Transactions) != 2 {
		t.Fatalf("the block has transactions %v (%v), want both", block.Transactions, err)
	}
	for i, hash := range block.Transactions {
		is(t, fmt.Sprintf("transaction %d of the block succeeded", i), w.node.Receipt(t, hash).Success, i == 0)
	}
	const cancelled = "authorization was cancelled"
	p.sendDisproved(cancelled, saysFailed)
	p.sendDisproved(cancelled, cancelled) // from the record: nobody is asked again
	said(t, w, saysPending, saysPending, saysFailed)
	p.books(0)
	p.lookups(0)
}

// playCancelledInDoubt: nothing was broadcast, but nobody could know.
func playCancelledInDoubt(t testing.TB, w *chainWorld) {
	p := w.payer()
	w.node.Pause(t, true)
	p.sign(0)
	p.wait(p.send(fails(fault.SettlementUncertain)))
	w.node.Pause(t, false)
	w.node.Cancel(t, p.client.Wallet, p.signed.Authorization.Nonce)
	p.sendDisproved("authorization was cancelled", saysUsed)
	p.books(0)
	p.lookups(0)
}

// playExpired: once a safe block is past its end, an unused authorization is
// refused for good; a moment earlier it is not.
func playExpired(t testing.TB, w *chainWorld) {
	p := w.payer()
	w.node.Pause(t, true)
	p.sign(90 * time.Second)
	p.wait(p.send(fails(fault.SettlementUncertain)))
	w.node.Pause(t, false)
	w.node.IncreaseTime(t, 120*time.Second)
	// Past the end at the latest block, not at the safe one.
	p.wait(p.send(fails(fault.SettlementUncertain)))
	said(t, w, saysFailed, saysExpired)
	w.node.Mine(t, 33)
	p.sendDisproved("authorization expired unused", saysExpired)
	p.books(0)
	p.lookups(0)
}

// playPauper: a refusal that is certain costs nothing, and the same signature
// can be used when the money is there.
func playPauper(t testing.TB, w *chainWorld) {
	p := w.pauper()
	p.mint(dnsPrice(t) - 1)
	p.sign(0)
	for range 2 { // the second time from the record: nobody is asked within a second
		p.send(declined(saysBalance))
	}
	p.books(0)
	p.lookups(0)
	p.mint(1)
	p.sendUntil(p.answer(), func(e exchange) bool { return e.status != http.StatusPaymentRequired })
	said(t, w, saysBalance, saysSettled)
	p.books(1)
	p.send(p.answer().replayed())

	p.sign(0) // the money is spent, and none is needed: it is the same purchase
	if e, err := p.get(); err != nil || e.status != http.StatusOK || e.header.Get(x402.HeaderReplayed) == "" {
		p.Errorf("signed anew: %s, %v", e, err)
	}
	p.books(1)
}
