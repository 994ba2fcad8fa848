package ledger_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
)

const soldKey = "payees|eip155:8453|0xa"

// recordPayee records a payment of an amount to a payee.
func recordPayee(t *testing.T, p *ledger.Payees, payee, amount string) {
	t.Helper()
	must(t, p.Record(t.Context(), "eip155:8453", "0xa", payee, amount))
}

// soldPayees returns the address and the lowest amount of each recorded payee.
func (d *testLedger) soldPayees(t *testing.T) (all []string) {
	t.Helper()
	payees, err := d.Sold(t.Context(), soldKey)
	must(t, err)
	for _, p := range payees {
		all = append(all, p.Address+" "+p.Cheapest)
	}
	return all
}

// TestPayees records payments with two Payees, which stand for two processes. The two together
// must write a payee once an hour, and once more if the price is lower. The payees that were
// paid longest ago must come first.
func TestPayees(t *testing.T) {
	d := newTestLedger(t)
	one, other := ledger.NewPayees(d.Ledger), ledger.NewPayees(d.Ledger)
	writes := func() int { return d.store.Calls(ledgertest.Create) + d.store.Calls(ledgertest.Replace) }
	for i, c := range []struct {
		payees        *ledger.Payees
		payee, amount string
		delay         time.Duration
		writes        int
		want          []string
	}{
		{payees: one, payee: "0x1", amount: "50", writes: 1, want: []string{"0x1 50"}},
		{payees: one, payee: "0x1", amount: "50", delay: time.Minute, want: []string{"0x1 50"}},
		{payees: other, payee: "0x1", amount: "60", want: []string{"0x1 50"}},
		{payees: other, payee: "0x2", amount: "7", writes: 1, want: []string{"0x1 50", "0x2 7"}},
		{payees: one, payee: "0x1", amount: "9", writes: 1, want: []string{"0x1 9", "0x2 7"}},
		{payees: one, payee: "0x1", amount: "90", delay: time.Hour, writes: 1, want: []string{"0x2 7", "0x1 9"}},
		{payees: other, payee: "0x1", amount: "9", want: []string{"0x2 7", "0x1 9"}},
		{payees: other, payee: "0x2", amount: "x", writes: 1, want: []string{"0x1 9", "0x2 7"}},
	} {
		d.advance(c.delay)
		before := writes()
		recordPayee(t, c.payees, c.payee, c.amount)
		if n := writes() - before; n != c.writes {
			t.Errorf("%d: %d writes, want %d", i, n, c.writes)
		}
		if got := d.soldPayees(t); !slices.Equal(got, c.want) {
			t.Errorf("%d: %q, want %q", i, got, c.want)
		}
	}
}

// TestForget checks that Forget deletes a payee only if the payee's entry has not changed
// since the test read it. A payee who was paid since then must stay.
func TestForget(t *testing.T) {
	d := newTestLedger(t)
	p := ledger.NewPayees(d.Ledger)
	recordPayee(t, p, "0x1", "1")
	recordPayee(t, p, "0x2", "1")
	all, err := d.Sold(t.Context(), soldKey)
	must(t, err)
	d.advance(2 * time.Hour)
	recordPayee(t, p, "0x2", "1")
	for _, payee := range all {
		must(t, d.Forget(t.Context(), soldKey, payee))
	}
	if got := d.soldPayees(t); !slices.Equal(got, []string{"0x2 1"}) {
		t.Errorf("left are %q", got)
	}
}

// TestManyPayees checks that a full record drops the payees that were paid longest ago.
func TestManyPayees(t *testing.T) {
	d := newTestLedger(t)
	full := ledger.Sold{Row: ledger.Row{Key: soldKey, Version: 1, WriteID: "w"}}
	for n := range 1000 {
		full.Payees = append(full.Payees, ledger.Payee{Address: fmt.Sprint("0x", n), Until: d.clock.Add(time.Duration(n) * time.Second), Cheapest: "1"})
	}
	ledgertest.MustPut(t, d.memory, full)
	for n := range 3 {
		d.advance(time.Second)
		recordPayee(t, ledger.NewPayees(d.Ledger), fmt.Sprint("another ", n), "1")
	}
	if got := d.soldPayees(t); len(got) != 1000 || got[0] != "0x3 1" || got[999] != "another 2 1" {
		t.Errorf("%d payees, from %q to %q", len(got), got[0], got[len(got)-1])
	}
}

// TestPayeesAtOnce checks that no payee is lost if two processes record payees at the same
// time. If the store fails, Payees.Record must return an error, and the next payment must
// record the missing payee.
func TestPayeesAtOnce(t *testing.T) {
	d := newTestLedger(t)
	meets := true
	d.store.Decide = func(op ledgertest.Op, _ int, r ledger.Record) ledgertest.Fault {
		if op != ledgertest.Fetch && meets { // another process writes first
			meets = false
			recordPayee(t, ledger.NewPayees(d.Ledger), "0x2", "1")
		}
		return ledgertest.None
	}
	recordPayee(t, ledger.NewPayees(d.Ledger), "0x1", "1")
	if got := d.soldPayees(t); !slices.Equal(got, []string{"0x1 1", "0x2 1"}) {
		t.Errorf("%q", got)
	}
	p := ledger.NewPayees(d.Ledger)
	for _, op := range []ledgertest.Op{ledgertest.Fetch, ledgertest.Replace} {
		d.store.Decide = ledgertest.Failing(op, ledgertest.FailBefore, d.store.Calls(op)+1)
		if err := p.Record(t.Context(), "eip155:8453", "0xa", "0x3", "1"); !errors.Is(err, ledgertest.ErrInjected) {
			t.Errorf("a failed %s: %v", op, err)
		}
	}
	recordPayee(t, p, "0x3", "1")
	if got := d.soldPayees(t); len(got) != 3 {
		t.Errorf("%q", got)
	}
}
