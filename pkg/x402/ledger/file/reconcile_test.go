package file_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/file"
	"github.com/hostfacts/hostfacts/pkg/x402/reconcile"
)

// TestReconcileSweeps checks that a run of reconcile on a ledger file deletes the expired
// records of refused payments, and keeps the records in doubt.
func TestReconcileSweeps(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	clock := func() time.Time { return now }
	store, err := file.Open(filepath.Join(t.TempDir(), "ledger.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	terms := x402.USDC()
	terms.PayTo = "0x70997970C51812dc3A010C7d01b50e0d17dc79C8"
	price, err := json.Marshal(terms.Requirements("5000"))
	if err != nil {
		t.Fatal(err)
	}
	written := 0
	l := ledger.New(store, clock, func() string { written++; return fmt.Sprint("w", written) })
	for n := range 40 {
		p := ledger.Submission{
			Key:        ledger.Key(terms.Network, strings.ToLower(terms.Asset), strings.ToLower(terms.PayTo), fmt.Sprintf("0x%064x", n)),
			AuthDigest: fmt.Sprint("a", n), SigDigest: fmt.Sprint("s", n), Request: "GET /a", Terms: price, ValidBefore: now.Add(time.Minute),
		}
		c, err := l.Claim(t.Context(), p, now.Add(time.Minute))
		if err == nil && n%2 == 0 { // the other half of the records stays in doubt
			err = c.Hold.End(t.Context(), ledger.EventRefused, "insufficient_funds", "")
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	c := reconcile.Reconciler{Ledger: l, Index: store, Terms: terms, Now: clock, Log: slog.New(slog.DiscardHandler)}
	var swept []int
	for range 2 {
		s, err := c.Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		swept = append(swept, s.Swept)
		now = now.Add(200 * 24 * time.Hour)
	}
	p, err := store.Page(t.Context(), "", "", 100)
	if !slices.Equal(swept, []int{0, 20}) || err != nil || len(p.Records) != 20 {
		t.Errorf("%v were swept, and %d are left, %v", swept, len(p.Records), err)
	}
}
