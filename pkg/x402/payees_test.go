package x402_test

import (
	"context"
	"crypto/rand"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
)

// TestNotesPayee checks that the payee of a payment is on record before the facilitator
// answers, and that the payment is sent even if the payee cannot be recorded. A request that
// is answered from a record writes no payee.
func TestNotesPayee(t *testing.T) {
	key := ledger.SoldKey(terms().Network, strings.ToLower(terms().Asset))
	withHarness(t, nil, func(t *testing.T, b *harness) {
		l := ledger.New(b.store, time.Now, rand.Text)
		b.payees = ledger.NewPayees(l)
		b.settle = func(ctx context.Context, _ int) x402.Settlement {
			time.Sleep(time.Second)
			all, err := l.Sold(ctx, key)
			if err != nil || len(all) != 1 || all[0].Address != strings.ToLower(terms().PayTo) || all[0].Cheapest != "5000" || all[0].Until.Before(time.Now()) {
				t.Errorf("when it is settled, on record are %+v, %v", all, err)
			}
			return moved()
		}
		h := b.sign(nil)
		b.expect("answered", b.ask(h, "GET /a"), answered())
		before := must(l.Sold(t.Context(), key))
		time.Sleep(2 * time.Hour)
		b.expect("replayed", b.ask(h, "GET /a"), answered())
		if after := must(l.Sold(t.Context(), key)); !slices.Equal(before, after) {
			t.Errorf("a replay noted %+v", after)
		}
		b.store.Decide = func(_ ledgertest.Op, _ int, r ledger.Record) ledgertest.Fault {
			if r.Head().Key == key {
				return ledgertest.FailBefore
			}
			return ledgertest.None
		}
		b.settle = settleWith(moved())
		b.expect("not noted", b.ask(b.sign(nil), "GET /b"), answered())
	})
}
