// Package payments puts payments into a ledger for tests. A payment can be in flight, settled
// without an answer, or abandoned by a process that was killed. The code is not part of
// package testbed, because the tests of the ledger use testbed.
package payments

import (
	"crypto/rand"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/boot"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// Ledger returns a ledger over a store, with the clock of this machine.
func Ledger(store ledger.Store) *ledger.Ledger { return ledger.New(store, time.Now, rand.Text) }

// At returns a ledger over a store. The ledger's clock always shows the given time.
func At(store ledger.Store, now time.Time) *ledger.Ledger {
	return ledger.New(store, func() time.Time { return now }, rand.Text)
}

// Claim claims a payment of $0.005 for a lookup, and returns the hold on the payment. The
// lease ends one minute after the given time. The payment expires five minutes after the given
// time.
func Claim(tb testing.TB, l *ledger.Ledger, key string, at time.Time) *ledger.Hold {
	tb.Helper()
	claim := testbed.Must(l.Claim(tb.Context(), ledger.Submission{
		Key:         key,
		AuthDigest:  key,
		SigDigest:   "s",
		Request:     "GET /v1/tools/dns?domain=example.com&type=A",
		Terms:       testbed.Must(json.Marshal(testbed.LocalTerms(tb).Requirements("5000"))),
		ValidBefore: at.Add(5 * time.Minute),
	}, at.Add(time.Minute)))
	if claim.Result != ledger.Held {
		tb.Fatalf("claim: %+v", claim)
	}
	return claim.Hold
}

// Transfer signs a transfer of $0.005 to the local payee, and claims it as a payment. It
// returns the signed transfer, which a test may send to a chain, the hold on the payment, and
// the payment's ledger key.
func Transfer(tb testing.TB, l *ledger.Ledger, payer *x402test.Wallet) (testbed.SignedTransfer, *ledger.Hold, string) {
	tb.Helper()
	payee := testbed.Must(x402.ParseAddress(boot.LocalPayTo))
	terms := testbed.Terms(payee)
	now := time.Now()
	signed := testbed.SignTransfer(tb, payer, testbed.Authorization(payer, payee, 5000, now.Add(5*time.Minute)))
	key := ledger.Key(terms.Network, strings.ToLower(terms.Asset), payer.Address().String(), signed.Authorization.Nonce)
	return signed, Claim(tb, l, key, now), key
}

// Owe makes a payment that is settled but has no answer, and returns its key.
func Owe(tb testing.TB, l *ledger.Ledger) string {
	tb.Helper()
	_, hold, key := Transfer(tb, l, testbed.Must(x402test.NewWallet(rand.Reader)))
	testbed.Check(hold.Settled(tb.Context(), ledger.Receipt{Transaction: "0x1"}, false))
	testbed.Check(hold.Release(tb.Context(), ledger.Failure{Code: "dns_timeout", Message: "m"}))
	return key
}

// Abandon changes the record of a payment. The record then looks as if the payment's process
// was killed an hour ago, before it sent the payment to the facilitator, and as if another
// payment has made the same purchase since then.
func Abandon(tb testing.TB, store ledger.Store, key string) {
	tb.Helper()
	r := ledgertest.Payment(tb, store, key)
	if r == nil {
		tb.Fatalf("there is no record %s", key)
	}
	ago := time.Now().Add(-time.Hour)
	r.Version++
	r.WriteID = "abandoned"
	r.Purchase = "purchase|" + key
	r.CreatedAt = ago
	r.UpdatedAt = ago
	r.LeaseUntil = ago
	r.ValidBefore = ago
	ledgertest.MustPut(tb, store, *r)
	ledgertest.MustPut(tb, store, ledger.Purchase{
		Row:        ledger.Row{Key: r.Purchase, Version: 1, WriteID: "bought", CreatedAt: ago, UpdatedAt: ago, ExpiresAt: ago.Add(24 * time.Hour)},
		Owner:      "another",
		AuthDigest: "another",
	})
}
