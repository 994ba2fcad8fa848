package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/file"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
)

// What to transfer, exactly; the next one who asks is told who has begun.
func TestRefundDue(t *testing.T) {
	t.Parallel()
	path, paid := stored(t, fill)
	env := map[string]string{"LEDGER_FILE": path}
	want := fmt.Sprintf(`a refund is due
amount   0.005 USDC (5000 atomic units)
token    0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913
network  eip155:8453
to       %s
paid     %s, transaction %s
for      %s
why      5 of 5 lookups, the last: upstream?[31m, m

Transfer exactly that, from any account of yours. Then close the record:
  make refund KEY='%s' TRANSACTION=0x...
`, payer, minute(paid), paidIn, lookup, keyOf(3))
	for i, key := range []string{keyOf(3), strings.ToUpper(keyOf(3)), "'" + keyOf(3) + "'\n"} {
		out, notes := operate(t, 0, env, "refund", key)
		begun := record(t, path, keyOf(3)).SendingBack
		if begun == nil || begun.By != operator() || !strings.Contains(begun.By, "@") {
			t.Fatalf("on record is %+v", begun)
		}
		told := ""
		if i > 0 {
			told = "this refund was begun at " + minute(begun.At) + ", by " + begun.By + ": ask whether it is on its way before you transfer anything\n\n"
		}
		if out != told+want || notes != "" {
			t.Errorf("%q printed\n%s%s, want\n%s%s", key, out, notes, told, want)
		}
	}
	out, _ := operate(t, 0, env, "owed")
	prints(t, out, "refund, begun "+minute(record(t, path, keyOf(3)).SendingBack.At)+" by "+operator())
}

// Rows with nothing due say what is so, and what to do.
func TestRefundNotDue(t *testing.T) {
	t.Parallel()
	path, paid := stored(t, fill, complete)
	env := map[string]string{"LEDGER_FILE": path}
	for n, says := range map[int]string{
		1: "it is not known whether this was paid", 2: "until " + minute(paid.Add(24*time.Hour)) + " (1 of 5 lookups are used)",
		4: "this payment was answered at " + minute(paid), 5: "the facilitator refused this (insufficient_funds), which is not proven",
		6: "was refunded already, by transaction " + back, 7: "make payer WALLET=" + payer,
	} {
		for _, args := range [][]string{{"refund", keyOf(n)}, {"refund", "-force", keyOf(n), "0x" + strings.Repeat("ab", 32)}} {
			if out, notes := operate(t, exitFailed, env, args...); out != "" || !strings.Contains(notes, says) {
				t.Errorf("%d: printed %q, noted %q, want %q", n, out, notes, says)
			}
		}
	}
	out, _ := operate(t, 0, env, "refund", keyOf(6), strings.ToUpper(back))
	prints(t, out, "closed on that transaction")
}

// A record is closed on a transaction that has sent exactly the amount to the
// payer, once for each transfer in it, and on no other. A transfer that another
// record has reserved closes none but that one, also when its tool was stopped before
// it closed the record.
func TestRefundCloses(t *testing.T) {
	t.Parallel()
	// reserved is a tool that was stopped on behalf of a record.
	reserved := func(owner int) filling { return func(b *buyer) { b.reserves(owner, 0) } }
	const once = "of the transfers of $0.005 to " + payer + " in that transaction, 1 known, each has closed another record, or is about to"
	for name, c := range map[string]struct {
		also   filling // beside fill
		node   *node   // nil: no RPC_URL
		env    map[string]string
		force  bool
		closed bool
		says   string
	}{
		"as it should be":        {node: &node{sent: []int{5000}}, closed: true, says: "checked on the chain, block 16"},
		"one of several":         {node: &node{sent: []int{1, 5000}}, closed: true, says: "checked on the chain"},
		"too little":             {node: &node{sent: []int{4999}}, force: true, says: "who got $0.004999 from 0x90F79bf6EB2c4f870365E785982E1f101E93b906 in it"},
		"too much":               {node: &node{sent: []int{5001}}, force: true, says: "who got $0.005001"},
		"in two halves":          {node: &node{sent: []int{2500, 2500}}, force: true, says: "who got $0.0025 from"},
		"nothing":                {node: &node{}, force: true, says: "who got nothing in it"},
		"from the payer himself": {node: &node{from: payer, sent: []int{5000}}, force: true, says: "is not a transfer of exactly $0.005"},
		"failed":                 {node: &node{failed: true}, force: true, says: "has moved nothing"},
		"not there":              {node: &node{unknown: true}, force: true, says: "in no block"},
		"no node":                {says: "RPC_URL names no node.\nThe record stays open. FORCE=1 closes it"},
		"no node, forced":        {force: true, closed: true, says: "the chain was not asked"},
		"a node that is down":    {node: &node{down: true}, says: "FORCE=1"},
		"the same, forced":       {node: &node{down: true}, force: true, closed: true, says: "the chain was not asked"},
		"another token":          {node: &node{sent: []int{5000}}, env: map[string]string{"USDC_ASSET": sender}, says: "NETWORK and USDC_ASSET are eip155:8453 and " + sender},
		"another chain":          {node: &node{sent: []int{5000}}, env: map[string]string{"NETWORK": "eip155:84532"}, says: "NETWORK and USDC_ASSET are eip155:84532"},
		"another's transfer":     {also: complete, node: &node{sent: []int{5000}}, says: once},
		"another's and its own":  {also: complete, node: &node{sent: []int{5000, 5000}}, closed: true, says: "closed: $0.005 went back"},
		"reserved for another":   {also: reserved(4), node: &node{sent: []int{5000}}, says: once},
		"another's, forced":      {also: complete, force: true, says: once},
		"before the payment":     {node: &node{sent: []int{5000}, early: true}, force: true, says: "a refund comes after it"},
		"after no payment":       {node: &node{sent: []int{5000}, unpaid: true}, says: "that the transaction is later than the payment: the payment's transaction: "},
		"the same, forced then":  {node: &node{sent: []int{5000}, unpaid: true}, force: true, closed: true, says: "the chain was not asked"},
		"reserved for it":        {also: reserved(3), node: &node{sent: []int{5000}}, closed: true, says: "closed: $0.005 went back"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fillings := []filling{fill}
			if c.also != nil {
				fillings = append(fillings, c.also)
			}
			path, _ := stored(t, fillings...)
			env := map[string]string{"LEDGER_FILE": path}
			if c.node != nil {
				env["RPC_URL"] = startNode(t, *c.node).URL + "/s3cr3t"
			}
			maps.Copy(env, c.env)
			args, code := []string{"refund", fmt.Sprintf("-force=%v", c.force), keyOf(3), strings.ToUpper(back)}, exitFailed
			if c.closed {
				code = 0
			}
			out, notes := operate(t, code, env, args...)
			if prints(t, out+notes, c.says); strings.Contains(out+notes, "s3cr3t") {
				t.Errorf("it says the node's key: %q", out+notes)
			}
			r := record(t, path, keyOf(3))
			if c.closed != (r.State == ledger.Refunded && r.Refund == back) {
				t.Errorf("the record is %s by %s", r.State, r.Refund)
			}
			if !c.closed {
				return
			}
			// Sent again it is done, and nothing is due any more.
			out, _ = operate(t, 0, env, args...)
			prints(t, out, "closed on that transaction")
			out, _ = operate(t, 0, env, "owed")
			prints(t, out, "refunds due: 0")
		})
	}
}

// A debt is closed as answered on the transaction that made its payment, once, and not
// while somebody pays it back. That transaction is not a refund. The payer is told of none,
// and the books have no difference.
func TestAnswered(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	for n := 1; n <= 2; n++ {
		s.move(n, "5000")
		s.testify(n, "5000")
	}
	r, err := s.Fetch(t.Context(), keyOf(2))
	s.must(err)
	_, _, err = s.SendBack(t.Context(), *r, "ann@desk")
	s.must(err)
	s.must(s.store.Close())
	env := s.env()
	for _, c := range []struct {
		code, n int
		args    string
		says    string
	}{
		{exitFailed, 1, "answered KEY " + back, "the record stays open: its payment was made in transaction " + txOf(1)},
		{exitFailed, 1, "refund KEY TX", "is the payment, not a refund of it.\nIf the log says that the payment was answered, close it with make answered KEY='" + keyOf(1)},
		{exitFailed, 2, "answered KEY TX", "a refund of it was begun at " + minute(s.day.Add(12*time.Hour)) + ", by ann@desk"},
		{0, 1, "answered KEY TX", "closed: $0.005 of " + payer + " was answered, says " + operator()},
		{0, 1, "answered KEY TX", "there is nothing left to do"},
		{exitFailed, 1, "refund KEY", "nothing is due: this payment was closed as answered before the ledger was restored, says " + operator()},
		{0, 2, "refund -force KEY TX", "A payer who repeats the payment is told that it was used"},
		{0, 0, "owed", "nothing is owed, and nothing in doubt"},
		{0, 0, "payer " + payer, "has paid 2 times ($0.01), got 2 answers, and is owed nothing."},
		{0, 0, "books " + s.day.Format(time.DateOnly), "total   2 answers sold for $0.01, $0.01 received in 2 payments; no differences"},
	} {
		line := strings.NewReplacer("KEY", keyOf(c.n), "TX", txOf(c.n)).Replace(c.args)
		out, notes := operate(t, c.code, env, strings.Fields(line)...)
		prints(t, out+notes, c.says)
	}
}

// meeting is a store at which the first two callers that reserve a transfer wait for each
// other.
type meeting struct {
	ledger.Store
	turns chan struct{} // 2
	both  sync.WaitGroup
}

func (m *meeting) Create(ctx context.Context, r ledger.Record) (*ledger.Record, error) {
	select {
	case m.turns <- struct{}{}:
		m.both.Done()
		m.both.Wait()
	default:
	}
	return m.Store.Create(ctx, r)
}

// Two debts that are closed at the same time on one transfer: one is closed, and the
// other on the next transfer, if there is one.
func TestRefundAtOnce(t *testing.T) {
	t.Parallel()
	for transfers, want := range map[int]int{1: 1, 2: 2} {
		memory := new(ledgertest.Memory)
		b := newBuyer(t, memory, time.Now().Add(-48*time.Hour))
		for n := range 2 {
			b.must(b.claim(keyOf(n)).Settled(t.Context(), receiptOf(paidIn), false))
		}
		n := startNode(t, node{sent: []int{5000, 5000}[:transfers]})
		at := &meeting{Store: memory, turns: make(chan struct{}, 2)}
		at.both.Add(2)
		o := inMemory(t, memory, at, n.URL)
		var errs [2]error
		var both sync.WaitGroup
		for i := range errs {
			both.Go(func() {
				debt, err := readDebt([]string{keyOf(i), back})
				if err == nil {
					err = o.refund(t.Context(), debt, false)
				}
				errs[i] = err
			})
		}
		both.Wait()
		closed := 0
		for i, err := range errs {
			r, failed := memory.Fetch(t.Context(), keyOf(i))
			b.must(failed)
			if (err == nil) != (r.State == ledger.Refunded) || err != nil && !strings.Contains(err.Error(), "the record stays open: of the transfers of $0.005") {
				t.Errorf("%d transfers: record %d is %s, %v", transfers, i, r.State, err)
			}
			if err == nil {
				closed++
			}
		}
		if closed != want {
			t.Errorf("%d transfers closed %d records, want %d", transfers, closed, want)
		}
	}
}

// A record that contradicts itself is nobody's to pay.
func TestRefundCorrupt(t *testing.T) {
	t.Parallel()
	good := x402.Terms{Network: "eip155:8453", Asset: asset, PayTo: payer}
	for name, c := range map[string]struct {
		spoil func(*ledger.Record, *x402.Requirements)
		says  string
	}{
		"no amount":       {func(_ *ledger.Record, q *x402.Requirements) { q.Amount = "" }, "its amount"},
		"nothing":         {func(_ *ledger.Record, q *x402.Requirements) { q.Amount = "0" }, "its amount"},
		"a float":         {func(_ *ledger.Record, q *x402.Requirements) { q.Amount = "5e3" }, "its amount"},
		"over a uint256":  {func(_ *ledger.Record, q *x402.Requirements) { q.Amount = strings.Repeat("9", 78) }, "its amount"},
		"another network": {func(_ *ledger.Record, q *x402.Requirements) { q.Network = "eip155:1" }, "another network"},
		"another token":   {func(_ *ledger.Record, q *x402.Requirements) { q.Asset = payer }, "another network or token"},
		"no receipt":      {func(r *ledger.Record, _ *x402.Requirements) { r.Receipt = nil }, "no receipt"},
		"another payer":   {func(r *ledger.Record, _ *x402.Requirements) { r.Receipt.Payer = sender }, "another payer"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			terms := good.Requirements("5000")
			r := ledgertest.First(keyOf(8))
			r.State, r.SettledAt, r.Lookups, r.ExpiresAt = ledger.Settled, r.CreatedAt, ledger.MaxLookups, time.Time{}
			r.Receipt = &ledger.Receipt{Transaction: "0x08", Payer: payer}
			c.spoil(&r, &terms)
			var err error
			if r.Terms, err = json.Marshal(terms); err != nil {
				t.Fatal(err)
			}
			path, _ := stored(t)
			s, err := file.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			_, err = s.Create(t.Context(), r)
			if err := errors.Join(err, s.Close()); err != nil {
				t.Fatal(err)
			}
			out, notes := operate(t, exitFailed, map[string]string{"LEDGER_FILE": path}, "refund", "-force", keyOf(8), back)
			if out != "" || !strings.Contains(notes, c.says) {
				t.Errorf("printed %q, noted %q; want %q", out, notes, c.says)
			}
		})
	}
}
