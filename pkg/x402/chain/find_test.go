package chain

import (
	"fmt"
	"math/big"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

func TestUnused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, q := w.claimed(t)
	w.expect(t, q, open(reasonOpen), callsOpen)

	// Somebody else's use of the same nonce is none of ours.
	other := wallet(t)
	w.Mint(t, other.Address(), price)
	theirs := a
	theirs.From = other.Address().Checksum()
	w.Transfer(t, testbed.SignTransfer(t, other, theirs))
	w.expect(t, q, open(reasonOpen), callsOpen)

	// A block before its end it is open, at its end it is not.
	w.IncreaseTime(t, q.ValidBefore.Sub(w.Now(t))-time.Second)
	w.expect(t, q, open(reasonOpen), callsOpen)
	w.IncreaseTime(t, time.Second)
	w.expect(t, q, open(reasonNotSafe), callsNotSafe)
	if r := w.TryTransfer(t, testbed.SignTransfer(t, w.payer, a)); r.Success { // one block more
		t.Error("the token took an authorization at its end")
	}

	// 32 blocks later the block at its end is safe, and not one earlier.
	w.Mine(t, safeDepth-2)
	w.expect(t, q, open(reasonNotSafe), callsNotSafe)
	w.Mine(t, 1)
	w.expect(t, q, never(reasonExpired), callsExpired)
}

// A payment is of exactly its value to exactly its payee.
func TestPaid(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, q, tx := w.settled(t)
	w.expect(t, q, paid(tx.Hash), callsSearch)
	w.expectHinted(t, q, tx.Hash, paid(tx.Hash))
	for _, spoil := range []func(q *x402.Question){
		func(q *x402.Question) { q.Value = big.NewInt(price - 1) },
		func(q *x402.Question) { q.Value = big.NewInt(price + 1) },
		func(q *x402.Question) { q.Payee = w.other },
	} {
		q := q
		spoil(&q)
		w.expect(t, q, never(reasonElse), callsSearch)
		w.expectHinted(t, q, tx.Hash, never(reasonElse))
	}
}

// A hash from outside helps when it is right and does no harm when it is not.
func TestHint(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	unrelated := w.pay(t, w.authorize(t))
	a, q := w.claimed(t)
	failed := w.failToPay(t, a)
	hints := map[string][]string{ // and the calls for them
		unrelated.Hash: callsHint[:1], failed.Hash: callsHint[:1], fmt.Sprintf("0x%064d", 1): callsHint[:1],
		"0xnothing": nil, unrelated.Hash[2:]: nil, unrelated.Hash + "00": nil, "0X" + unrelated.Hash[2:]: nil,
	}
	harmless := func(want x402.Finding, calls []string) {
		for hash, first := range hints {
			t.Run(want.Verdict.String()+", "+hash, func(t *testing.T) {
				q.Transaction = hash
				w.expect(t, q, want, first, calls)
			})
		}
	}
	harmless(open(reasonOpen), callsOpen)
	tx := w.pay(t, a)
	harmless(paid(tx.Hash), callsSearch)
	for name, r := range map[string]rule{
		"not to be asked": refusal(http.StatusOK, `{"code":-32000,"message":"transaction indexing is in progress"}`),
		"too long":        result(`"` + strings.Repeat("x", maxBody) + `"`), // as a stranger can make a transaction's
	} {
		t.Run(name, func(t *testing.T) {
			q.Transaction = tx.Hash
			w.proxy.reset(atCall(0, r))
			w.expect(t, q, paid(tx.Hash), callsHint[:1], callsSearch)
		})
	}
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
				testbed.CancelCall(t, w.payer, gone.Nonce),
				w.payCall(t, ours),
				w.payCall(t, again(theirs, w.other, "5000")),
			)
			for _, c := range []struct {
				q     x402.Question
				want  x402.Finding
				calls []string
			}{
				{aboutOurs, paid(tx.Hash), callsSearch}, {aboutLess, never(reasonElse), callsSearch},
				{aboutTheirs, never(reasonElse), callsSearch}, {aboutGone, never(reasonCancelled), callsCancelled},
			} {
				w.expect(t, c.q, c.want, c.calls)
				w.expectHinted(t, c.q, tx.Hash, c.want)
			}
		})
	}
}

// A payment older than the first claim by more than a minute was for somebody
// else's request.
func TestUsedEarlier(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.authorize(t)
	tx := w.pay(t, a)
	at := w.Now(t)
	cancelled := w.authorize(t)
	w.Cancel(t, w.payer, cancelled.Nonce)
	w.Mine(t, 100) // 200 s
	for _, c := range []struct {
		age      time.Duration // of the block at the first claim
		searched x402.Finding
		calls    []string
		hinted   x402.Finding
	}{
		{time.Minute, paid(tx.Hash), callsSearch, paid(tx.Hash)},
		{time.Minute + time.Second, never(reasonEarlier), callsSearch, never(reasonEarlier)},
		{200 * time.Second, never(reasonSpent), callsEarlier, never(reasonEarlier)},
	} {
		t.Run(c.age.String(), func(t *testing.T) {
			q := w.question(t, a)
			q.Since = at.Add(c.age)
			w.expect(t, q, c.searched, c.calls)
			w.expectHinted(t, q, tx.Hash, c.hinted)
		})
	}
	q := w.question(t, cancelled)
	q.Since = at.Add(202 * time.Second)
	w.expect(t, q, never(reasonSpent), callsEarlier)
}

// A question with a part missing is answered without the node.
func TestIncompleteQuestion(t *testing.T) {
	t.Parallel()
	c, err := New(Config{URL: "http://127.0.0.1:1", Network: testbed.BaseNetwork, Asset: testbed.BaseUSDC})
	must(t, err)
	some, end := big.NewInt(price), time.Unix(1, 0)
	for name, q := range map[string]x402.Question{
		"value":          {ValidBefore: end, Since: end},
		"negative value": {Value: big.NewInt(-1), ValidBefore: end, Since: end},
		"long value":     {Value: new(big.Int).Lsh(some, 256), ValidBefore: end, Since: end},
		"end":            {Value: some, Since: end},
		"claim":          {Value: some, ValidBefore: end},
	} {
		if f := c.Find(t.Context(), q); f.Verdict != x402.CannotTell || !strings.Contains(fmt.Sprint(f.Cause), "the question has no") {
			t.Errorf("%s: %+v", name, f)
		}
	}
}
