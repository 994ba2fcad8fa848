package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/embedded"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// tool runs the command of make owed, payer, refund, books and reconcile over a ledger
// file, and returns what it prints.
func tool(t *testing.T, file string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), operateBinary(t), append([]string{"reconcile"}, args...)...)
	cmd.Dir = filepath.Dir(file)
	cmd.Env = []string{"LEDGER_FILE=" + file}
	var all bytes.Buffer
	cmd.Stdout, cmd.Stderr = &all, &all
	err := cmd.Run()
	return all.String(), err
}

// TestToolsBesideService: the operator's tools work while the service has its
// ledger open, after it was killed and started again, and after it has ended.
func TestToolsBesideService(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	file := filepath.Join(t.TempDir(), "ledger.db")
	p := startLocal(t, l, l.setup(), file)
	says := func(want string, args ...string) {
		t.Helper()
		if out, err := tool(t, file, args...); err != nil || !strings.Contains(out, want) {
			t.Errorf("%q: %v\n%s\nwant %q", args, err, out, want)
		}
	}
	wallet, payer := l.wallet(t)
	c := &x402test.Client{HTTP: newClient(), Wallet: wallet, Now: time.Now}
	buy := func() {
		t.Helper()
		if reply, _, err := c.Buy(t.Context(), p.URL+catalog.Ping().Path); err != nil || reply.Status != 200 {
			t.Fatalf("ping: %+v, %v", reply, err)
		}
	}
	buy()
	says("has paid 1 time ($0.001), got 1 answer, and is owed nothing.", "-payer", payer)
	says("in doubt  0 of 0 listed")

	key := plantDebt(t, l, file, payer)
	says("make refund KEY='"+key+"'", "-owed")
	says("amount   0.005 USDC (5000 atomic units)", "-refund", key)

	p.Kill() // its socket stays
	if _, err := os.Lstat(embedded.SocketPath(file)); err != nil {
		t.Error(err)
	}
	says("a refund of $0.005 is due", "-payer", payer)
	p = startLocal(t, l, l.setup(), file)
	says("a refund of $0.005 is due", "-payer", payer)
	says("closed: $0.005 went back", "-refund", key, "-transaction", "0x"+strings.Repeat("ab", 32), "-force")
	buy()
	says("has paid 3 times ($0.007), got 2 answers, was refunded 1 time ($0.005), and is owed nothing.", "-payer", payer)

	p.End(t)
	if _, err := os.Lstat(filepath.Dir(embedded.SocketPath(file))); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket's folder is left behind: %v", err)
	}
	says("got 2 answers, was refunded 1 time", "-payer", payer)
}

// plantDebt puts a payment whose lookups are used up into the ledger of a service
// that runs.
func plantDebt(t *testing.T, l *lab, file, payer string) (key string) {
	t.Helper()
	c, err := embedded.Dial(t.Context(), file)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	key = ledger.Key(l.terms.Network, strings.ToLower(l.terms.Asset), strings.ToLower(payer), fmt.Sprintf("0x%064x", 1))
	r := ledgertest.First(key)
	r.State, r.Lookups, r.SettledAt, r.ExpiresAt = ledger.Settled, ledger.MaxLookups, r.CreatedAt, time.Time{}
	r.Receipt = &ledger.Receipt{Transaction: "0x01", Payer: payer, Network: l.terms.Network}
	r.Terms = fmt.Appendf(nil, `{"network":%q,"asset":%q,"amount":"5000"}`, l.terms.Network, l.terms.Asset)
	if old, err := c.Create(t.Context(), r); old != nil || err != nil {
		t.Fatalf("Create = %v, %v", old, err)
	}
	return key
}
