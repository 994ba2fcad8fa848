package chain

import (
	"fmt"
	"math/big"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/sha3"

	"github.com/hostfacts/hostfacts/infra/chaintest"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

func TestConstants(t *testing.T) {
	t.Parallel()
	for signature, want := range map[string]string{
		"AuthorizationUsed(address,bytes32)":     topicUsed,
		"AuthorizationCanceled(address,bytes32)": topicCanceled,
		"Transfer(address,address,uint256)":      topicTransfer,
		"authorizationState(address,bytes32)":    callState,
	} {
		h := sha3.NewLegacyKeccak256()
		h.Write([]byte(signature))
		if got := fmt.Sprintf("0x%x", h.Sum(nil))[:len(want)]; got != want {
			t.Errorf("%s is %s, want %s", signature, want, got)
		}
	}
}

func TestUnused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, q := w.claimed(t)
	w.expect(t, q, open(reasonOpen), callsOpen)

	// Somebody else's use of the same nonce, and the payer's own in another
	// token, are none of ours.
	other := wallet(t)
	w.Mint(t, other.Address(), price)
	theirs := a
	theirs.From = other.Address().Checksum()
	w.Transfer(t, chaintest.Sign(t, other, theirs))
	w.expect(t, q, open(reasonOpen), callsOpen)

	// A block before its end it is open, at its end it is not.
	w.IncreaseTime(t, q.ValidBefore.Sub(w.Now(t))-time.Second)
	w.expect(t, q, open(reasonOpen), callsOpen)
	w.IncreaseTime(t, time.Second)
	w.expect(t, q, open(reasonNotSafe), callsNotSafe)
	if r := w.tryPay(t, a); r.Success {
		t.Error("the token took an authorization at its end")
	}

	// 32 blocks later the block at its end is safe, and not one earlier.
	end, _ := w.Block(t, "latest")
	w.Mine(t, 30)
	w.expect(t, q, open(reasonNotSafe), callsNotSafe)
	w.Mine(t, 1)
	if n, _ := w.Block(t, "safe"); n != end-1 { // one transaction came after the end
		t.Fatalf("block %d is safe, want %d", n, end-1)
	}
	w.expect(t, q, never(reasonExpired), callsExpired)
}

func TestPaid(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for name, submit := range map[string]func(*testing.T, chaintest.Signed) chaintest.Receipt{
		"bytes":   func(t *testing.T, s chaintest.Signed) chaintest.Receipt { return w.Transfer(t, s) },
		"v, r, s": func(t *testing.T, s chaintest.Signed) chaintest.Receipt { return w.TransferSplit(t, s) },
		"in a call": func(t *testing.T, s chaintest.Signed) chaintest.Receipt {
			return w.Batch(t, true, chaintest.TransferCall(t, s))
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, q := w.claimed(t)
			before := w.Balance(t, w.payee)
			tx := submit(t, chaintest.Sign(t, w.payer, a))
			if got := before.Sub(w.Balance(t, w.payee), before); got.Int64() != price {
				t.Fatalf("%d moved, want %d", got, price)
			}
			w.expectBoth(t, q, tx.Hash, paid(tx.Hash), callsSearch)

			// The value and the payee are exact.
			less := q
			less.Value = big.NewInt(price - 1)
			w.expectBoth(t, less, tx.Hash, never(reasonElse), callsSearch)
			elsewhere := w.question(t, a)
			elsewhere.Payee = w.other
			w.expect(t, elsewhere, never(reasonElse), callsSearch)
		})
	}
}

// A hash from outside helps when it is right and does no harm when it is not.
func TestHint(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	unrelated := w.pay(t, w.authorize(t))
	a, q := w.claimed(t)
	w.Pause(t, true)
	failed := w.tryPay(t, a)
	if failed.Success {
		t.Fatal("a paused token moved money")
	}
	w.Pause(t, false)
	hints := map[string]struct {
		hash  string
		asked bool
	}{
		"unrelated":  {unrelated.Hash, true},
		"failed":     {failed.Hash, true},
		"not there":  {"0x" + fmt.Sprintf("%064d", 1), true},
		"garbage":    {"0xnothing", false},
		"no prefix":  {unrelated.Hash[2:], false},
		"too long":   {unrelated.Hash + "00", false},
		"upper case": {"0X" + unrelated.Hash[2:], false},
	}
	harmless := func(want x402.Finding, calls []string) {
		for name, h := range hints {
			q.Transaction = h.hash
			t.Run(want.Verdict.String()+", "+name, func(t *testing.T) {
				if h.asked {
					w.expect(t, q, want, slices.Concat(callsHint[:1], calls))
				} else {
					w.expect(t, q, want, calls)
				}
			})
		}
	}
	harmless(open(reasonOpen), callsOpen)
	tx := w.pay(t, a)
	harmless(paid(tx.Hash), callsSearch)
	t.Run("paid, not to be asked", func(t *testing.T) {
		q.Transaction = tx.Hash
		w.proxy.reset(atCall(0, refusal(http.StatusOK, `{"code":-32000,"message":"transaction indexing is in progress"}`)))
		w.expect(t, q, paid(tx.Hash), slices.Concat(callsHint[:1], callsSearch))
	})
}

// The payer signs a second authorization with the same nonce, and that one is
// used.
func TestSpentOtherwise(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for name, second := range map[string]struct {
		to    x402.Address
		value string
	}{
		"less": {w.payee, "4999"}, "more": {w.payee, "5001"}, "nothing": {w.payee, "0"},
		"elsewhere": {w.other, "5000"}, "to itself": {w.payer.Address(), "5000"},
	} {
		t.Run(name, func(t *testing.T) {
			a, q := w.claimed(t)
			tx := w.pay(t, again(a, second.to, second.value))
			w.expectBoth(t, q, tx.Hash, never(reasonElse), callsSearch)
		})
	}
}

func TestCancelled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, q := w.claimed(t)
	tx := w.Cancel(t, w.payer, a.Nonce)
	w.expectBoth(t, q, tx.Hash, never(reasonCancelled), callsCancelled)
	if r := w.tryPay(t, a); r.Success {
		t.Error("a cancelled authorization moved money")
	}
}

// receiveWithAuthorization spends the same nonces, with another signature.
func TestReceived(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, q := w.claimed(t)
	tx := w.Receive(t, chaintest.SignReceive(t, w.payer, a))
	w.expect(t, q, paid(tx.Hash), callsSearch)

	a, q = w.claimed(t)
	w.Receive(t, chaintest.SignReceive(t, w.payer, again(a, w.other, a.Value)))
	w.expect(t, q, never(reasonElse), callsSearch)
}

// One transaction holds several payments: each is read by itself. To the payee and
// of the right value is one transfer only, but it is in the receipt of all four.
func TestSeveralInOne(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, noisy := range []bool{false, true} {
		t.Run(fmt.Sprintf("noisy %t", noisy), func(t *testing.T) {
			ours, aboutOurs := w.claimed(t)
			less, aboutLess := w.claimed(t)
			theirs, aboutTheirs := w.claimed(t)
			gone, aboutGone := w.claimed(t)
			tx := w.Batch(t, noisy,
				w.payCall(t, again(less, w.payee, "1")), // a payment for another request
				chaintest.CancelCall(t, w.payer, gone.Nonce),
				w.payCall(t, ours),
				w.payCall(t, again(theirs, w.other, "5000")),
			)
			w.expectBoth(t, aboutOurs, tx.Hash, paid(tx.Hash), callsSearch)
			w.expectBoth(t, aboutLess, tx.Hash, never(reasonElse), callsSearch)
			w.expectBoth(t, aboutTheirs, tx.Hash, never(reasonElse), callsSearch)
			w.expectBoth(t, aboutGone, tx.Hash, never(reasonCancelled), callsCancelled)
		})
	}
}

// What is in the mempool has not happened, and can still happen.
func TestPending(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, q := w.claimed(t)
	w.SetAutomine(t, false)
	tx := w.pay(t, a)
	if !w.Receipt(t, tx.Hash).Pending {
		t.Fatal("the transaction is in a block")
	}
	w.expect(t, q, open(reasonOpen), callsOpen)
	q.Transaction = tx.Hash
	w.expect(t, q, open(reasonOpen), slices.Concat(callsHint[:1], callsOpen))
	w.Mine(t, 1)
	w.expect(t, q, paid(tx.Hash), callsHint)
}

// While the token is paused nothing moves, and time goes on.
func TestPaused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, q := w.claimed(t)
	w.Pause(t, true)
	q.Transaction = w.tryPay(t, a).Hash
	w.expect(t, q, open(reasonOpen), slices.Concat(callsHint[:1], callsOpen))
	w.IncreaseTime(t, window)
	w.Mine(t, 33)
	w.expect(t, q, never(reasonExpired), slices.Concat(callsHint[:1], callsExpired))
}

// A payment older than the first claim by more than a minute was for somebody
// else's request.
func TestUsedEarlier(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.authorize(t)
	tx := w.pay(t, a)
	at := w.Now(t)
	b := w.authorize(t)
	w.Cancel(t, w.payer, b.Nonce)
	w.Mine(t, 100) // 200 s
	q := w.question(t, a)

	for name, c := range map[string]struct {
		age      time.Duration // of the block at the first claim
		searched x402.Finding
		calls    []string
		hinted   x402.Finding
	}{
		"a minute":    {time.Minute, paid(tx.Hash), callsSearch, paid(tx.Hash)},
		"a second on": {time.Minute + time.Second, never(reasonEarlier), callsSearch, never(reasonEarlier)},
		"long ago":    {200 * time.Second, never(reasonSpent), callsEarlier, never(reasonEarlier)},
	} {
		t.Run(name, func(t *testing.T) {
			q := q
			q.Since = at.Add(c.age)
			w.expect(t, q, c.searched, c.calls)
			w.expectHinted(t, q, tx.Hash, c.hinted)
		})
	}
	t.Run("cancelled long ago", func(t *testing.T) {
		q := w.question(t, b)
		q.Since = at.Add(202 * time.Second)
		w.expect(t, q, never(reasonSpent), callsEarlier)
	})
}

// One client serves many at once.
func TestConcurrent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.client = w.coldClient(t, Config{})
	now := w.Now(t)
	w.client.now = func() time.Time { return now }
	a, qa := w.claimed(t)
	_, qb := w.claimed(t)
	tx := w.pay(t, a)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if f := w.find(t, qa); f.Transaction != tx.Hash {
				t.Errorf("finding = %+v", f)
			}
		})
		wg.Go(func() {
			if f := w.find(t, qb); f.Verdict != x402.StillOpen {
				t.Errorf("finding = %+v", f)
			}
		})
	}
	wg.Wait()
}

func TestIncompleteQuestion(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	whole := w.question(t, w.authorize(t))
	for name, spoil := range map[string]func(*x402.Question){
		"no value":       func(q *x402.Question) { q.Value = nil },
		"negative value": func(q *x402.Question) { q.Value = big.NewInt(-1) },
		"no end":         func(q *x402.Question) { q.ValidBefore = time.Time{} },
		"no claim":       func(q *x402.Question) { q.Since = time.Time{} },
	} {
		q := whole
		spoil(&q)
		t.Run(name, func(t *testing.T) { w.expectNothing(t, q, "the question has no") })
	}
	if calls := w.proxy.methods(); len(calls) != 0 {
		t.Errorf("the node was asked: %v", calls)
	}
}
