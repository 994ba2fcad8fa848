package e2e

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/infra/chaintest"
	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/fault"
)

func walletStories() []chainScenario {
	return []chainScenario{
		{"a contract pays", chainOptions{}, playContract},
		{"a contract pays, and the answer is lost", chainOptions{}, playContractLost},
	}
}

// contractWallet is a payer whose account is a contract that is owned by the
// key. The contract is deployed.
func (w *chainWorld) contractWallet() *payer {
	w.Helper()
	p := w.pauper()
	var code struct{ Creation string }
	if err := testbed.ReadJSON(filepath.Join("testdata", "contracts", "wallet.json"), &code); err != nil {
		w.Fatal(err)
	}
	owner := p.account
	raw := w.node.Call(w, "eth_sendTransactionSync", map[string]string{
		"from": chaintest.Account(8), "gas": "0x100000",
		"data": code.Creation + strings.Repeat("0", 24) + hex.EncodeToString(owner[:]),
	})
	var receipt struct{ ContractAddress, Status string }
	if err := json.Unmarshal(raw, &receipt); err != nil || receipt.Status != "0x1" {
		w.Fatalf("deploy the wallet: %s (%v)", raw, err)
	}
	p.account, p.prefix = parseAddress(w, receipt.ContractAddress), []byte{1}
	p.mint(10 * dnsPrice(w))
	return p
}

// playContract: nobody but the chain can judge the signature, so the
// facilitator is asked before anything is claimed.
func playContract(t testing.TB, w *chainWorld) {
	p := w.contractWallet()
	p.sign(0)
	p.send(p.answer())
	settles, verifies := w.relay.asked()
	is(t, "calls to /settle", settles, 1)
	is(t, "calls to /verify", verifies, 1)
	p.books(1)
	p.send(p.answer().replayed())
	_, verifies = w.relay.asked()
	is(t, "calls to /verify after a replay", verifies, 1)
	p.books(1)
	p.lookups(1)

	// Signed by somebody who does not own it.
	p.prefix = []byte{2}
	p.sign(0)
	p.send(refused("signature is not the payer's"))
	settles, _ = w.relay.asked()
	is(t, "calls to /settle", settles, 1)
	p.books(1)
}

// playContractLost: the doubt of a contract's payment is cleared like any
// other, by the overload of the token's function that takes bytes.
func playContractLost(t testing.TB, w *chainWorld) {
	p := w.contractWallet()
	p.sign(0)
	w.rpc.cut()
	w.relay.lose(true)
	p.wait(p.send(fails(fault.SettlementUncertain)))
	w.relay.lose(false)
	w.rpc.mend()
	p.send(p.answer())
	said(t, w, saysSettled, saysUsed)
	_, verifies := w.relay.asked()
	is(t, "calls to /verify", verifies, 1)
	p.books(1)
	p.send(p.answer().replayed())

	var tx struct{ Input string }
	if err := json.Unmarshal(w.node.Call(t, "eth_getTransactionByHash", p.transfer()), &tx); err != nil {
		t.Fatal(err)
	}
	call, err := hex.DecodeString(strings.TrimPrefix(tx.Input, "0x"))
	if err != nil || !bytes.Equal(call, chaintest.TransferCall(t, p.signed)) {
		t.Errorf("the transaction's call (%v) is not the payment by bytes: %s", err, tx.Input)
	}
}
