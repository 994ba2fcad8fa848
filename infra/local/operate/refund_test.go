package main

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
)

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

func (m *meeting) Put(ctx context.Context, r ledger.Record) (*ledger.Record, error) {
	if r.State == ledger.Repaid {
		select {
		case m.turns <- struct{}{}:
			m.both.Done()
			m.both.Wait()
		default:
		}
	}
	return m.Store.Put(ctx, r)
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
				key, _ := readKey(keyOf(i))
				errs[i] = o.repay(t.Context(), due{debtKey: key, transaction: back})
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
