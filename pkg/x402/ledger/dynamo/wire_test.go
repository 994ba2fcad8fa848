package dynamo_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/infra/dynamotest"
	"github.com/hostfacts/hostfacts/pkg/dynamotable"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/dynamo"
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
			if existing, err := store.Create(t.Context(), first); existing != nil || err != nil {
				t.Fatalf("Create = %v, %v", existing, err)
			}
			calls("a create", map[string]int{"PutItem": 1})
			second := ledgertest.Next(first)
			if err := store.Replace(t.Context(), second); err != nil {
				t.Fatal(err)
			}
			calls("a replace", map[string]int{"PutItem": 1})
			existing, err := store.Create(t.Context(), ledgertest.First("k"))
			if err != nil {
				t.Fatal(err)
			}
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

// The reply to a write is lost, the SDK sends it again, and the failed
// condition of the second is known for the success of the first.
func TestLostReply(t *testing.T) {
	t.Parallel()
	s := server(t)
	for _, withItem := range []bool{true, false} {
		t.Run(map[bool]string{true: "with the old item", false: "without the old item"}[withItem], func(t *testing.T) {
			t.Parallel()
			p := &proxy{withItem: withItem}
			p.lost = func(op string, n int) bool { return op == "PutItem" && n == 1 }
			store := p.start(t, s).Store(t)
			r := ledgertest.Full("k")
			p.count()
			if existing, err := store.Create(t.Context(), r); existing != nil || err != nil {
				t.Fatalf("Create = %+v, %v; want success", existing, err)
			}
			if n := p.count()["PutItem"]; n != 2 {
				t.Errorf("the create was sent %d times, want 2", n)
			}
			holds(t, store, r)
			r = ledgertest.Next(r)
			p.count()
			if err := store.Replace(t.Context(), r); err != nil {
				t.Fatalf("Replace = %v, want success", err)
			}
			if n := p.count()["PutItem"]; n != 2 {
				t.Errorf("the replace was sent %d times, want 2", n)
			}
			holds(t, store, r)
		})
	}
}

// The limit that the package comment names: another writer came between.
func TestLostReplyAndAnotherWriter(t *testing.T) {
	t.Parallel()
	s := server(t)
	p := &proxy{withItem: true}
	front := p.start(t, s)
	table := s.Table(t)
	open := func(at dynamotest.Server) *dynamo.Store {
		return dynamo.New(dynamo.Config{API: dynamotable.NewClient(at.ClientConfig()), Table: table, Timeout: time.Minute})
	}
	direct, store := open(s), open(front)
	first := ledgertest.First("k")
	if _, err := direct.Create(t.Context(), first); err != nil {
		t.Fatal(err)
	}
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
	holds(t, store, third)
}

// When both replies are lost a read finds the write; when that is lost too, the
// caller learns that it knows nothing.
func TestLostReplies(t *testing.T) {
	t.Parallel()
	s := server(t)
	for name, c := range map[string]struct {
		lost func(op string, n int) bool
		ok   bool
	}{
		"of both attempts": {func(op string, _ int) bool { return op == "PutItem" }, true},
		"of the read too":  {func(string, int) bool { return true }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &proxy{lost: c.lost}
			front, table := p.start(t, s), s.Table(t)
			open := func(at dynamotest.Server) *dynamo.Store {
				return dynamo.New(dynamo.Config{API: dynamotable.NewClient(at.ClientConfig()), Table: table, Timeout: time.Minute})
			}
			direct, store := open(s), open(front)
			r := ledgertest.First("k")
			if existing, err := store.Create(t.Context(), r); existing != nil || (err == nil) != c.ok || errors.Is(err, ledger.ErrConflict) {
				t.Errorf("Create = %v, %v; want success: %v, and no named error", existing, err, c.ok)
			}
			holds(t, direct, r)
			next := ledgertest.Next(r)
			if err := store.Replace(t.Context(), next); (err == nil) != c.ok || errors.Is(err, ledger.ErrConflict) {
				t.Errorf("Replace = %v; want success: %v, and no named error", err, c.ok)
			}
			holds(t, direct, next)
		})
	}
}
