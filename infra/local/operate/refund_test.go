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

// meetingStore is a store in which the first two callers that reserve a transfer wait for each
// other.
type meetingStore struct {
	ledger.Store
	turns    chan struct{} // a channel with room for two values: the first two callers send one each, and later callers find the channel full
	arrivals sync.WaitGroup
}

func (m *meetingStore) Put(ctx context.Context, r ledger.Record) (ledger.Record, error) {
	if r.Kind() == ledger.KindRepayment {
		select {
		case m.turns <- struct{}{}:
			m.arrivals.Done()
			m.arrivals.Wait()
		default:
		}
	}
	return m.Store.Put(ctx, r)
}

// TestRefundAtOnce closes two debts with the same transaction at the same time. Each transfer
// in the transaction can close one debt. If there is one transfer, exactly one debt must be
// closed. If there are two transfers, both debts must be closed.
func TestRefundAtOnce(t *testing.T) {
	t.Parallel()
	for transfers, want := range map[int]int{1: 1, 2: 2} {
		memory := new(ledgertest.Memory)
		b := newBuyer(t, memory, time.Now().Add(-48*time.Hour))
		for n := range 2 {
			b.must(b.claim(keyOf(n)).Settled(t.Context(), receiptOf(paidIn), false))
		}
		node := startNode(t, []string{"5000", "5000"}[:transfers]...)
		at := &meetingStore{Store: memory, turns: make(chan struct{}, 2)}
		at.arrivals.Add(2)
		o := openInMemory(t, memory, at, node)
		var errs [2]error
		var both sync.WaitGroup
		for i := range errs {
			both.Go(func() {
				key, _ := parseKey(keyOf(i))
				errs[i] = o.repay(t.Context(), debt{debtKey: key, transaction: refundTx})
			})
		}
		both.Wait()
		closed := 0
		for i, err := range errs {
			r := ledgertest.Payment(t, memory, keyOf(i))
			if (err == nil) != (r.State == ledger.Refunded) || err != nil && !strings.Contains(err.Error(), "the record stays open: each transfer of $0.005") {
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
