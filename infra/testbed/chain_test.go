package testbed

import (
	"bytes"
	"path/filepath"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
)

// The token is Base's BaseUSDC as far as a signature can tell, and refuses what BaseUSDC
// refuses.
func TestToken(t *testing.T) {
	t.Parallel()
	n := StartChain(t)
	call := map[string]string{"to": BaseUSDC, "data": hexBytes(calldata("DOMAIN_SEPARATOR()"))}
	const base = "0x02fa7265e7c5d81118673727957699e4d68f74cd74b7db77da710fe8a2c7834f"
	if got := read[string](t, n.Call(t, "eth_call", call, "latest")); got != base {
		t.Errorf("domain separator %s, want Base BaseUSDC's %s", got, base)
	}
	w := NewClient(t, nil).Wallet
	n.Mint(t, w.Address(), 100)
	payee, later := Address(t, Account(1)), n.Now(t).Add(time.Hour)
	fresh := func() x402.Authorization { return Authorization(w, payee, 10, later) }
	spent, cancelled := SignTransfer(t, w, fresh()), SignTransfer(t, w, fresh())
	n.Transfer(t, spent)
	n.Cancel(t, w, cancelled.Authorization.Nonce)
	notYet, notMuch := fresh(), fresh()
	notYet.ValidAfter = notYet.ValidBefore
	notMuch.Value = "91"
	for name, s := range map[string]SignedTransfer{
		"used":             spent,
		"cancelled":        cancelled,
		"expired":          SignTransfer(t, w, Authorization(w, payee, 10, n.Now(t))),
		"not yet valid":    SignTransfer(t, w, notYet),
		"too little money": SignTransfer(t, w, notMuch),
		"another payee":    {Authorization: fresh(), Signature: spent.Signature},
	} {
		if r := n.TryTransfer(t, s); r.Success || r.Pending {
			t.Errorf("%s: %+v", name, r)
		}
	}
	n.Batch(t, true, TransferCall(t, SignTransfer(t, w, fresh())), TransferCall(t, SignTransfer(t, w, fresh())))
	if payer, payee := n.Balance(t, w.Address()).Int64(), n.Balance(t, payee).Int64(); payer != 70 || payee != 30 {
		t.Errorf("the payer has %d and the payee %d, want 70 and 30", payer, payee)
	}
}

// The committed code is what the committed sources compile to.
func TestContracts(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("runs in make verify: needs Node for the Solidity compiler")
	}
	dir := peerFolder(t, "chain")
	cmd := Command(t, Node(t, dir), filepath.Join("..", "contracts", "compile.cjs"))
	cmd.Dir = dir
	if out := Run(t, cmd); !bytes.Equal(contracts, out) {
		t.Error("contracts.json is not up to date: cd testdata/chain && node ../contracts/compile.cjs > ../contracts/contracts.json")
	}
}
