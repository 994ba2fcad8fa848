package runbook

import (
	"crypto/rand"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/infra/testbed/cloud"
	"github.com/hostfacts/hostfacts/infra/testbed/payments"
	"github.com/hostfacts/hostfacts/pkg/boot"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// debts describes a ledger with one payment for each case that the operator's commands handle,
// and the chain with the transfers of these payments.
type debts struct {
	payer                                            *x402test.Wallet
	owedKey, otherOwedKey, doubtKey, deadKey, origin string
	node                                             string

	mu        sync.Mutex
	transfers []x402test.Transfer
}

// chainTransfers returns a copy of the transfers that are on the chain now.
func (d *debts) chainTransfers() []x402test.Transfer {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.transfers)
}

func newDebts(t testing.TB, server cloud.Dynamo) *debts {
	t.Helper()
	d := &debts{payer: testbed.Must(x402test.NewWallet(rand.Reader))}
	store := server.Open(rolesTable)
	long := time.Now().Add(-25 * time.Hour)
	transfer := func() (key, transaction string) {
		nonce := strings.ToLower(testbed.Must(x402test.NewWallet(rand.Reader)).Address().String()[2:])
		key = ledger.Key(x402.Base, strings.ToLower(testbed.BaseUSDC), d.payer.Address().String(), "0x"+strings.Repeat("0", 24)+nonce)
		transaction = "0x" + nonce + strings.Repeat("1", 24)
		d.transfers = append(d.transfers, x402test.Transfer{Key: key, Transaction: transaction, Payee: boot.LocalPayTo, Value: "5000", At: long})
		return key, transaction
	}
	l := ledger.New(store, func() time.Time { return long }, rand.Text)
	for _, key := range []*string{&d.owedKey, &d.otherOwedKey} {
		var transaction string
		*key, transaction = transfer()
		h := payments.Claim(t, l, *key, long)
		testbed.Check(h.Settled(t.Context(), ledger.Receipt{Transaction: transaction}, true))
		testbed.Check(h.Release(t.Context(), ledger.Failure{Code: "dns_timeout", Message: "m"}))
	}
	d.doubtKey, _ = transfer()
	testbed.Check(payments.Claim(t, l, d.doubtKey, long).End(t.Context(), ledger.EventUncertain, "timeout", ""))
	d.deadKey, _ = transfer()
	d.transfers = d.transfers[:len(d.transfers)-1]
	payments.Claim(t, l, d.deadKey, long)
	payments.Abandon(t, store, d.deadKey)
	transfer() // this transfer has no record in the ledger
	// The ledger also names a former payee. All authorizations to that payee have expired.
	former := ledger.New(store, func() time.Time { return long.Add(-2 * 24 * time.Hour) }, rand.Text)
	testbed.Check(ledger.NewPayees(former).Record(t.Context(), x402.Base, strings.ToLower(testbed.BaseUSDC), strings.ToLower(testbed.Account(7)), "5000"))
	node := testbed.PlayNode{ChainID: 8453, Now: time.Now, Moved: d.chainTransfers}
	d.node = testbed.Serve(t, node)
	d.origin = serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"checks":{}}`)) })
	return d
}

// addRefund adds a refund to the chain, and returns the hash of the refund's transaction.
func (d *debts) addRefund() string {
	const hash = "0x00000000000000000000000000000000000000000000000000000000000000bb"
	d.mu.Lock()
	defer d.mu.Unlock()
	d.transfers = append(d.transfers, x402test.Transfer{
		Key: ledger.Key(x402.Base, strings.ToLower(testbed.BaseUSDC), testbed.Account(5), ""), Transaction: hash,
		Payee: d.payer.Address().String(), Value: "5000", At: time.Now(),
	})
	return hash
}
