package chaintest

import (
	"bytes"
	"crypto/rand"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

func wallet(t *testing.T, n *Node) *x402test.Wallet {
	t.Helper()
	w, err := x402test.NewWallet(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	n.Mint(t, w.Address(), 100)
	return w
}

// The node is Base as far as a signature can tell: chain id, and the domain
// separator of USDC.
func TestDomain(t *testing.T) {
	t.Parallel()
	n := Start(t)
	if got := text(t, n.Call(t, "eth_chainId")); got != "0x2105" {
		t.Errorf("chain id %s", got)
	}
	call := map[string]string{"to": USDC, "data": hexBytes(calldata("DOMAIN_SEPARATOR()"))}
	const base = "0x02fa7265e7c5d81118673727957699e4d68f74cd74b7db77da710fe8a2c7834f"
	if got := text(t, n.Call(t, "eth_call", call, "latest")); got != base {
		t.Errorf("domain separator %s, want Base USDC's %s", got, base)
	}
	domain, err := Terms(x402.Address{}).TokenDomain()
	if err != nil || hexBytes(domain[:]) != base {
		t.Errorf("terms have domain %x, %v", domain, err)
	}
}

// The token refuses what USDC refuses.
func TestToken(t *testing.T) {
	t.Parallel()
	n := Start(t)
	w, payee := wallet(t, n), address(t, Account(1))
	later := n.Now(t).Add(time.Hour)
	fresh := func() x402.Authorization { return Authorization(w, payee, 10, later) }
	spent := Sign(t, w, fresh())
	n.Transfer(t, spent)
	cancelled := fresh()
	n.Cancel(t, w, cancelled.Nonce)
	if got := n.Balance(t, payee).Int64(); got != 10 {
		t.Fatalf("the payee has %d, want 10", got)
	}
	notYet, notMuch := fresh(), fresh()
	notYet.ValidAfter = notYet.ValidBefore
	notMuch.Value = "91"
	highS := Sign(t, w, fresh())
	highS.Signature = highHalf(highS.Signature)
	for name, s := range map[string]Signed{
		"used":              spent,
		"cancelled":         Sign(t, w, cancelled),
		"expired":           Sign(t, w, Authorization(w, payee, 10, n.Now(t))),
		"not yet valid":     Sign(t, w, notYet),
		"too little money":  Sign(t, w, notMuch),
		"another payee":     {Authorization: fresh(), Signature: spent.Signature},
		"signed to receive": SignReceive(t, w, fresh()),
		"upper half of s":   highS,
	} {
		if r := n.TryTransfer(t, s); r.Success || r.Pending {
			t.Errorf("%s: %+v", name, r)
		}
	}
	n.Pause(t, true)
	good := Sign(t, w, fresh())
	if r := n.TryTransfer(t, good); r.Success {
		t.Error("a paused token moves")
	}
	n.Pause(t, false)
	n.Transfer(t, good)
	n.TransferSplit(t, Sign(t, w, fresh()))
	n.Receive(t, SignReceive(t, w, fresh()))
	n.Batch(t, true, TransferCall(t, Sign(t, w, fresh())), TransferCall(t, Sign(t, w, fresh())))
	if got := n.Balance(t, payee).Int64(); got != 60 {
		t.Errorf("the payee has %d, want 60", got)
	}
	if got := n.Balance(t, w.Address()).Int64(); got != 40 {
		t.Errorf("the payer has %d, want 40", got)
	}
}

// highHalf is the other valid form of a signature, which USDC refuses.
func highHalf(signature []byte) []byte {
	order := []byte{
		0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfe,
		0xba, 0xae, 0xdc, 0xe6, 0xaf, 0x48, 0xa0, 0x3b, 0xbf, 0xd2, 0x5e, 0x8c, 0xd0, 0x36, 0x41, 0x41,
	}
	out := bytes.Clone(signature)
	borrow := 0
	for i := 31; i >= 0; i-- {
		d := int(order[i]) - int(signature[32+i]) - borrow
		borrow = 0
		if d < 0 {
			d, borrow = d+256, 1
		}
		out[32+i] = byte(d)
	}
	out[64] = 27 + 28 - signature[64]
	return out
}

// Time and blocks do as they are told.
func TestTime(t *testing.T) {
	t.Parallel()
	n := Start(t)
	if age := time.Since(n.Now(t)).Abs(); age > time.Minute {
		t.Errorf("the first block is %s old", age)
	}
	n.IncreaseTime(t, time.Hour)
	if ahead := time.Until(n.Now(t)); ahead < 59*time.Minute {
		t.Errorf("an hour later is in %s", ahead)
	}
	n.SetBlockInterval(t, 2*time.Second)
	first, at := n.Block(t, "latest")
	n.Mine(t, 40)
	last, now := n.Block(t, "latest")
	if last-first != 40 || now.Sub(at) != 80*time.Second {
		t.Errorf("40 blocks: %d in %s", last-first, now.Sub(at))
	}
	if safe, _ := n.Block(t, "safe"); safe != last-32 {
		t.Errorf("block %d is safe at %d", safe, last)
	}
	n.SetAutomine(t, false)
	r := n.Send(t, Account(1), USDC, calldata("pause()"))
	if !r.Pending || !n.Receipt(t, r.Hash).Pending {
		t.Error("a transaction has a block at once")
	}
	n.Mine(t, 1)
	if got := n.Receipt(t, r.Hash); !got.Success || got.Block != last+1 {
		t.Errorf("receipt = %+v", got)
	}
}

func TestNodesAreSeparateAndEnd(t *testing.T) {
	t.Parallel()
	a := Start(t)
	var b *Node
	t.Run("inner", func(t *testing.T) { b = Start(t) })
	if b == nil {
		t.Skip("the inner test was skipped")
	}
	if a.URL == b.URL {
		t.Errorf("two nodes at %s", a.URL)
	}
	if _, err := b.call(t.Context(), "eth_chainId"); err == nil {
		t.Error("the node of a test that is over is still there")
	}
	a.Kill()
	a.Kill()
	if _, err := a.call(t.Context(), "eth_chainId"); err == nil {
		t.Error("a killed node is still there")
	}
}

// A node that is installed and does not start fails the test that wants it.
func TestLaunchFails(t *testing.T) {
	t.Parallel()
	broken := filepath.Join(t.TempDir(), "anvil")
	if err := os.WriteFile(broken, []byte("#!/bin/sh\necho no such option\nexit 2\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := (&Node{client: &http.Client{}}).launch(t, broken); err == nil || !strings.Contains(err.Error(), "no such option") {
		t.Errorf("launch = %v, want the node's own words", err)
	}
}

// The committed code is what the committed sources compile to.
func TestContracts(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("runs in make verify: needs Node for the Solidity compiler")
	}
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("needs Node for the Solidity compiler: node is not in PATH")
	}
	dir, err := folder()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := install(t.Context(), dir); err != nil {
		t.Skipf("needs the Solidity compiler, which cannot be installed: %v", err)
	}
	cmd := exec.CommandContext(t.Context(), node, filepath.Join("..", "contracts", "compile.cjs"))
	cmd.Dir = dir
	var complaints strings.Builder
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, complaints.String())
	}
	if diff := cmp.Diff(string(contracts), string(out)); diff != "" {
		t.Errorf("contracts.json is not up to date (cd testdata/node && node ../contracts/compile.cjs > ../contracts/contracts.json):\n%.2000s", diff)
	}
}

// npm has the node for one platform; on another one that is in PATH is taken.
func TestOtherPlatform(t *testing.T) {
	for name, inPath := range map[string]bool{"none in PATH": false, "one in PATH": true} {
		t.Run(name, func(t *testing.T) {
			dir, bin := t.TempDir(), t.TempDir()
			t.Setenv("PATH", bin)
			files := map[string]string{
				filepath.Join(dir, "package.json"):                       `{"optionalDependencies":{"@foundry-rs/anvil-linux-amd64":"1.7.1"}}`,
				filepath.Join(dir, "node_modules", ".package-lock.json"): "{}",
			}
			if inPath {
				files[filepath.Join(bin, "anvil")] = "#!/bin/sh\n"
			}
			for path, content := range files {
				if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(content), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			anvil, err := install(t.Context(), dir)
			if inPath && (err != nil || anvil != filepath.Join(bin, "anvil")) || !inPath && (err == nil || !strings.Contains(err.Error(), "no anvil for this platform")) {
				t.Errorf("install = %q, %v", anvil, err)
			}
		})
	}
}
