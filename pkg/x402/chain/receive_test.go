package chain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/chaintest"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
)

// office is the payee's ledger, beside the books of what was really sent.
type office struct {
	*books
	memory *ledgertest.Memory
	store  *ledgertest.Faulty
	faulty bool // some of the store's calls fail
	ids    int
	// ends says how each record has to end, by its key: redeemed, owed, refund
	// or refused.
	ends map[string]string
}

func newOffice(t *testing.T) *office {
	t.Helper()
	o := &office{books: newBooks(t, 0), memory: new(ledgertest.Memory), ends: map[string]string{}}
	rng := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same faults each time
	o.store = ledgertest.NewFaulty(t, o.memory, func(ledgertest.Op, int, ledger.Record) ledgertest.Fault {
		if !o.faulty || rng.IntN(10) > 0 {
			return ledgertest.None
		}
		return []ledgertest.Fault{ledgertest.FailBefore, ledgertest.FailAfter}[rng.IntN(2)]
	})
	o.Mint(t, o.other, 1_000_000)
	return o
}

// ledger is that of a new process.
func (o *office) ledger(t testing.TB) *ledger.Ledger {
	return ledger.New(o.store, func() time.Time { return o.Now(t) }, func() string { o.ids++; return fmt.Sprint("w", o.ids) })
}

func keyOf(a x402.Authorization) string {
	return ledger.Key(chaintest.Network, strings.ToLower(chaintest.USDC), strings.ToLower(a.From), strings.ToLower(a.Nonce))
}

// claim is a request that came with an authorization of the price.
func (o *office) claim(t testing.TB, end string) (x402.Authorization, *ledger.Hold) {
	t.Helper()
	a := o.authorize(t)
	terms, err := json.Marshal(chaintest.Terms(o.payee).Requirements(fmt.Sprint(price)))
	must(t, err)
	c, err := o.ledger(t).Claim(t.Context(), ledger.Payment{
		Key: keyOf(a), AuthDigest: a.Nonce, SigDigest: a.Nonce, Request: "GET /a", Terms: terms, ValidBefore: o.Now(t).Add(window),
	}, o.Now(t).Add(30*time.Second))
	if err != nil || c.Standing != ledger.Held {
		t.Fatalf("claim: %+v, %v", c, err)
	}
	o.ends[keyOf(a)] = end
	return a, c.Hold
}

// refused is a payment that the facilitator said no to.
func (o *office) refused(t testing.TB, end string) x402.Authorization {
	t.Helper()
	a, h := o.claim(t, end)
	must(t, h.Refused(t.Context(), "insufficient_funds"))
	return a
}

// stranger is a payment that nobody has asked anything with.
func (o *office) stranger(t testing.TB) x402.Authorization {
	t.Helper()
	a := o.authorize(t)
	o.ends[keyOf(a)] = "refund"
	return a
}

// trade makes payments of every kind, and what is none.
func (o *office) trade(t *testing.T) {
	t.Helper()
	a, h := o.claim(t, "redeemed")
	must(t, h.Settled(t.Context(), ledger.Receipt{Transaction: o.move(t, a).Hash}, true))
	must(t, h.Redeem(t.Context(), ledger.Answer{Status: 200, Stored: true}))
	a, h = o.claim(t, "owed")
	must(t, h.Uncertain(t.Context(), "timeout", ""))
	o.move(t, a)
	a, _ = o.claim(t, "owed") // its process died
	o.move(t, a)
	o.refused(t, "refused") // and stays unpaid
	o.move(t, o.refused(t, "owed"))
	o.move(t, o.stranger(t))
	a, h = o.claim(t, "refund")
	must(t, h.Disproved(t.Context(), "authorization cancelled"))
	o.move(t, a)
	o.another(t)
	o.enter(t, o.Deposit(t, chaintest.Account(4), o.payee, 77), without(o.other, 77))
	o.move(t, again(o.authorize(t), o.payee, "0"))
	o.batch(t)
}

// another uses the nonce of a refused payment for another amount.
func (o *office) another(t *testing.T) {
	t.Helper()
	a := o.refused(t, "refused")
	tx := o.move(t, again(a, o.payee, "6000"))
	o.ends[keyOf(a)+"|"+tx.Hash] = "refund"
}

// batch makes several transfers in one transaction of a contract.
func (o *office) batch(t *testing.T) {
	t.Helper()
	refused1, refused2, unknown := o.refused(t, "owed"), o.refused(t, "owed"), o.stranger(t)
	o.enter(t, o.Batch(t, true, o.payCall(t, refused1), chaintest.MintCall(o.payee, price), o.payCall(t, again(o.authorize(t), o.other, "9")),
		o.payCall(t, unknown), chaintest.MintCall(o.other, price), o.payCall(t, refused2)),
		by(t, refused1), without(x402.Address{}, price), by(t, unknown), by(t, refused2))
}

// mortal is a process's view of the chain: the process dies after one batch.
type mortal struct {
	*Client
	batches int
}

var errDied = errors.New("the process died")

func (m *mortal) Transfers(ctx context.Context, payee x402.Address, from uint64) (x402.Batch, error) {
	if m.batches++; m.batches > 1 {
		return x402.Batch{Next: from}, errDied
	}
	return m.Client.Transfers(ctx, payee, from)
}

// reconcile is one run of a new process.
func (o *office) reconcile(t *testing.T) x402.Summary {
	t.Helper()
	asset, err := x402.ParseAddress(chaintest.USDC)
	must(t, err)
	s, err := x402.NewReconciler(x402.ReconcilerConfig{
		Ledger: o.ledger(t), Index: o.memory, Scanner: &mortal{Client: o.client}, Network: chaintest.Network, Asset: asset, Payee: o.payee,
		Now: func() time.Time { return o.Now(t) }, Log: slog.New(slog.DiscardHandler),
	}).Run(t.Context())
	if err != nil && !(o.faulty && errors.Is(err, ledgertest.ErrInjected)) {
		t.Errorf("run: %v", err)
	}
	return s
}

func (o *office) cursor(t *testing.T) uint64 {
	t.Helper()
	key := ledger.CursorKey(chaintest.Network, strings.ToLower(chaintest.USDC), o.payee.String())
	c, err := ledger.New(o.memory, time.Now, func() string { return "" }).Cursor(t.Context(), key)
	must(t, err)
	if c == nil {
		return 0
	}
	return c.Next
}

// catchUp reconciles until everything was read that is safe now, each time as a
// new process, and returns the number of runs.
func (o *office) catchUp(t *testing.T) int {
	t.Helper()
	safe := o.finish(t)
	const most = 100
	var last x402.Summary
	for runs := 1; runs <= most; runs++ {
		before := o.cursor(t)
		last = o.reconcile(t)
		if at := o.cursor(t); at < before {
			t.Fatalf("the cursor went back from %d to %d", before, at)
		} else if at > safe {
			return runs
		}
	}
	t.Fatalf("after %d runs the cursor is at %d of %d: %+v", most, o.cursor(t), safe, last)
	return 0
}

// audit holds the ledger to what was sent: every record has ended as it must,
// and every payment is on exactly one.
func (o *office) audit(t *testing.T) {
	t.Helper()
	ends := map[string]string{}
	var booked, sent []string
	for _, key := range o.memory.Keys() {
		r, err := o.memory.Fetch(t.Context(), key)
		must(t, err)
		switch {
		case r.State == ledger.Scanned:
			continue
		case r.State == ledger.Settled && r.Lookups >= ledger.MaxLookups:
			ends[key] = "refund"
		case r.State == ledger.Settled:
			ends[key] = "owed"
		default:
			ends[key] = string(r.State)
		}
		if r.Receipt == nil {
			continue
		}
		var terms x402.Requirements
		must(t, json.Unmarshal(r.Terms, &terms))
		booked = append(booked, strings.Join([]string{strings.Split(key, "|")[3], terms.Amount, r.Receipt.Transaction}, " "))
	}
	sum := new(big.Int)
	for _, x := range o.sent {
		sum.Add(sum, x.Value)
		if x.Authorized && x.Value.Sign() > 0 {
			sent = append(sent, fmt.Sprintf("0x%x %s %s", x.Nonce, x.Value, x.Transaction))
		}
	}
	if has := o.Balance(t, o.payee); has.Cmp(sum) != 0 {
		t.Errorf("the payee has %s, sent were %s", has, sum)
	}
	slices.Sort(booked)
	slices.Sort(sent)
	equal(t, "payments on record, and those that were sent", sent, booked)
	equal(t, "ends of records", o.ends, ends)
}

// Whatever nodes, stores and processes do, every payment that reaches the payee
// ends redeemed, owed or as a refund that is due, once.
func TestReconcilerOnChain(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	calm := func() { o.faulty, o.proxy.batch, o.client.maxCalls = false, 0, defaultMaxCalls; o.proxy.reset(nil) }
	long := func(t *testing.T) {
		o.trade(t)
		o.Mine(t, 200)
		o.trade(t)
	}
	for _, c := range []struct {
		name  string
		trade func(t *testing.T)
		under func()
		runs  int // that it takes at least
	}{
		{"the first run begins at the oldest doubt", o.trade, func() {}, 1},
		// These two come early: after a thousand blocks the node forgets the state
		// that it goes back to.
		{"blocks that go away before they are safe", o.reorganised, func() {}, 1},
		{"blocks that go away while they are read", o.reorganisedInRun, func() {}, 1},
		{"capped ranges", long, func() { o.client.maxCalls = 12; o.proxy.reset(capped(t, 10, tooWide())) }, 3},
		{"no batches and few calls", long, func() { o.proxy.batch, o.client.maxCalls = 1, 10 }, 3},
		{"a store that fails", long, func() { o.faulty, o.client.maxCalls = true, 12; o.proxy.reset(capped(t, 20, tooWide())) }, 3},
	} {
		c.trade(t)
		c.under()
		runs := o.catchUp(t)
		calm()
		if runs < c.runs {
			t.Errorf("%s: %d runs, want %d at least", c.name, runs, c.runs)
		}
		t.Logf("%s: %d runs", c.name, runs)
		o.audit(t)
		if t.Failed() {
			t.Fatalf("after %s", c.name)
		}
	}
	o.catchUp(t)
	o.audit(t)
}

// reorganised undoes two payments that are not safe yet. One comes again, in
// another block, the other not.
func (o *office) reorganised(t *testing.T) {
	t.Helper()
	o.trade(t)
	gone, again := o.refused(t, "refused"), o.refused(t, "owed")
	kept := len(o.sent)
	o.move(t, gone)
	o.move(t, again)
	o.Mine(t, 3)
	o.reconcile(t)
	o.Call(t, "anvil_rollback", 5)
	o.sent = o.sent[:kept]
	o.Mine(t, 4)
	o.move(t, again)
}

// reorganisedInRun does it deeper than the node's safe block, while a run reads
// it: what was read is not recorded.
func (o *office) reorganisedInRun(t *testing.T) {
	t.Helper()
	safe := o.cursor(t) - 1
	for head, _ := o.Block(t, "latest"); head < safe+safeDepth+2; head++ {
		o.Mine(t, 1)
	}
	start, _ := o.Block(t, "latest")
	o.reconcile(t)
	gone, again := o.refused(t, "refused"), o.refused(t, "owed")
	for _, at := range []string{"eth_getTransactionReceipt", "eth_getLogs"} {
		kept := len(o.sent)
		o.move(t, gone)
		o.move(t, again)
		o.finish(t)
		o.proxy.reset(on(at, o.rollback(t, start)))
		before := o.cursor(t)
		if s := o.reconcile(t); !s.Unread || s.Received > 0 || o.cursor(t) != before {
			t.Errorf("reorganised at %s: %+v, and the cursor moved from %d to %d", at, s, before, o.cursor(t))
		}
		o.proxy.reset(nil)
		o.sent = o.sent[:kept]
		o.Mine(t, 5)
	}
	o.move(t, again)
}
