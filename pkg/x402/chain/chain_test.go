package chain

import (
	"cmp"
	"math/big"
	"slices"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/reconcile"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// The tests in this file ask a real Ethereum node about a real token. They show that the
// simulated chain of the other tests behaves like a real one.

// realChain is a real Ethereum node with the block time of Base. Its payer has money.
type realChain struct {
	world
	*testbed.Chain
	wallet *x402test.Wallet     // the payer's wallet
	sent   []reconcile.Transfer // the transfers to the payee that the test has made
}

func newRealChain(t testing.TB) *realChain {
	t.Helper()
	b := &realChain{Chain: testbed.StartChain(t), wallet: wallet(t)}
	b.clock = func() time.Time { return b.Now(t) }
	b.payer, b.payee, b.other = b.wallet.Address(), testbed.Address(t, testbed.Account(3)), testbed.Address(t, testbed.Account(4))
	b.SetBlockInterval(t, 2*time.Second)
	b.Mint(t, b.payer, 1_000_000)
	b.Mint(t, b.other, 1_000_000)
	b.ask(t, testbed.ProxyTo(t, b.URL))
	return b
}

func wallet(t testing.TB) *x402test.Wallet { return testbed.NewClient(t, nil).Wallet }

// authorize returns an unsigned payment of the price to the payee.
func (b *realChain) authorize(t testing.TB) x402.Authorization {
	return testbed.Authorization(b.wallet, b.payee, price, b.Now(t).Add(window))
}

// sameNonce returns a copy of the authorization with the same nonce, but another payee and
// value.
func sameNonce(a x402.Authorization, to x402.Address, value string) x402.Authorization {
	a.To, a.Value = to.Checksum(), value
	return a
}

// pay makes the transfer of an authorization.
func (b *realChain) pay(t testing.TB, a x402.Authorization) testbed.ChainReceipt {
	return b.Transfer(t, testbed.SignTransfer(t, b.wallet, a))
}

// payCall returns the call data with which a contract makes the transfer of an authorization.
func (b *realChain) payCall(t testing.TB, a x402.Authorization) []byte {
	return testbed.TransferCall(t, testbed.SignTransfer(t, b.wallet, a))
}

// claimed returns a new authorization and the question about it. The question says that the
// authorization was first claimed at the chain's present time.
func (b *realChain) claimed(t testing.TB) (x402.Authorization, x402.Question) {
	t.Helper()
	a := b.authorize(t)
	return a, x402.Question{
		Payer: b.payer, Payee: b.payee, Value: big.NewInt(price),
		Nonce: testbed.NonceBytes(t, a.Nonce), ValidBefore: b.Now(t).Add(window), Since: b.Now(t),
	}
}

// recordSent records that a transaction made the given transfers to the payee. It appends them
// to b.sent.
func (b *realChain) recordSent(t testing.TB, tx testbed.ChainReceipt, transfers ...reconcile.Transfer) {
	t.Helper()
	if tx.Pending || !tx.Success {
		t.Fatalf("transaction %+v did not succeed", tx)
	}
	_, at := b.Block(t, hexQuantity(tx.Block))
	for _, x := range transfers {
		x.Transaction, x.Block, x.BlockHash, x.Time, x.To = tx.Hash, tx.Block, b.blockHash(t, tx.Block), at, b.payee
		b.sent = append(b.sent, x)
	}
}

// transferOf returns the transfer that an authorization should cause. Its place on the chain
// is not set.
func transferOf(t testing.TB, a x402.Authorization) reconcile.Transfer {
	t.Helper()
	value, _ := new(big.Int).SetString(a.Value, 10)
	return reconcile.Transfer{From: testbed.Address(t, a.From), Value: value, Authorized: true, Nonce: testbed.NonceBytes(t, a.Nonce)}
}

// depositOf returns a transfer that was made without an authorization.
func depositOf(from x402.Address, value int64) reconcile.Transfer {
	return reconcile.Transfer{From: from, Value: big.NewInt(value)}
}

// payment makes a payment of the price to the payee, and records it in b.sent.
func (b *realChain) payment(t testing.TB) {
	t.Helper()
	a := b.authorize(t)
	b.recordSent(t, b.pay(t, a), transferOf(t, a))
}

// finish makes all transactions safe, and returns the safe block.
func (b *realChain) finish(t testing.TB) uint64 {
	t.Helper()
	b.Mine(t, safeDepth+1)
	safe, _ := b.Block(t, "safe")
	return safe
}

// checkRead fails the test unless got holds exactly the transfers that recordSent has
// recorded, in the order of the chain.
func (b *realChain) checkRead(t testing.TB, got []reconcile.Transfer) {
	t.Helper()
	equal(t, "transfers that were sent, and read", formatTransfers(b.sent), formatTransfers(got))
	if !slices.IsSortedFunc(got, func(a, b reconcile.Transfer) int {
		return cmp.Or(cmp.Compare(a.Block, b.Block), cmp.Compare(a.LogIndex, b.LogIndex))
	}) {
		t.Errorf("transfers are not in order: %+v", got)
	}
}

// TestReorganisation checks that the findings and the list of transfers follow a
// reorganisation, which removes a payment and lets the same authorization pay in another block.
func TestReorganisation(t *testing.T) {
	t.Parallel()
	b := newRealChain(t)
	b.Mine(t, 2)
	start, _ := b.Block(t, "latest")
	a, q := b.claimed(t)
	tx := b.pay(t, a)
	q.Transaction = tx.Hash
	b.expect(t, q, paid(tx.Hash), callsHint)
	b.Call(t, "anvil_rollback", 1)
	b.expect(t, q, stillOpen(reasonOpen), callsHint[:1], callsOpen)

	// The next reorganisations remove even the block that the node had called safe. A call of
	// Transfers that is under way then fails, and later calls return only the transfers that
	// are on the chain.
	b.recordSent(t, b.pay(t, a), transferOf(t, a))
	b.payment(t)
	b.finish(t)
	for _, at := range []string{topicUsed, topicTransfer} {
		b.proxy.reset(onMethod(methodLogs, onMention(at, func(*call) bool {
			if n, _ := b.Block(t, "latest"); n > start {
				b.Call(t, "anvil_rollback", n-start)
			}
			return false
		})))
		b.expectError(t, start+1, "")
		// After the rollback, only the first payment is made again, in another block.
		b.Mine(t, 5)
		b.sent = nil
		b.recordSent(t, b.pay(t, a), transferOf(t, a))
		b.finish(t)
		b.proxy.reset(nil)
		got, _ := b.readAll(t, start+1)
		b.checkRead(t, got)
	}
	b.Call(t, "anvil_rollback", safeDepth+2)
	b.Cancel(t, b.wallet, a.Nonce)
	q.Transaction = ""
	b.expect(t, q, neverPaid(reasonCancelled), callsSearch)
}

// TestTransfers checks that Transfers reads the token's transfers to the payee, in whatever way
// they are made, and nothing else.
func TestTransfers(t *testing.T) {
	t.Parallel()
	b := newRealChain(t)
	second, zero := wallet(t), x402.Address{}
	b.Mint(t, second.Address(), 1_000_000)
	theirs := func() (x402.Authorization, []byte) {
		a := testbed.Authorization(second, b.payee, price, b.Now(t).Add(window))
		return a, testbed.TransferCall(t, testbed.SignTransfer(t, second, a))
	}
	deposit := func(from x402.Address, value int64) {
		b.recordSent(t, b.Deposit(t, from.Checksum(), b.payee, value), depositOf(from, value))
	}
	b.payment(t)
	nothing := sameNonce(b.authorize(t), b.payee, "0")
	b.recordSent(t, b.pay(t, nothing), transferOf(t, nothing))
	deposit(b.other, 77)
	deposit(b.other, price)
	deposit(b.payee, 5) // a transfer of the payee to itself
	b.Mint(t, b.other, 1)
	b.Deposit(t, b.payee.Checksum(), b.other, 3) // money that leaves the payee
	b.pay(t, sameNonce(b.authorize(t), b.other, "9"))
	b.Cancel(t, b.wallet, b.authorize(t).Nonce)
	b.Pause(t, true)
	if b.TryTransfer(t, testbed.SignTransfer(t, b.wallet, b.authorize(t))).Success {
		t.Fatal("a paused token moved money")
	}
	b.Pause(t, false)
	// Each of these transactions has several payments with the same values, mixed with other
	// people's payments and plain transfers. Each authorization must be read separately.
	for _, noisy := range []bool{false, true} {
		a1, q1 := b.claimed(t)
		a2, q2 := b.claimed(t)
		a3, q3 := b.claimed(t)
		less, q4 := b.claimed(t)
		gone, q5 := b.claimed(t)
		less = sameNonce(less, b.payee, "1") // it pays less than question q4 asks about
		b1, call1 := theirs()
		b2, call2 := theirs()
		tx := b.Batch(t, noisy,
			testbed.MintCall(b.payee, price),
			call1, b.payCall(t, less), b.payCall(t, a1),
			testbed.CancelCall(t, b.wallet, gone.Nonce),
			b.payCall(t, sameNonce(a3, b.other, "5000")), testbed.MintCall(b.payee, price),
			b.payCall(t, a2), testbed.MintCall(b.other, price), call2,
			testbed.MintCall(b.payee, 1),
		)
		b.recordSent(t, tx, depositOf(zero, price), transferOf(t, b1), transferOf(t, less), transferOf(t, a1),
			depositOf(zero, price), transferOf(t, a2), transferOf(t, b2), depositOf(zero, 1))
		for i, q := range []x402.Question{q1, q2, q3, q4, q5} {
			want := [...]x402.Finding{paid(tx.Hash), paid(tx.Hash), neverPaid(reasonOtherTransfer), neverPaid(reasonOtherTransfer), neverPaid(reasonCancelled)}[i]
			b.expect(t, q, want, callsSearch)
			b.expectHinted(t, q, tx.Hash, want)
		}
	}
	safe := b.finish(t) + 1
	late := sameNonce(b.authorize(t), b.payee, "1")
	b.pay(t, late) // its block is not safe yet, so Transfers must not return it
	b.proxy.reset(nil)
	batch, err := b.readNext(t, 0)
	if err != nil || batch.Next != safe+1 || batch.Safe != safe || !batch.Done() {
		t.Errorf("read up to %d of %d: %v", batch.Next, safe, err)
	}
	b.checkRead(t, batch.Transfers)
	equal(t, "messages: latest, safe, logs with the last header, headers with uses", 4, b.proxy.messages())
	batch, err = b.readNext(t, batch.Next)
	if err != nil || len(batch.Transfers) > 0 || batch.Next != safe+1 {
		t.Errorf("with nothing new: %+v, %v", batch, err)
	}
}
