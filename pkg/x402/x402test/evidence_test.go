package x402test

import (
	"math/big"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/reconcile"
)

// account returns the address whose last byte is n and whose other bytes are 0.
func account(n byte) x402.Address { return x402.Address{19: n} }

// moveMoney lets the facilitator settle a payment with the given behaviour, which decides
// whether the money moves. The facilitator's reply is ignored.
func moveMoney(t *testing.T, f *Facilitator, nonce byte, payee x402.Address, how Behaviour) {
	t.Helper()
	p := &x402.Payment{From: account(1), To: payee, Nonce: [32]byte{nonce}, Value: big.NewInt(5000)}
	f.perform(how, p, x402.Requirements{})
}

// TestEvidence checks what the evidence of a play-money facilitator finds for each kind of
// question. Package chain would find the same.
func TestEvidence(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	f, err := NewFacilitator(FacilitatorConfig{Terms: x402.USDC(), Now: func() time.Time { return now }})
	must(t, err)
	moveMoney(t, f, 1, account(2), RefuseAfter)
	moveMoney(t, f, 2, account(2), Refuse)
	evidence := f.Evidence()
	asked := func(nonce byte, change func(*x402.Question)) x402.Finding {
		q := x402.Question{
			Payer: account(1), Payee: account(2), Nonce: [32]byte{nonce}, Value: big.NewInt(5000), Since: now, ValidBefore: now.Add(5 * time.Minute),
		}
		if change != nil {
			change(&q)
		}
		return evidence.Find(t.Context(), q)
	}
	later := func(d time.Duration, sent bool) func(*x402.Question) {
		return func(q *x402.Question) { q.Since, q.Sent = now.Add(d), sent }
	}
	for what, c := range map[string]struct {
		nonce  byte
		change func(*x402.Question)
		want   x402.Fate
	}{
		"it moved":              {1, nil, x402.Paid},
		"a minute before":       {1, later(time.Minute, false), x402.Paid},
		"longer before":         {1, later(time.Minute+1, false), x402.NeverPaid},
		"ten minutes, sent":     {1, later(10*time.Minute, true), x402.Paid},
		"longer, sent":          {1, later(10*time.Minute+1, true), x402.NeverPaid},
		"another payee":         {1, func(q *x402.Question) { q.Payee = account(3) }, x402.NeverPaid},
		"another amount":        {1, func(q *x402.Question) { q.Value = big.NewInt(4999) }, x402.NeverPaid},
		"another payer":         {1, func(q *x402.Question) { q.Payer = account(3) }, x402.StillOpen},
		"refused":               {2, nil, x402.StillOpen},
		"refused, and expired":  {2, func(q *x402.Question) { q.ValidBefore = now }, x402.NeverPaid},
		"a second before":       {2, func(q *x402.Question) { q.ValidBefore = now.Add(time.Second) }, x402.StillOpen},
		"a question without it": {1, func(q *x402.Question) { q.Since = time.Time{} }, x402.CannotTell},
	} {
		got := asked(c.nonce, c.change)
		if got.Fate != c.want || (got.Transaction != "") != (c.want == x402.Paid) || (got.Cause != nil) != (c.want == x402.CannotTell) {
			t.Errorf("%s: %+v", what, got)
		}
	}
}

// TestEvidenceTransfers calls Transfers again and again, each time from the block at which the
// last call stopped. The play chain has one block for every second, and a block is safe as
// soon as its second is over. Each transfer to the payee must be read exactly once, and only
// when its block is safe.
func TestEvidenceTransfers(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 5)
	f, err := NewFacilitator(FacilitatorConfig{Terms: x402.USDC(), Now: func() time.Time { return now }})
	must(t, err)
	scanner, ok := f.Evidence().(reconcile.Scanner)
	if !ok {
		t.Fatal("the evidence of play money is no Scanner")
	}
	from, err := scanner.BlockAt(t.Context(), now)
	must(t, err)
	var seen []reconcile.Transfer
	read := func() {
		t.Helper()
		for done := false; !done; {
			b, err := scanner.Transfers(t.Context(), account(2), from)
			must(t, err)
			seen, from, done = append(seen, b.Transfers...), b.Next, b.Done()
		}
	}
	moveMoney(t, f, 1, account(2), Honest)
	read()
	if len(seen) != 0 {
		t.Errorf("%d transfers of a second that is not over", len(seen))
	}
	moveMoney(t, f, 2, account(2), FailAfter)
	moveMoney(t, f, 3, account(3), Honest)
	now = now.Add(time.Second)
	moveMoney(t, f, 4, account(2), Honest)
	for range 2 {
		read()
		if len(seen) != 2 {
			t.Fatalf("%d transfers, want 2: %+v", len(seen), seen)
		}
	}
	for i, got := range seen {
		if got.Nonce != [32]byte{byte(i + 1)} || !got.Authorized || got.From != account(1) || got.To != account(2) || got.Value.Int64() != 5000 || got.Transaction == "" {
			t.Errorf("%+v", got)
		}
	}
	if seen[0].BlockHash != seen[1].BlockHash || seen[0].LogIndex == seen[1].LogIndex {
		t.Errorf("two transfers of one block have one identity: %+v", seen)
	}
	now = now.Add(time.Second)
	if read(); len(seen) != 3 {
		t.Errorf("%d transfers, want 3", len(seen))
	}
}
