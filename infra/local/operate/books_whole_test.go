package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/boot"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
)

// openInMemory returns an open ledger in memory. A command that uses it queries the chain
// through the node at the URL rpc.
func openInMemory(t *testing.T, memory *ledgertest.Memory, store ledger.Store, rpc string) ledgerSession {
	t.Helper()
	config, err := boot.ParseLocal(func(name string) string { return map[string]string{"RPC_URL": rpc, "PAY_TO": payee}[name] })
	if err != nil {
		t.Fatal(err)
	}
	o := ledgerSession{order: order{out: io.Discard, notes: io.Discard}, name: "memory", node: "N", rows: memory}
	if o.Reconciling, err = config.Reconciling(boot.Stores{Ledger: store, Index: memory}, slog.New(slog.DiscardHandler), time.Now); err != nil {
		t.Fatal(err)
	}
	return o
}

// newMemoryShop returns a shop and its ledger, which is in memory. The shop has one payment,
// on which the ledger and the chain agree.
func newMemoryShop(t *testing.T) (*shop, *ledgertest.Memory) {
	t.Helper()
	s, memory := newShop(t), new(ledgertest.Memory)
	s.Ledger = ledger.New(memory, func() time.Time { return s.now }, rand.Text)
	s.addPaymentTransfer(1, "5000")
	s.recordAnswered(1, txOf(1))
	return s, memory
}

// TestBooksUnreadable makes the books of a ledger with two unreadable records. One of them has
// a transfer, and must be listed as a difference on the day of that transfer. The day has one
// more difference: an answered payment without a transfer. Then the node stops answering
// eth_call. Now the books must be incomplete, and must still list the unreadable record.
func TestBooksUnreadable(t *testing.T) {
	t.Parallel()
	s, memory := newMemoryShop(t)
	s.addPaymentTransfer(2, "5000")
	s.must(memory.Plant(t.Context(), keyOf(2), []byte(`{"key":`)))
	s.must(memory.Plant(t.Context(), keyOf(3), []byte(`{"key":`))) // a record without a transfer, so its day is unknown
	s.recordAnswered(4, txOf(4))
	mute := false
	s.refusalStatus = func(call []byte) (status int) {
		if mute && bytes.Contains(call, []byte("eth_call")) {
			status = http.StatusInternalServerError
		}
		return status
	}
	var out, notes bytes.Buffer
	o := openInMemory(t, memory, memory, s.node())
	o.out, o.notes = &out, &notes
	if err := o.books(t.Context(), s.day); !errors.Is(err, errDifferences) {
		t.Errorf("error %v", err)
	}
	checkContains(t, out.String(), "answered unpaid", "record unreadable", "; 2 differences\n")
	mute = true
	out.Reset()
	if err := o.books(t.Context(), s.day); !errors.Is(err, errIncomplete) {
		t.Errorf("error %v", err)
	}
	checkContains(t, notes.String(), keyOf(4)+": ask the chain")
	checkContains(t, out.String(), " 2 unreadable, in the whole ledger\n", " 1 could not be compared", "record unreadable", "; 1 difference\n")
}

// doubledRows returns every record twice, as happens if each is written again while the ledger
// is read.
type doubledRows struct{ ledger.Rows }

func (r doubledRows) Page(ctx context.Context, prefix, after string, limit int) (ledger.Page, error) {
	p, err := r.Rows.Page(ctx, prefix, strings.TrimPrefix(after, "again"), limit)
	if p.Next == "" && after == "" {
		p.Next = "again"
	}
	return p, err
}

// TestBooksReadTwice checks that a record that is read twice counts once.
func TestBooksReadTwice(t *testing.T) {
	t.Parallel()
	s, memory := newMemoryShop(t)
	var out bytes.Buffer
	o := openInMemory(t, memory, memory, s.node())
	o.out, o.rows = &out, doubledRows{memory}
	s.must(o.books(t.Context(), s.day))
	checkContains(t, out.String(), "2 records\n", "total   1 answer sold for $0.005, $0.005 received in 1 payment; no differences")
}

// TestBooksToday checks that the books of a day that has not ended cover the time until the
// newest safe block.
func TestBooksToday(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	noon := s.day.Add(12 * time.Hour)
	s.clock = func() time.Time { return noon }
	for n, before := range []time.Duration{2 * time.Minute, 10 * time.Second} { // the node's safe block is a minute old
		s.now = noon.Add(-before)
		s.addPaymentTransfer(n+1, "5000")
		s.recordAnswered(n+1, txOf(n+1))
	}
	out, _ := operateAt(t, s.clock, 0, s.env(), "books", s.day.Format(time.DateOnly))
	checkContains(t, out, "later blocks of the chain are not safe yet", "total   1 answer sold for $0.005, $0.005 received in 1 payment; no differences\n")
}

func TestReadDay(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 22, 0, 30, 0, 0, time.UTC)
	for s, wantErr := range map[string]string{
		"2026-11-21": "", " 2026-11-22 ": "", "2026-10-20": "", "2026-10-18": "too long ago", "2026-11-23": "has not begun",
		"": "is not a day", "yesterday": "is not a day", "2026-02-30": "is not a day", "2026-11-20T00:00:00Z": "is not a day", "\x1b[31m": `"\x1b[31m" is not a day`,
	} {
		day, err := parseDay(s, now)
		if wantErr == "" && (err != nil || day.Format(time.DateOnly) != strings.TrimSpace(s)) || wantErr != "" && (err == nil || !strings.Contains(err.Error(), wantErr)) {
			t.Errorf("parseDay(%q) = %v, %v", s, day, err)
		}
	}
}
