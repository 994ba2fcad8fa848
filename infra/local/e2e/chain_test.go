package e2e

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/infra/testbed"
)

// What the reference facilitator says.
const (
	saysPending = "settlement_pending"
	saysUsed    = "invalid_exact_evm_nonce_already_used"
	saysSettled = "settled"
)

// brief makes a facilitator give up on a receipt early, so that a settlement in an
// unmined block is pending.
var brief = chainOptions{confirm: 700 * time.Millisecond}

// chainCase is one payer's story on a real chain. However it goes, the price has
// moved once for each answer that he got, and not at all when he was refused; each
// answer is looked up once, and the last one is replayed at the end.
type chainCase struct {
	name    string
	options chainOptions
	play    func(*payer)
	said    []string                 // the results of the calls to /settle, in order; unknown without a relay
	who     func(*chainWorld) *payer // nil is a payer with money
}

// TestChain settles with the reference facilitator on a real Ethereum node, whatever
// happens between the three. What follows from each verdict of the chain, such as that an
// authorization was cancelled or has expired, and from each word of the facilitator, is in
// the tests of pkg/x402.
func TestChain(t *testing.T) {
	t.Parallel()
	verifyOnly(t, "needs Node and an Ethereum node")
	testbed.Node(t, facilitatorDir)
	l := newLab(t)
	for _, c := range chainCases() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			fairly(t, func(tb testing.TB, p *pace) { c.run(tb, p, l) })
		})
	}
}

func (c chainCase) run(t testing.TB, tempo *pace, l *lab) {
	w := openChain(t, tempo, l, c.options)
	if c.who == nil {
		c.who = (*chainWorld).payer
	}
	p := c.who(w)
	c.play(p)
	if p.first.Status == http.StatusOK {
		p.pays(p.answer().replayed())
	}
	if w.relay != nil {
		if d := cmp.Diff(c.said, w.heard()); d != "" {
			t.Errorf("the facilitator's verdicts (-want +got): %s", d)
		}
	}
	p.books(p.answers)
	is(t, "lookups of "+p.name, l.dns.lookups(p.name), p.answers)
}

func chainCases() []chainCase {
	return []chainCase{
		{name: "paid", said: []string{saysSettled}, play: (*payer).buy},
		{
			// A transaction waits for its block. The service asks once more by
			// itself, and then has the payer come back.
			name: "the block is late", options: brief,
			said: []string{saysPending, saysPending, saysPending, saysPending, saysSettled},
			play: func(p *payer) {
				p.w.node.SetAutomine(p, false)
				p.sign()
				p.uncertain()
				p.uncertain()
				p.books(0)
				p.w.awaitPool(1)
				p.w.node.Mine(p, 1)
				p.pays(p.answer())
				p.w.node.SetAutomine(p, true)
			},
		},
		{
			// The chain knows, so the payer does not even notice.
			name: "the facilitator's answer is lost", said: []string{saysSettled},
			play: func(p *payer) {
				p.w.deaf()
				p.buy()
			},
		},
		{
			// Anybody who sees the signature may submit it. The payer has paid all the same.
			name: "somebody else submitted the payment just before it came", said: []string{saysUsed},
			play: func(p *payer) {
				p.sign()
				_, s := signedBy(p.header)
				p.w.node.Transfer(p, s)
				p.pays(p.answer())
			},
		},
		{
			// Nobody but the chain can judge the signature, so the facilitator is
			// asked before anything is claimed.
			name: "a contract pays", who: (*chainWorld).contract, said: []string{saysSettled},
			play: func(p *payer) {
				p.buy()
				p.pays(p.answer().replayed()) // nobody is asked
				p.prefix = []byte{2}          // of somebody who does not own the account
				p.sign()
				p.pays(refused("signature is not the payer's"))
			},
		},
		{
			name:    "one of two facilitators is killed at every point of a settlement",
			options: chainOptions{fallback: true}, play: playKilledEverywhere,
		},
	}
}

// playKilledEverywhere ends the first facilitator before and after each of the
// calls to the node that one settlement makes. Whatever it has done by then, the
// payer gets one answer, at once, for one transfer: what was broadcast is found on
// the chain, and what was not is settled by the second.
func playKilledEverywhere(p *payer) {
	p.mint(100 * dnsPrice())
	points, senders := 0, map[string]int{}
	buy := func() {
		p.buy()
		var tx struct{ From string }
		p.w.ask(&tx, "eth_getTransactionByHash", p.transfer())
		senders[tx.From]++
		p.pays(p.answer().replayed())
		p.books(p.answers)
	}
	for _, how := range []mishap{killedBefore, killedAfter} {
		for point := 1; ; point++ {
			p.w.toNode.kill = p.w.facilitator.Kill
			p.w.toNode.arm(callNode, append(make([]mishap, point-1), how)...)
			buy()
			if p.w.toNode.left() > 0 {
				break // the settlement makes fewer
			}
			points++
			p.w.startFacilitator(must(url.Parse(p.w.facilitator.URL)).Port())
			buy() // the first one is asked again, and its breaker stays closed
		}
	}
	// Every process of the first one has another account.
	byFallback := slices.Max(slices.Collect(maps.Values(senders)))
	if points < 6 || byFallback < 3 || len(senders) < 3 {
		p.Errorf("killed at %d points, settled by %v", points, senders)
	}
	p.Logf("killed at %d points, %d payments, %d of them settled by the second", points, p.answers, byFallback)
}
