//go:build unix

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/chaintest"
	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/embedded"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// operator has the runbook, and a service whose ledger is a file. The money of the
// lab moves on a chain whose clock is some seconds ahead, so that nothing is too
// young for the books.
type operator struct {
	*testing.T
	lab   *lab
	file  string // of the ledger
	chain *httptest.Server

	mu    sync.Mutex
	extra []x402test.Transfer // on the chain, made by others than the lab's payers
}

func newOperator(t *testing.T) *operator {
	t.Helper()
	o := &operator{T: t, lab: newLab(t), file: filepath.Join(t.TempDir(), "ledger.db")}
	o.chain = httptest.NewServer(chaintest.PlayNode{
		Moved: o.transfers, ChainID: 8453, Now: func() time.Time { return time.Now().Add(5 * time.Second) },
	})
	t.Cleanup(o.chain.Close)
	return o
}

// transfers are all that is on the chain.
func (o *operator) transfers() []x402test.Transfer {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append(o.lab.facilitator.Transfers(), o.extra...)
}

func (o *operator) transferred(t x402test.Transfer) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.extra = append(o.extra, t)
}

func (o *operator) start() *testbed.Process {
	s := o.lab.setup()
	s.more = map[string]string{"RPC_URL": o.chain.URL}
	return startLocal(o, o.lab, s, o.file)
}

// reads types a command that the runbook has, with values of his own, and reads what
// it says.
func (o *operator) reads(says, target string, typed ...string) {
	o.Helper()
	form := "make " + target
	for _, t := range typed {
		name, _, _ := strings.Cut(t, "=")
		form += " " + name + `=\S+`
	}
	runbook, err := os.ReadFile(filepath.Join(root, "infra", "RUNBOOK.md"))
	if err != nil || !regexp.MustCompile(form).Match(runbook) {
		o.Errorf("the runbook has no %q: %v", form, err)
	}
	env := newcomer("LEDGER_FILE="+o.file, "RPC_URL="+o.chain.URL)
	out, notes, code := runMake(o.T, env, append([]string{target}, typed...)...)
	if code != 0 || !strings.Contains(out+notes, says) {
		o.Errorf("%s %q: exit status %d\n%s%s\nwant %q", target, typed, code, out, notes, says)
	}
}

// TestToolsBesideService: the operator's commands work while the service has its
// ledger open, after it was killed and started again, and after it has ended. A
// payer who can have no answer any more is refunded, and the books balance.
func TestToolsBesideService(t *testing.T) {
	t.Parallel()
	verifyOnly(t, "needs make")
	day := time.Now().UTC().Format(time.DateOnly)
	o := newOperator(t)
	p := o.start()
	wallet, payer := o.lab.wallet(t)
	c := &x402test.Client{HTTP: newClient(), Wallet: wallet, Now: time.Now}
	buy := func() {
		t.Helper()
		if reply, _, err := c.Buy(t.Context(), p.URL+catalog.Ping().Path); err != nil || reply.Status != 200 {
			t.Fatalf("ping: %+v, %v", reply, err)
		}
	}
	buy()
	o.reads("nothing is owed, and nothing in doubt", "owed")
	o.reads("in doubt  0 of 0 listed", "reconcile")
	o.reads("has paid 1 time ($0.001), got 1 answer, and is owed nothing.", "payer", "WALLET="+payer)

	key := o.unanswered(payer)
	o.reads("make refund KEY='"+key+"'", "owed")
	o.reads("amount   0.005 USDC (5000 atomic units)", "refund", "KEY="+key)
	p.Kill() // its socket stays
	if _, err := os.Lstat(embedded.SocketPath(o.file)); err != nil {
		t.Error(err)
	}
	o.reads("a refund of $0.005 is due", "payer", "WALLET="+payer)
	p = o.start()
	back := "0x" + strings.Repeat("ab", 32)
	terms := o.lab.terms
	o.transferred(x402test.Transfer{
		Key:         ledger.Key(terms.Network, strings.ToLower(terms.Asset), "0x"+strings.Repeat("99", 20), ""),
		Transaction: back, Payee: payer, Value: "5000", At: time.Now(),
	})
	o.reads("closed: $0.005 went back", "refund", "KEY="+key, "TRANSACTION="+back)
	buy()
	o.reads("has paid 3 times ($0.007), got 2 answers, was refunded 1 time ($0.005), and is owed nothing.", "payer", "WALLET="+payer)
	if time.Now().UTC().Format(time.DateOnly) == day { // all payments are of one day
		o.reads("$0.007 received in 3 payments; no differences", "books", "DAY="+day)
	}

	p.End(t)
	if _, err := os.Lstat(filepath.Dir(embedded.SocketPath(o.file))); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket's folder is left behind: %v", err)
	}
	o.reads("got 2 answers, was refunded 1 time", "payer", "WALLET="+payer)
}

// unanswered is the key of a payment whose lookups are used up, in the ledger of the
// service that runs and on the chain.
func (o *operator) unanswered(payer string) (key string) {
	o.Helper()
	now, t := time.Now().UTC(), o.lab.terms
	hash := fmt.Sprintf("0x%064x", 7)
	key = ledger.Key(t.Network, strings.ToLower(t.Asset), strings.ToLower(payer), hash)
	moved := x402test.Transfer{Key: key, Transaction: hash, Payee: t.PayTo, Value: "5000", At: now}
	o.transferred(moved)
	terms, err := json.Marshal(t.Requirements(moved.Value))
	if err != nil {
		o.Fatal(err)
	}
	r := ledgertest.First(key)
	r.State, r.Terms, r.Request = ledger.Settled, terms, "GET /v1/tools/dns?domain=example.com&type=A"
	r.CreatedAt, r.SettledAt, r.UpdatedAt, r.LeaseUntil, r.ExpiresAt = now, now, now, time.Time{}, time.Time{}
	r.Lookups, r.LastFault = ledger.MaxLookups, &ledger.Failure{Code: "upstream_unavailable", Message: "No resolver answered."}
	r.Receipt = &ledger.Receipt{Transaction: hash, Payer: payer, Network: t.Network}
	c, err := embedded.Dial(o.Context(), o.file)
	if err != nil {
		o.Fatal(err)
	}
	defer c.Close()
	if old, err := c.Create(o.Context(), r); old != nil || err != nil {
		o.Fatalf("Create = %v, %v", old, err)
	}
	return key
}
