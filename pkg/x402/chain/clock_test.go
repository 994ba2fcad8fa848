package chain

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/chaintest"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

// A clock that ran ahead at the claim makes our own transfer look older than
// it. That must not turn away a payer who has paid.
func TestClockAhead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Mine(t, 200)
	for _, c := range []struct {
		ahead        time.Duration
		unsent, sent x402.Verdict
	}{
		{0, x402.Paid, x402.Paid},
		{50 * time.Second, x402.Paid, x402.Paid},
		{2 * time.Minute, x402.CannotTell, x402.Paid},
		{4 * time.Minute, x402.CannotTell, x402.Paid},
	} {
		w.ahead = c.ahead
		a := w.authorize(t)
		q := w.question(t, a)
		q.Since = w.Now(t).Add(c.ahead) // as that clock has it
		tx := w.Transfer(t, chaintest.Sign(t, w.payer, a))
		for _, hint := range []string{"", tx.Hash} {
			q.Transaction = hint
			q.Sent = false
			if f := w.find(t, q); f.Verdict != c.unsent {
				t.Errorf("%s ahead, hint %t: %s %s, want %s", c.ahead, hint != "", f.Verdict, f.Reason, c.unsent)
			}
			q.Sent = true
			if f := w.find(t, q); f.Verdict != c.sent {
				t.Errorf("%s ahead, hint %t, sent: %s %s, want %s", c.ahead, hint != "", f.Verdict, f.Reason, c.sent)
			}
		}
	}
	// Another environment asks, and its clock is right.
	a := w.authorize(t)
	q := w.question(t, a)
	q.Since, q.Sent = w.Now(t).Add(4*time.Minute), true
	tx := w.Transfer(t, chaintest.Sign(t, w.payer, a))
	w.ahead = 0
	if f := w.find(t, q); f.Verdict != x402.Paid || f.Transaction != tx.Hash {
		t.Errorf("asked by a right clock: %+v", f)
	}
	// Older than any clock's error is somebody else's, sent or not.
	w.Mine(t, 320)
	q.Since = w.Now(t)
	if f := w.find(t, q); f.Verdict != x402.NeverPaid {
		t.Errorf("long before the claim: %+v", f)
	}
}

// A transaction that the facilitator named stands in the way of nothing, also
// when its receipt is longer than we read.
func TestUselessHint(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.authorize(t)
	q := w.question(t, a)
	raw := w.Call(t, "eth_sendTransactionSync", map[string]string{
		"from": chaintest.Account(8), "gas": "0xffffff", "data": "0x620a00006000a000", // one log of 640 KiB
	})
	var huge struct{ TransactionHash, Status string }
	if err := json.Unmarshal(raw, &huge); err != nil || huge.Status != "0x1" || len(raw) < 1<<20 {
		t.Fatalf("%d bytes: %v", len(raw), err)
	}
	q.Transaction = huge.TransactionHash
	if f := w.find(t, q); f.Verdict != x402.StillOpen {
		t.Errorf("not paid yet: %+v", f)
	}
	tx := w.Transfer(t, chaintest.Sign(t, w.payer, a))
	if f := w.find(t, q); f.Verdict != x402.Paid || f.Transaction != tx.Hash {
		t.Errorf("paid: %+v", f)
	}
}
