package e2e

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/big"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

type payer struct {
	*run
	w       *chainWorld
	funds   int64  // what was minted for the account
	earlier int    // transfers before this payment was signed
	prefix  []byte // of a contract wallet's signatures
}

// dnsPrice is what one lookup costs, in atomic units.
func dnsPrice() int64 { return must(strconv.ParseInt(catalog.DNS().Amount, 10, 64)) }

func (w *chainWorld) payer() *payer {
	p := w.pauper()
	p.mint(10 * dnsPrice())
	return p
}

func (w *chainWorld) pauper() *payer {
	p := &payer{run: newRun(w, w.lab, w.d, pacedClient(w.pace)), w: w}
	p.moved = p.transfer
	p.path = p.lookUp(modeHealthy)
	return p
}

// contract is a payer whose account is a contract that is owned by the key. The
// contract is deployed.
func (w *chainWorld) contract() *payer {
	p := w.pauper()
	var code struct{ Creation string }
	if err := testbed.ReadJSON(filepath.Join("testdata", "contracts", "wallet.json"), &code); err != nil {
		w.Fatal(err)
	}
	var receipt struct{ ContractAddress, Status string }
	w.ask(&receipt, "eth_sendTransactionSync", map[string]string{
		"from": testbed.Account(8), "gas": "0x100000",
		"data": code.Creation + strings.Repeat("0", 24) + hex.EncodeToString(p.account[:]),
	})
	if receipt.Status != "0x1" {
		w.Fatalf("deploy the wallet: %+v", receipt)
	}
	p.account, p.prefix = must(x402.ParseAddress(receipt.ContractAddress)), []byte{1}
	p.mint(10 * dnsPrice())
	return p
}

func (p *payer) mint(value int64) {
	p.w.node.Mint(p, p.account, value)
	p.funds += value
}

// sign asks for the offer and signs it.
func (p *payer) sign() {
	p.first, p.earlier = exchange{}, len(p.transfers())
	p.run.sign(p.path, func(d *x402test.Draft) { d.Payload.Payload.Authorization.From = p.account.Checksum() },
		resign(func(signature []byte) []byte { return append(p.prefix, signature...) }))
}

func (p *payer) buy() {
	p.sign()
	p.pays(p.answer())
}

// uncertain sends the payment, is told that nobody knows, and waits as long as the
// answer asks for, which is not longer than a person would wait.
func (p *payer) uncertain() {
	e := p.pays(fails(fault.SettlementUncertain))
	p.pause(e.RetryAfter())
	is(p, "Retry-After is within 10 s", e.RetryAfter() <= 10*time.Second, true)
}

// books checks what has happened on the chain: how often the price went from
// the payer to the payee, and that nothing else did.
func (p *payer) books(transfers int) {
	moved := int64(transfers) * dnsPrice()
	if list := p.transfers(); len(list) != transfers {
		p.Errorf("%d transfers from the payer to the payee, want %d: %v", len(list), transfers, list)
	}
	for of, want := range map[x402.Address]int64{p.account: p.funds - moved, p.w.payee: moved} {
		if got := p.w.node.Balance(p, of); got.Cmp(big.NewInt(want)) != 0 {
			p.Errorf("%s has %d, want %d", of, got, want)
		}
	}
}

func (p *payer) transfer() string {
	list := p.transfers()[p.earlier:]
	if len(list) != 1 {
		p.Errorf("%d transfers from the payer to the payee, want 1: %v", len(list), list)
		return ""
	}
	return list[0]
}

// transfers are the transactions in which the token went from the payer to the
// payee, by its events.
func (p *payer) transfers() []string {
	topic := func(a x402.Address) string { return "0x" + strings.Repeat("0", 24) + a.String()[2:] }
	// Transfer(address,address,uint256)
	const transfer = "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef"
	var logs []struct{ TransactionHash string }
	p.w.ask(&logs, "eth_getLogs", map[string]any{
		"fromBlock": "0x0", "toBlock": "latest", "address": testbed.BaseUSDC,
		"topics": []string{transfer, topic(p.account), topic(p.w.payee)},
	})
	var hashes []string
	for _, l := range logs {
		hashes = append(hashes, l.TransactionHash)
	}
	return hashes
}

// chainWorld is the local runner as an operator runs it on Base: an Ethereum
// node with the token, a facilitator made of the reference packages, and
// nothing of play money. What goes between the three can be cut or lost.
type chainWorld struct {
	testing.TB
	lab         *lab // the resolver, and the signatures that no log may show
	node        *testbed.Chain
	facilitator *testbed.Process
	relay       *tap // the service's way to the facilitator; nil with two of them
	d           *deployment
	pace        *pace
	payee       x402.Address
	confirm     time.Duration

	toNode  *tap   // the first facilitator's way to the node, if it can be killed there
	nodeURL string // what a facilitator calls the node by
}

type chainOptions struct {
	// confirm is how long the facilitator waits for a receipt. 0 is longer than any scenario.
	confirm time.Duration
	// fallback gives the service a second facilitator, and no duplicate window, and
	// lets the first one be killed at any of its calls to the node.
	fallback bool
}

func openChain(t testing.TB, p *pace, l *lab, o chainOptions) *chainWorld {
	w := &chainWorld{TB: t, pace: p, lab: l, confirm: o.confirm, payee: must(x402.ParseAddress(l.terms.PayTo))}
	if w.confirm == 0 {
		w.confirm = 30 * time.Second
	}
	w.node = testbed.StartChain(t)
	w.nodeURL = w.node.URL
	s := l.setup()
	s.more["RPC_URL"], s.more["NETWORK"] = w.node.URL, testbed.BaseNetwork
	if o.fallback {
		w.startFacilitator("0")
		s.more["FACILITATOR_FALLBACK_URL"], s.more["DUPLICATE_WINDOW_SECONDS"] = w.facilitator.URL, "0"
		w.toNode = newTap(t)
		w.nodeURL = w.toNode.front(func(*http.Request, []byte) string { return callNode }, testbed.ProxyTo(t, w.node.URL))
	}
	w.startFacilitator("0")
	s.facilitator = w.facilitator.URL
	if !o.fallback {
		w.relay = newTap(t)
		s.facilitator = w.relay.front(callOf, testbed.ProxyTo(t, w.facilitator.URL))
	}
	w.d = openLocal(t, l, s)
	return w
}

var facilitatorDir = filepath.Join("testdata", "facilitator")

// startFacilitator runs the reference facilitator on a port. Its account and its memory are new.
func (w *chainWorld) startFacilitator(port string) {
	cmd := exec.Command(must(exec.LookPath("node")), "facilitator.mjs")
	cmd.Dir = facilitatorDir
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "RPC=" + w.nodeURL, "NETWORK=" + testbed.BaseNetwork, "PORT=" + port,
		"CONFIRM_MS=" + strconv.FormatInt(w.confirm.Milliseconds(), 10),
	}
	p, err := testbed.Launch(cmd, nil)
	if err != nil {
		w.Fatal(err)
	}
	w.facilitator = p
	w.Cleanup(p.Kill)
	if err := p.Ready(); err != nil {
		w.Fatal(err)
	}
}

// heard is the result of each settlement: a reason, or "settled".
func (w *chainWorld) heard() (said []string) {
	w.relay.mu.Lock()
	defer w.relay.mu.Unlock()
	for _, reply := range w.relay.replies[callSettle] {
		v := x402.SettleResponse{ErrorReason: fmt.Sprintf("unreadable: %.100s", reply)}
		if json.Unmarshal(reply, &v) == nil && v.Success {
			v.ErrorReason = saysSettled
		}
		said = append(said, v.ErrorReason)
	}
	return said
}

// deaf has the answers to settlements lost from now on.
func (w *chainWorld) deaf() { w.relay.arm(callSettle, slices.Repeat([]mishap{dropped}, 10)...) }

func (w *chainWorld) ask(v any, method string, params ...any) {
	if raw := w.node.Call(w, method, params...); json.Unmarshal(raw, v) != nil {
		w.Fatalf("%s: %s", method, raw)
	}
}

func (w *chainWorld) awaitPool(n int) {
	testbed.Until(w, "transactions on their way", func() (err error) {
		var pool struct{ Pending string }
		if w.ask(&pool, "txpool_status"); pool.Pending != fmt.Sprintf("0x%x", n) {
			err = fmt.Errorf("%s, want %d", pool.Pending, n)
		}
		return err
	})
}
