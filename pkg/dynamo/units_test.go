package dynamo_test

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/dynamo"
	"github.com/hostfacts/hostfacts/pkg/limit"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// TestWriteUnits prints what each write of a paid request costs, with records as
// long as real ones and an answer of 1 KB. The bounds are what is measured today:
// whoever makes a record longer sees it here.
func TestWriteUnits(t *testing.T) {
	t.Parallel()
	checkWriteUnits(t, newWorld(t, testbed.StartDynamo(t)))
}

func checkWriteUnits(t *testing.T, w *world) {
	t.Helper()
	l := ledger.New(w.ledger(), time.Now, rand.Text)
	const (
		network, asset = "eip155:8453", "0x833589fcd6edb6e08f4c7c32d4f71b54bda02913"
		payer          = "0x857b06519e91e3a54538791bdbb0e22373e36b66"
		payee          = "0x209693Bc6afc0C5328bA36FaF03C514EF312287C"
	)
	digits := func(n int) string { // as little to be compressed as the real ones
		b := make([]byte, n)
		_, _ = rand.Read(b) // never fails
		return hex.EncodeToString(b)
	}
	until := time.Now().Add(5 * time.Minute)
	terms := fmt.Sprintf(`{"scheme":"exact","network":%q,"asset":%q,"amount":"5000","payTo":%q,"maxTimeoutSeconds":300,`+
		`"extra":{"name":"USD Coin","version":"2","paymentFlow":"upfront"}}`, network, asset, payee)
	pay := func() *ledger.Hold {
		nonce := "0x" + digits(32)
		payload := fmt.Sprintf(`{"signature":"0x%s","authorization":{"from":%q,"to":%q,"value":"5000","validAfter":"0","validBefore":"%d","nonce":%q}}`,
			digits(65), payer, payee, until.Unix(), nonce)
		c, err := l.Claim(t.Context(), ledger.Payment{
			Key: ledger.Key(network, asset, payer, nonce), AuthDigest: digits(32), SigDigest: digits(32),
			Request: digits(32), Terms: json.RawMessage(terms), Payload: json.RawMessage(payload),
			ValidBefore: until, Proof: ledger.Proof{Token: digits(32), Key: digits(32)}, Recovered: true,
			Purchase: ledger.PurchaseKey(network, asset, payer, "request:"+digits(32)),
		}, time.Now().Add(30*time.Second))
		if err != nil || c.Hold == nil {
			t.Fatalf("claim: %d, %v", c.Standing, err)
		}
		return c.Hold
	}
	settle := func(h *ledger.Hold) error {
		return h.Settled(t.Context(), ledger.Receipt{Transaction: "0x" + digits(32), Payer: payer, Network: network}, true)
	}
	answer := ledger.Answer{Status: 200, Stored: true, Body: bytes.Repeat([]byte("x"), 1024)}
	first := pay()
	for _, step := range []struct {
		name        string
		most, index float64
		do          func() error
	}{
		{"claim", 1, 1, func() error { return nil }},
		{"open the purchase", 1, 0, func() error { return errOf(l.Open(t.Context(), first)) }},
		{"settled", 1, 0, func() error { return settle(first) }},
		{"redeemed, 1 KB", 2, 1, func() error { return first.Redeem(t.Context(), answer) }},
	} {
		must(t, step.do())
		units, index, _, calls := w.spent()
		t.Logf("%-18s %2.0f write units, %.0f of the index, %d call", step.name, units, index, calls)
		if units > step.most || index > step.index || calls != 1 {
			t.Errorf("%s: %.0f write units and %.0f of the index in %d calls, want %.0f and %.0f in one", step.name, units, index, calls, step.most, step.index)
		}
	}
	const more = 49
	for range more {
		h := pay()
		must(t, errors.Join(errOf(l.Open(t.Context(), h)), settle(h), h.Redeem(t.Context(), answer)))
	}
	w.spent()
	s := dynamo.NewScan(dynamo.ScanConfig{API: w.front, Table: w.table})
	for after, more := "", true; more; more = after != "" {
		p, err := s.Page(t.Context(), after, 1000)
		if err != nil || len(p.Corrupt) > 0 {
			t.Fatalf("%q, %v", p.Corrupt, err)
		}
		after = p.Next
	}
	units, _, _, _ := w.spent()
	scanned := units / (1 + more)
	t.Logf("%-18s %.2f read units of a payment", "a scan by pages", scanned)
	if scanned > 0.35 {
		t.Errorf("a scan by pages costs %.2f read units a payment", scanned)
	}
}

// TestSlotUnits: a slot update costs one write unit also at the cap of 50, with the
// longest name of an operation and ids as long as those in production.
func TestSlotUnits(t *testing.T) {
	t.Parallel()
	checkSlotUnits(t, newWorld(t, testbed.StartDynamo(t)))
}

func checkSlotUnits(t *testing.T, w *world) {
	t.Helper()
	const most, operation = 50, "resolve-redirect"
	ids := 0
	id := func() string {
		ids++
		return fmt.Sprintf("%0*d", limit.IDLength, ids)
	}
	slots := limit.NewSlots(limit.SlotsConfig{
		Operation: operation, Cap: most, Now: func() time.Time { return noon },
		Leases: w.limits(), NewID: id,
	})
	// An end with all the digits that it can have.
	until := time.Unix(1793534411, 123456789)
	var last *limit.Slot
	for i := range most {
		slot, err := slots.Acquire(t.Context(), fmt.Sprint("client ", i), until)
		must(t, err)
		last = slot
	}
	if _, err := slots.Acquire(t.Context(), "one more", until); err == nil {
		t.Error("one slot more than the cap")
	}
	must(t, last.Release(t.Context()))
	if _, _, units, calls := w.spent(); units != 1 || calls < most {
		t.Errorf("an update costs %.0f write units, want 1; %d calls", units, calls)
	}
}
