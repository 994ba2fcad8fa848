package e2e

import (
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPayOnChain has make pay pay with a key from a file: USDC on an Ethereum
// node, settled by the reference facilitator. A key without money is refused.
func TestPayOnChain(t *testing.T) {
	t.Parallel()
	verifyOnly(t, "needs Node and an Ethereum node")
	l := newLab(t)
	fairly(t, func(tb testing.TB, p *pace) {
		w := openChain(tb, p, l, chainOptions{direct: true})
		account := parseAddress(tb, "0x2B5AD5c4795c026514f8317c7a215E218DcCD6cF") // of the key 2
		file, dir := filepath.Join(tb.TempDir(), "key"), filepath.Join(tb.TempDir(), "payments")
		if err := os.WriteFile(file, []byte("0x"+strings.Repeat("0", 63)+"2"), 0o600); err != nil {
			tb.Fatal(err)
		}
		url := w.d.base + lookup("example.com", "A")
		_, notes, code := runPay(tb, "-key-file", file, "-yes", url)
		if code != 1 || !strings.Contains(notes, "status:  402 Payment Required, ") {
			tb.Errorf("without money: exit status %d\n%s", code, notes)
		}

		price := dnsPrice(tb)
		w.node.Mint(tb, account, 10*price)
		first, notes, code := runPayIn(tb, nil, "-dir", dir, "-key-file", file, "-yes", url)
		is(tb, "exit status", code, 0)
		for _, want := range []string{"price:   0.005 USDC on Base to " + w.payee.Checksum(), "payer:   " + account.Checksum(), "status:  200 OK, transaction 0x", "\nreceipt: holds: "} {
			if !strings.Contains(notes, want) {
				tb.Errorf("stderr lacks %q:\n%s", want, notes)
			}
		}
		l.secret(keptBy(tb, dir).Signature)
		again, notes, _ := runPayIn(tb, nil, "-dir", dir, "-again", "1")
		is(tb, "the stored answer", again, first)
		if !strings.Contains(notes, "Idempotent-Replayed: true") {
			tb.Errorf("stderr does not show the replay:\n%s", notes)
		}
		_, notes, code = runPay(tb, "-key-file", file, "-yes", "-max", "0.004", url)
		if code != 1 || !strings.Contains(notes, "above MAX=0.004") {
			tb.Errorf("above the limit: exit status %d\n%s", code, notes)
		}
		_, notes, code = runPay(tb, "-key-file", file, url)
		if code != 1 || !strings.Contains(notes, "nobody can be asked") {
			tb.Errorf("with nobody to ask: exit status %d\n%s", code, notes)
		}
		if got := w.node.Balance(tb, account); got.Cmp(big.NewInt(9*price)) != 0 {
			tb.Errorf("the payer has %s, want %d", got, 9*price)
		}
	})
}
