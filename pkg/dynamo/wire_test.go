package dynamo_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/infra/dynamotest"
	"github.com/hostfacts/hostfacts/pkg/dynamo"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
)

// The old item that comes with a failed condition saves the read.
func TestReadsOnlyWithoutOldItem(t *testing.T) {
	t.Parallel()
	s := server(t)
	for name, c := range map[string]struct {
		withItem bool
		reads    int
	}{"with": {true, 0}, "without": {false, 1}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &proxy{withItem: c.withItem}
			if !c.withItem && *endpoint != "" {
				t.Skip("this server may return old items")
			}
			store := p.start(t, s).Store(t)
			first := ledgertest.Full("k")
			calls := func(what string, want map[string]int) {
				t.Helper()
				got := p.count()
				if want["GetItem"] == 0 {
					delete(want, "GetItem")
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("calls of %s (-want +got):\n%s", what, diff)
				}
			}
			p.count() // those that made the table
			ledgertest.MustCreate(t, store, first)
			calls("a create", map[string]int{"PutItem": 1})
			second := ledgertest.Next(first)
			ledgertest.MustReplace(t, store, second)
			calls("a replace", map[string]int{"PutItem": 1})
			existing, err := store.Create(t.Context(), ledgertest.First("k"))
			must(t, err)
			if diff := cmp.Diff(&second, existing); diff != "" {
				t.Errorf("existing (-want +got):\n%s", diff)
			}
			calls("a create of a taken key", map[string]int{"PutItem": 1, "GetItem": c.reads})
			if err := store.Replace(t.Context(), ledgertest.Next(first)); !errors.Is(err, ledger.ErrConflict) {
				t.Errorf("Replace = %v", err)
			}
			calls("a late replace", map[string]int{"PutItem": 1, "GetItem": c.reads})
			if err := store.Replace(t.Context(), second); err != nil {
				t.Errorf("Replace sent again = %v", err)
			}
			calls("a replace sent again", map[string]int{"PutItem": 1, "GetItem": c.reads})
		})
	}
}

// lossy is a store on a table of a server that loses replies, and one on the same
// table that loses none.
func lossy(t *testing.T, s dynamotest.Server, p *proxy) (store, direct *dynamo.Ledger) {
	t.Helper()
	table := s.Table(t)
	on := func(at dynamotest.Server) *dynamo.Ledger {
		return dynamo.NewLedger(dynamo.Config{API: dynamo.NewClient(at.ClientConfig()), Table: table, Timeout: time.Minute})
	}
	return on(p.start(t, s)), on(s)
}

// The reply to a write is lost, the SDK sends it again, and the failed condition of the
// second is known for the success of the first. When both replies are lost a read finds
// the write; when that is lost too, the caller learns that it knows nothing.
func TestLostReply(t *testing.T) {
	t.Parallel()
	s := server(t)
	first := func(op string, n int) bool { return op == "PutItem" && n == 1 }
	for name, c := range map[string]struct {
		withItem bool
		lost     func(op string, n int) bool
		ok       bool
	}{
		"with the old item":    {true, first, true},
		"without the old item": {false, first, true},
		"of both attempts":     {false, func(op string, _ int) bool { return op == "PutItem" }, true},
		"of the read too":      {false, func(string, int) bool { return true }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &proxy{withItem: c.withItem, lost: c.lost}
			store, direct := lossy(t, s, p)
			r := ledgertest.Full("k")
			existing, err := store.Create(t.Context(), r)
			if n := p.count()["PutItem"]; existing != nil || (err == nil) != c.ok || errors.Is(err, ledger.ErrConflict) || n != 2 {
				t.Errorf("Create sent %d times = %v, %v; want success: %v, and no named error", n, existing, err, c.ok)
			}
			ledgertest.Holds(t, direct, r)
			r = ledgertest.Next(r)
			err = store.Replace(t.Context(), r)
			if n := p.count()["PutItem"]; (err == nil) != c.ok || errors.Is(err, ledger.ErrConflict) || n != 2 {
				t.Errorf("Replace sent %d times = %v; want success: %v, and no named error", n, err, c.ok)
			}
			ledgertest.Holds(t, direct, r)
		})
	}
}

// The limit that the package comment names: another writer came between.
func TestLostReplyAndAnotherWriter(t *testing.T) {
	t.Parallel()
	p := &proxy{withItem: true}
	store, direct := lossy(t, server(t), p)
	first := ledgertest.First("k")
	ledgertest.MustCreate(t, direct, first)
	second := ledgertest.Next(first)
	third := ledgertest.Next(second)
	p.lost = func(op string, n int) bool {
		if op != "PutItem" || n > 1 {
			return false
		}
		if err := direct.Replace(context.Background(), third); err != nil {
			t.Errorf("the other writer: %v", err)
		}
		return true
	}
	if err := store.Replace(t.Context(), second); !errors.Is(err, ledger.ErrConflict) {
		t.Errorf("Replace = %v, want ErrConflict", err)
	}
	ledgertest.Holds(t, store, third)
}

// Calls in one warm period share a connection, against a real server.
func TestConnectionReuse(t *testing.T) {
	t.Parallel()
	s := server(t)
	conf := s.ClientConfig()
	var dials atomic.Int64
	conf.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		dials.Add(1)
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	store := dynamo.NewLedger(dynamo.Config{API: dynamo.NewClient(conf), Table: s.Table(t), Timeout: time.Minute})
	r := ledgertest.Full("k")
	for range 10 {
		ledgertest.MustCreate(t, store, r)
		if _, err := store.Create(t.Context(), ledgertest.First("k")); err != nil { // a failed condition
			t.Fatal(err)
		}
		ledgertest.Holds(t, store, r)
	}
	if n := dials.Load(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
}
