package dynamo_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/dynamotable"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/dynamo"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
)

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
	store := dynamo.New(dynamo.Config{API: dynamotable.NewClient(conf), Table: s.Table(t), Timeout: time.Minute})
	r := ledgertest.Full("k")
	for range 10 {
		if existing, err := store.Create(t.Context(), r); existing != nil || err != nil {
			t.Fatalf("Create = %v, %v", existing, err)
		}
		if _, err := store.Create(t.Context(), ledgertest.First("k")); err != nil { // a failed condition
			t.Fatal(err)
		}
		holds(t, store, r)
	}
	if n := dials.Load(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
}
