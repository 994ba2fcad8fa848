package e2e

import (
	"encoding/hex"
	"encoding/json"
	"maps"
	"math/big"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/infra/testbed/programs"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// chainCase is what one payer does on a real chain. In every case the payer must be charged
// once for each answer, and must not be charged for a refusal. Each answer must come from one
// lookup. If the last payment was answered, it is sent once more at the end, and must get the
// stored answer.
type chainCase struct {
	name string
	// confirmTime is the longest time for which the facilitator waits for the receipt of its
	// transaction.
	confirmTime time.Duration
	// hasFallback gives the service a second facilitator, and turns off its duplicate window
	// (DUPLICATE_WINDOW_SECONDS=0). The case can then kill the first facilitator at any call
	// that this facilitator makes to the node.
	hasFallback   bool
	play          func(*payer)
	settleResults []string // the results of the calls to /settle, in order; not checked if there is a fallback
}

// TestChain settles payments with the reference facilitator on a real Ethereum node, with
// failures between the service, the facilitator and the node. Each case must end as the
// comment of chainCase says. The tests of pkg/x402 cover each state of an authorization on the
// chain, such as cancelled or expired, and each answer of a facilitator.
func TestChain(t *testing.T) {
	t.Parallel()
	skipInShort(t, "needs Node and an Ethereum node")
	testbed.Node(t, "testdata/facilitator")
	l := newLab(t)
	const patient = 30 * time.Second // longer than any case
	for _, c := range []chainCase{
		{name: "paid", confirmTime: patient, settleResults: []string{"settled"}, play: (*payer).buy},
		{
			// The transaction waits for its block. For each of the first two requests, the
			// service calls /settle twice, and then tells the payer to come back. After the
			// block, the third request is answered.
			name: "the block is late", confirmTime: 700 * time.Millisecond,
			settleResults: []string{"settlement_pending", "settlement_pending", "settlement_pending", "settlement_pending", "settled"},
			play: func(p *payer) {
				p.node.SetAutomine(p, false)
				p.sign()
				p.payWithoutConfirmation()
				p.payWithoutConfirmation()
				p.checkBalances(0)
				p.node.Mine(p, 1)
				p.payAndCheck(p.wantResult())
				p.node.SetAutomine(p, true)
			},
		},
		{
			// The service finds the transfer on the chain, and answers the payer as if nothing
			// had been lost.
			name: "the facilitator's answer is lost", confirmTime: patient, settleResults: []string{"settled"},
			play: func(p *payer) {
				p.mu.Lock()
				p.answersToDrop = 10
				p.mu.Unlock()
				p.buy()
			},
		},
		{
			// Anybody who sees the signature can submit it to the chain. The service must
			// accept this transfer as the payment.
			name: "somebody else submitted the payment just before it came", confirmTime: patient, settleResults: []string{"invalid_exact_evm_nonce_already_used"},
			play: func(p *payer) {
				p.sign()
				_, s := signedBy(p.paymentHeader)
				p.node.Transfer(p, s)
				p.payAndCheck(p.wantResult())
			},
		},
		{
			// Only the chain can check a contract's signature. Before the service claims the
			// payment in its ledger, it therefore asks the facilitator to verify the
			// signature.
			name: "a contract pays", confirmTime: patient, settleResults: []string{"settled"},
			play: func(p *payer) {
				p.becomeContract()
				p.buy()
				p.payAndCheck(p.wantResult().asReplay()) // the stored answer needs no call to the facilitator
				p.signaturePrefix = "0x02"               // from here on, the signatures are not those of the owner of the contract
				p.sign()
				p.payAndCheck(wantRefusal("signature is not the payer's"))
			},
		},
		{
			name:        "one of two facilitators is killed at every point of a settlement",
			confirmTime: patient, hasFallback: true, play: playKilledEverywhere,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			runFairly(t, func(tb testing.TB, tempo *testbed.Pace) {
				p := c.open(tb, tempo, l)
				c.play(p)
				if p.firstResult.Status == http.StatusOK {
					p.payAndCheck(p.wantResult().asReplay())
				}
				if !c.hasFallback {
					p.mu.Lock()
					d := cmp.Diff(c.settleResults, p.settleResults)
					p.mu.Unlock()
					if d != "" {
						p.Errorf("the facilitator's verdicts (-want +got): %s", d)
					}
				}
				p.checkBalances(p.resultCount)
				checkEqual(tb, "lookups of "+p.domain, l.dns.lookups(p.domain), p.resultCount)
			})
		})
	}
}

// playKilledEverywhere kills the first facilitator before and after each call that a settlement
// makes to the node. Each time, the payer must get one answer, at once, and be charged once. If
// the transaction was broadcast, the service finds it on the chain. Otherwise the second
// facilitator settles the payment.
func playKilledEverywhere(p *payer) {
	points, senders := 0, map[string]int{}
	buy := func() {
		p.buy()
		var tx struct{ From string }
		p.query(&tx, "eth_getTransactionByHash", p.transfer())
		senders[tx.From]++
		p.payAndCheck(p.wantResult().asReplay())
		p.checkBalances(p.resultCount)
	}
	for _, p.killBefore = range []bool{true, false} {
		for point := 1; ; point++ {
			p.killAt.Store(int64(point))
			buy()
			if p.killAt.Load() > 0 {
				break // no kill: this settlement has no call with this number, so every call has been tried
			}
			points++
			p.startFacilitator(testbed.Must(url.Parse(p.facilitator.URL)).Port())
			buy() // the first facilitator settles this payment, so the service's circuit breaker for that facilitator stays closed
		}
	}
	// Each process of the first facilitator has a new account, so the account with the most
	// transactions is the second facilitator's.
	byFallback := slices.Max(slices.Collect(maps.Values(senders)))
	if points < 6 || byFallback < 3 || len(senders) < 3 {
		p.Errorf("killed at %d points, settled by %v", points, senders)
	}
	p.Logf("killed at %d points, %d payments, %d of them settled by the second", points, p.resultCount, byFallback)
}

// payer pays in one case on a real chain. The service is the local runner, with an operator's
// settings for Base and without play money. Its Ethereum node has the token, and its
// facilitator uses the reference packages. A case can cut the connections between the runner,
// the node and the facilitator.
type payer struct {
	*run
	node             *testbed.Chain
	nodeURL          string // the URL at which a facilitator calls the node
	facilitator      *programs.Process
	payee            x402.Address
	confirmTime      time.Duration
	earlierTransfers int // the number of transfers before the current payment was signed

	mu            sync.Mutex
	settleResults []string // the results of the calls to /settle; not recorded with two facilitators
	answersToDrop int      // how many of the next answers from /settle to drop

	// killAt counts down the calls to the node. At the call with which the count reaches 0,
	// the first of two facilitators is killed. If killBefore is set, the node does not get
	// this call. Otherwise the facilitator is killed after the node has handled the call.
	killAt     atomic.Int64
	killBefore bool
}

// open starts the programs of a case, and returns its payer, who has money.
func (c chainCase) open(t testing.TB, tempo *testbed.Pace, l *lab) *payer {
	p := &payer{
		run: newRun(t, l, nil, tempo), confirmTime: c.confirmTime, payee: testbed.Must(x402.ParseAddress(l.terms.PayTo)), node: testbed.StartChain(t),
	}
	p.nodeURL, p.paymentTx = p.node.URL, p.transfer
	s := l.setup()
	s.env["RPC_URL"], s.env["NETWORK"] = p.node.URL, testbed.BaseNetwork
	p.startFacilitator("0")
	if c.hasFallback {
		s.env["FACILITATOR_FALLBACK_URL"], s.env["DUPLICATE_WINDOW_SECONDS"] = p.facilitator.URL, "0"
		p.nodeURL = testbed.Serve(t, testbed.Relay{To: testbed.ProxyTo(t, p.node.URL), Do: p.relayToNode})
		p.startFacilitator("0")
		s.env["FACILITATOR_URL"] = p.facilitator.URL
	} else {
		s.env["FACILITATOR_URL"] = testbed.Serve(t, testbed.Relay{To: testbed.ProxyTo(t, p.facilitator.URL), Do: p.relayToFacilitator})
	}
	p.deployment = openLocal(t, l, s)
	p.node.Mint(t, p.account, funds)
	return p
}

// startFacilitator runs the reference facilitator on a port, with a new account and without
// any memory of earlier payments.
func (p *payer) startFacilitator(port string) {
	cmd := exec.Command(testbed.Must(exec.LookPath("node")), "facilitator.mjs")
	cmd.Dir = "testdata/facilitator"
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "RPC=" + p.nodeURL, "NETWORK=" + testbed.BaseNetwork, "PORT=" + port,
		"CONFIRM_MS=" + strconv.FormatInt(p.confirmTime.Milliseconds(), 10),
	}
	p.facilitator = programs.StartPeer(p, cmd, "")
}

// relayToFacilitator passes the service's requests on to the facilitator, and records the
// results of settlements. The field answersToDrop says how many of the next answers from
// /settle it drops.
func (p *payer) relayToFacilitator(r *testbed.Relayed) {
	answer := r.Answer()
	if r.URL.Path == "/settle" {
		p.mu.Lock()
		defer p.mu.Unlock()
		var v x402.SettleResponse
		testbed.Check(json.Unmarshal(answer.Body.Bytes(), &v))
		if v.Success {
			v.ErrorReason = "settled"
		}
		p.settleResults = append(p.settleResults, v.ErrorReason)
		if p.answersToDrop--; p.answersToDrop >= 0 {
			r.Drop()
			return
		}
	}
	r.Send(answer, answer.Body.Len())
}

// relayToNode passes a call of the first facilitator on to the node. At the call that killAt
// selects, it kills this facilitator, which then gets no answer from the node.
func (p *payer) relayToNode(r *testbed.Relayed) {
	kill := p.killAt.Add(-1) == 0
	if !kill || !p.killBefore {
		answer := r.Answer()
		if !kill {
			r.Send(answer, answer.Body.Len())
			return
		}
	}
	p.facilitator.Kill()
	r.Drop()
}

func (p *payer) query(v any, method string, params ...any) {
	if raw := p.node.Call(p, method, params...); json.Unmarshal(raw, v) != nil {
		p.Fatalf("%s: %s", method, raw)
	}
}

// price is the price of one lookup, and funds is the amount minted for an account, both in
// atomic units.
var (
	price = testbed.Must(strconv.ParseInt(catalog.DNS().Amount, 10, 64))
	funds = 100 * price
)

// becomeContract deploys a contract that the payer's key owns. From then on, the contract is
// the account that pays.
func (p *payer) becomeContract() {
	var code struct{ Creation string }
	testbed.Check(json.Unmarshal(testbed.Must(os.ReadFile("testdata/contracts/wallet.json")), &code))
	var receipt struct{ ContractAddress, Status string }
	p.query(&receipt, "eth_sendTransactionSync", map[string]string{
		"from": testbed.Account(8), "gas": "0x100000",
		"data": code.Creation + strings.Repeat("0", 24) + hex.EncodeToString(p.account[:]),
	})
	if receipt.Status != "0x1" {
		p.Fatalf("deploy the wallet: %+v", receipt)
	}
	p.account, p.signaturePrefix = testbed.Must(x402.ParseAddress(receipt.ContractAddress)), "0x01"
	p.node.Mint(p, p.account, funds)
}

// sign requests the offer of a lookup, and signs a payment for that offer.
func (p *payer) sign() {
	p.firstResult, p.earlierTransfers = exchange{}, len(p.transfers())
	p.run.sign(lookUp(p.domain, "A"))
}

func (p *payer) buy() {
	p.sign()
	p.payAndCheck(p.wantResult())
}

// payWithoutConfirmation sends the payment, checks that the answer is settlement_uncertain,
// and waits for as long as Retry-After says.
func (p *payer) payWithoutConfirmation() {
	e := p.payAndCheck(wantError(fault.SettlementUncertain, "null"))
	testbed.Check(pause(p.Context(), e.RetryAfter()))
	checkEqual(p, "Retry-After is within 10 s", e.RetryAfter() <= 10*time.Second, true)
}

// checkBalances checks that the price went from the payer to the payee in the given number of
// transfers, and that no other money moved.
func (p *payer) checkBalances(transfers int) {
	moved := int64(transfers) * price
	if list := p.transfers(); len(list) != transfers {
		p.Errorf("%d transfers from the payer to the payee, want %d: %v", len(list), transfers, list)
	}
	for of, want := range map[x402.Address]int64{p.account: funds - moved, p.payee: moved} {
		if got := p.node.Balance(p, of); got.Cmp(big.NewInt(want)) != 0 {
			p.Errorf("%s has %d, want %d", of, got, want)
		}
	}
}

// transfer returns the hash of this payment's transaction.
func (p *payer) transfer() string {
	list := p.transfers()[p.earlierTransfers:]
	if len(list) != 1 {
		p.Errorf("%d transfers from the payer to the payee, want 1: %v", len(list), list)
		return ""
	}
	return list[0]
}

// transfers returns the hashes of all transactions in which the payer has paid the payee. It
// reads them from the events of the token.
func (p *payer) transfers() (hashes []string) {
	topic := func(a x402.Address) string { return "0x" + strings.Repeat("0", 24) + a.String()[2:] }
	// the topic of the event Transfer(address,address,uint256)
	const transfer = "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef"
	var logs []struct{ TransactionHash string }
	p.query(&logs, "eth_getLogs", map[string]any{
		"fromBlock": "0x0", "toBlock": "latest", "address": testbed.BaseUSDC,
		"topics": []string{transfer, topic(p.account), topic(p.payee)},
	})
	for _, l := range logs {
		hashes = append(hashes, l.TransactionHash)
	}
	return hashes
}
