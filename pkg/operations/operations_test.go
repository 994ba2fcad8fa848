package operations_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/pkg/boot"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/limit"
	"github.com/hostfacts/hostfacts/pkg/operations"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
)

// Every operation of the catalog is here, in its order, and served.
func TestAll(t *testing.T) {
	local, err := boot.ReadLocal(func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	parts, err := local.Parts(boot.Stores{Ledger: &ledgertest.Memory{}, Limits: &limit.Memory{}}, slog.New(slog.DiscardHandler), time.Now)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := operations.Handler(parts); err != nil {
		t.Error(err)
	}
	var got, want []string
	for _, op := range operations.All(parts) {
		got = append(got, op.Entry().Slug)
	}
	for _, op := range catalog.All() {
		want = append(want, op.Slug)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("operations (-catalog.All +operations.All):\n%s", d)
	}
}
