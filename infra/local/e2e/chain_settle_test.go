package e2e

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/fault"
)

// What the reference facilitator says.
const (
	saysPending   = "settlement_pending"
	saysUsed      = "invalid_exact_evm_nonce_already_used"
	saysFailed    = "invalid_exact_evm_transaction_failed"
	saysBalance   = "invalid_exact_evm_insufficient_balance"
	saysSignature = "invalid_exact_evm_signature"
	saysExpired   = "invalid_exact_evm_payload_authorization_valid_before"
	saysSettled   = "settled"
)

// shortConfirm makes a facilitator give up on a receipt early, so that a
// settlement in an unmined block is pending.
const shortConfirm = 700 * time.Millisecond

// chainScenario is one payer's story on a real chain.
type chainScenario struct {
	name    string
	options chainOptions
	play    func(testing.TB, *chainWorld)
}

// TestChain settles with the reference facilitator on a real Ethereum node:
// whatever happens between the three, the price moves once when the payer is
// answered, and not at all when he is refused.
//
// The longest story waits for a minute to pass.
func TestChain(t *testing.T) {
	t.Parallel()
	verifyOnly(t, "needs Node and an Ethereum node")
	testbed.Node(t, facilitatorDir)
	l := newLab(t)
	for _, s := range slices.Concat(settleStories(), refusalStories(), outageStories(), walletStories(), fallbackStories()) {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			fairly(t, func(tb testing.TB, p *pace) {
				begun := time.Now()
				w := openChain(tb, p, l, s.options)
				opened := time.Since(begun)
				s.play(tb, w)
				tb.Logf("up in %.1f s, played in %.1f s", opened.Seconds(), (time.Since(begun) - opened).Seconds())
			})
		})
	}
}

func settleStories() []chainScenario {
	brief := chainOptions{confirm: shortConfirm}
	return []chainScenario{
		{"somebody else submitted the payment long before it came", chainOptions{}, playLongBefore}, // the longest, so the first
		{"paid", chainOptions{}, playPaid},
		{"the same payment many times at once", chainOptions{}, playAtOnce},
		{"the block is late", brief, playLateBlock},
		{"the facilitator is killed after the broadcast, and stays dead", chainOptions{direct: true}, func(t testing.TB, w *chainWorld) { playDeadFacilitator(t, w, false) }},
		{"the facilitator is killed after the broadcast, and comes back", chainOptions{direct: true}, func(t testing.TB, w *chainWorld) { playDeadFacilitator(t, w, true) }},
		{"the facilitator's answer is lost", chainOptions{}, playLostAnswer},
		{"somebody else submits the payment before the facilitator does", chainOptions{}, playThirdParty},
		{"somebody else submitted the payment just before it came", chainOptions{}, playJustBefore},
	}
}

func playPaid(t testing.TB, w *chainWorld) {
	p := w.payer()
	p.sign(0)
	p.send(p.answer())
	p.books(1)
	p.send(p.answer().replayed())
	p.books(1)
	p.lookups(1)
	settles, verifies := w.relay.asked()
	is(t, "calls to /settle", settles, 1)
	is(t, "calls to /verify", verifies, 0)
	w.balanced("1 answer sold for $0.005, $0.005 received in 1 payment; no differences")
}

// playAtOnce: the copies that come while one is being settled are told to wait,
// and everybody gets the same answer.
func playAtOnce(t testing.TB, w *chainWorld) {
	p := w.payer()
	p.sign(0)
	type reply struct {
		exchange
		err error
	}
	g := newGate()
	w.relay.hold(g)
	const copies = 8
	replies := make(chan reply, copies)
	for range copies {
		go func() {
			e, err := p.get()
			replies <- reply{e, err}
		}()
	}
	g.await(t, "settle")
	for range copies - 1 { // all but the one at the gate
		r := <-replies
		if r.err != nil {
			t.Fatal(r.err)
		}
		p.check(r.exchange, fails(fault.PaymentInProgress))
	}
	g.open()
	r := <-replies
	if r.err != nil {
		t.Fatal(r.err)
	}
	p.check(r.exchange, p.answer())
	p.send(p.answer().replayed())
	p.books(1)
	p.lookups(1)
	settles, _ := w.relay.asked()
	is(t, "calls to /settle", settles, 1)
}

// playLateBlock: a transaction waits for its block. The service asks once more
// by itself, in the same bytes, and then has the payer come back.
func playLateBlock(t testing.TB, w *chainWorld) {
	p := w.payer()
	w.node.SetAutomine(t, false)
	p.sign(0)
	p.wait(p.send(fails(fault.SettlementUncertain)))
	said(t, w, saysPending, saysPending)
	p.wait(p.send(fails(fault.SettlementUncertain)))
	p.books(0)
	w.awaitPool(1)
	w.node.Mine(t, 1)
	p.send(p.answer())
	said(t, w, saysPending, saysPending, saysPending, saysPending, saysSettled)
	w.relay.identical(t)
	p.books(1)
	p.lookups(1)
	w.node.SetAutomine(t, true)
	p.send(p.answer().replayed())
	p.books(1)
}

// said checks what the facilitator came to, call by call.
func said(t testing.TB, w *chainWorld, verdicts ...string) {
	t.Helper()
	if d := cmp.Diff(verdicts, w.relay.said()); d != "" {
		t.Errorf("the facilitator's verdicts (-want +got): %s", d)
	}
}

// playDeadFacilitator ends the facilitator with kill -9 when its transaction
// is on its way and it waits for the receipt. The chain alone proves the
// payment, whether the facilitator answers again or not.
func playDeadFacilitator(t testing.TB, w *chainWorld, back bool) {
	p := w.payer()
	w.node.SetAutomine(t, false)
	p.sign(0)
	type reply struct {
		exchange
		err error
	}
	got := make(chan reply, 1)
	go func() {
		e, err := p.get()
		got <- reply{e, err}
	}()
	w.awaitPool(1)
	w.facilitator.Kill()
	r := <-got
	if r.err != nil {
		t.Fatal(r.err)
	}
	p.check(r.exchange, fails(fault.SettlementUncertain))
	p.books(0)
	if back {
		// New process, new account, no memory of the transaction.
		u, err := url.Parse(w.facilitator.URL)
		if err != nil {
			t.Fatal(err)
		}
		w.startFacilitator(u.Port())
	}
	p.wait(r.exchange)
	w.node.Mine(t, 1)
	w.node.SetAutomine(t, true)
	p.send(p.answer())
	p.books(1)
	p.send(p.answer().replayed())
	p.books(1)
	p.lookups(1)
}

// playLostAnswer: the money has moved and the facilitator's answer never
// arrives. The chain knows, so the payer does not even notice.
func playLostAnswer(t testing.TB, w *chainWorld) {
	p := w.payer()
	w.relay.lose(true)
	p.sign(0)
	p.send(p.answer())
	said(t, w, saysSettled)
	p.books(1)
	p.send(p.answer().replayed())
	p.books(1)
	settles, _ := w.relay.asked()
	is(t, "calls to /settle", settles, 1)
}

// playThirdParty: whoever sees the signature may submit it. The payer has paid
// all the same.
func playThirdParty(t testing.TB, w *chainWorld) {
	p := w.payer()
	g := newGate()
	w.relay.hold(g)
	p.sign(0)
	type reply struct {
		exchange
		err error
	}
	got := make(chan reply, 1)
	go func() {
		e, err := p.get()
		got <- reply{e, err}
	}()
	g.await(t, "settle")
	tx := w.node.Transfer(t, p.signed)
	g.open()
	r := <-got
	if r.err != nil {
		t.Fatal(r.err)
	}
	p.check(r.exchange, p.answer())
	said(t, w, saysUsed)
	is(t, "the transfer", p.transfer(), tx.Hash)
	p.books(1)
	p.send(p.answer().replayed())
}

func playJustBefore(t testing.TB, w *chainWorld) {
	p := w.payer()
	p.sign(0)
	w.node.Transfer(t, p.signed)
	p.send(p.answer())
	said(t, w, saysUsed)
	p.books(1)
	p.send(p.answer().replayed())
}

// playLongBefore: a transfer from before the minute that clocks may differ by
// has paid for something else.
func playLongBefore(t testing.TB, w *chainWorld) {
	p := w.payer()
	p.sign(0)
	w.node.Transfer(t, p.signed)
	w.pass(62 * time.Second) // block times are whole seconds
	w.node.Mine(t, 1)        // the chain goes on
	const before = "authorization was used before it reached us"
	p.sendDisproved(before, saysUsed)
	p.sendDisproved(before, before) // from the record: nobody is asked again
	p.books(1)                      // the payer's own transfer
	p.lookups(0)

	p.sign(0)
	p.send(p.answer())
	p.books(2)
}

// awaitPool waits until that many transactions wait for a block.
func (w *chainWorld) awaitPool(n int) {
	w.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); <-tick.C {
		var pool struct{ Pending string }
		if err := json.Unmarshal(w.node.Call(w, "txpool_status"), &pool); err != nil {
			w.Fatal(err)
		}
		if pool.Pending == fmt.Sprintf("0x%x", n) {
			return
		}
	}
	w.Fatalf("there are not %d transactions on their way", n)
}
