package dynamo_test

import (
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/infra/dynamotest"
	"github.com/hostfacts/hostfacts/pkg/limit"
	"github.com/hostfacts/hostfacts/pkg/limit/dynamo"
	"github.com/hostfacts/hostfacts/pkg/limit/limittest"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	ledgerstore "github.com/hostfacts/hostfacts/pkg/x402/ledger/dynamo"
)

var endpoint = flag.String("endpoint", "", "run against the DynamoDB at this URL (DynamoDB Local, say) instead of a server of our own")

func server(t testing.TB) dynamotest.Server {
	if *endpoint != "" {
		return dynamotest.Server{URL: *endpoint}
	}
	return dynamotest.Start(t)
}

var (
	noon  = time.Date(2026, time.November, 1, 12, 0, 0, 0, time.UTC)
	exact = cmp.Exporter(func(reflect.Type) bool { return true })
)

func lease(id string) limit.Lease {
	return limit.Lease{ID: id, Until: noon.Add(1234 * time.Millisecond)}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	s := server(t)
	t.Run("with the old item", func(t *testing.T) {
		t.Parallel()
		limittest.Exercise(t, func(t *testing.T) limittest.Store { return newPeer(t, s).store(t) })
	})
	t.Run("without the old item", func(t *testing.T) {
		t.Parallel()
		limittest.Exercise(t, func(t *testing.T) limittest.Store { return newPeer(t, s).plain(t) })
	})
}

func TestItems(t *testing.T) {
	t.Parallel()
	p := newPeer(t, server(t))
	store := p.store(t)
	for _, id := range []string{"a", "b"} {
		if _, ok, err := store.Acquire(t.Context(), "host-intel", lease(id), 2); !ok || err != nil {
			t.Fatalf("Acquire = %v, %v", ok, err)
		}
	}
	want := map[string]types.AttributeValue{
		"pk": str("slots|host-intel"), "leases": leasesOf(map[string]types.AttributeValue{"a": num("1793534401234"), "b": num("1793534401234")}),
	}
	if diff := cmp.Diff(want, p.item(t, "slots|host-intel"), exact); diff != "" {
		t.Errorf("slots item (-want +got):\n%s", diff)
	}
	for range 2 {
		if _, err := store.Add(t.Context(), "2001:db8:1:2::/64", noon, limit.Units{All: 31, Open: 2}); err != nil {
			t.Fatal(err)
		}
	}
	key := "rate|2001:db8:1:2::/64|1793534400"
	want = map[string]types.AttributeValue{"pk": str(key), "requests": num("62"), "undecided": num("4"), "expires_at": num("1793535000")}
	if diff := cmp.Diff(want, p.item(t, key), exact); diff != "" {
		t.Errorf("rate item (-want +got):\n%s", diff)
	}
}

// The items stand in the ledger's table and never pass for a record.
func TestNotARecord(t *testing.T) {
	t.Parallel()
	p := newPeer(t, server(t))
	store := p.store(t)
	if _, ok, err := store.Acquire(t.Context(), "dns", lease("a"), 2); !ok || err != nil {
		t.Fatalf("Acquire = %v, %v", ok, err)
	}
	if _, err := store.Add(t.Context(), "203.0.113.7", noon, limit.Units{All: 1}); err != nil {
		t.Fatal(err)
	}
	records := ledgerstore.New(ledgerstore.Config{API: p.client, Table: p.table, Timeout: patience})
	for _, key := range []string{"slots|dns", "rate|203.0.113.7|1793534400"} {
		item := p.item(t, key)
		for _, attr := range []string{ledgerstore.AttrVersion, ledgerstore.AttrWriteID, ledgerstore.AttrState, ledgerstore.AttrRecord, ledgerstore.AttrAnswer} {
			if _, ok := item[attr]; ok {
				t.Errorf("%s has the attribute %s of a record", key, attr)
			}
		}
		if r, err := records.Fetch(t.Context(), key); r != nil || !errors.Is(err, ledger.ErrCorrupt) {
			t.Errorf("Fetch(%s) = %v, %v", key, r, err)
		}
	}
}

// What a call costs: the happy path is two updates and no read.
func TestCosts(t *testing.T) {
	t.Parallel()
	s := server(t)
	p := newPeer(t, s)
	store := p.plain(t)
	var clock limittest.Clock
	clock.Set(noon)
	slots := limittest.NewSlots(store, "dns", 2, 0, clock.Now)
	cost := func(what string, updates, reads int) {
		t.Helper()
		want := map[string]int{"UpdateItem": updates}
		if reads > 0 {
			want["GetItem"] = reads
		}
		if diff := cmp.Diff(want, p.taken()); diff != "" {
			t.Errorf("calls of %s (-want +got):\n%s", what, diff)
		}
	}
	take := func() *limit.Slot {
		t.Helper()
		slot, err := slots.Acquire(t.Context(), rand.Text(), clock.Now().Add(30*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		return slot
	}
	give := func(slot *limit.Slot) {
		t.Helper()
		if err := slot.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	first := take()
	cost("the first slot of all", 2, 1)
	give(first)
	p.taken()
	for range 10 {
		slot := take()
		cost("an acquire", 1, 0)
		give(slot)
		cost("a release", 1, 0)
		give(slot)
		if calls := p.taken(); len(calls) > 0 {
			t.Errorf("a second release takes %v", calls)
		}
	}
	take()
	take()
	p.taken()
	if _, err := slots.Acquire(t.Context(), "c", noon.Add(time.Minute)); err == nil {
		t.Error("three slots of two")
	}
	reads := 1
	if *endpoint != "" {
		reads = 0 // DynamoDB returns the old item
	}
	cost("a refusal", 1, reads)
	clock.Advance(30 * time.Second)
	take()
	cost("a slot in place of dead ones", 3, reads)
	if _, err := store.Add(t.Context(), "c", noon, limit.Units{All: 1}); err != nil {
		t.Fatal(err)
	}
	cost("a report", 1, 0)
	take5 := func(ok bool) {
		t.Helper()
		if _, took, err := store.Take(t.Context(), "c", noon, limit.Units{All: 5, Open: 4}, 9); took != ok || err != nil {
			t.Fatalf("Take = %v, %v", took, err)
		}
	}
	take5(true)
	cost("a payment counted", 1, 0)
	take5(false)
	cost("a payment turned away", 1, reads)
}

// The old item that comes with a failed condition saves the read.
func TestNoReadWithOldItem(t *testing.T) {
	t.Parallel()
	store := dynamo.New(dynamo.Config{Table: "t", API: fake{t: t, update: func() (*out, error) {
		return nil, &types.ConditionalCheckFailedException{Item: map[string]types.AttributeValue{
			"leases": leasesOf(map[string]types.AttributeValue{"a": num("1793534401234")}),
		}}
	}}})
	held, ok, err := store.Acquire(t.Context(), "dns", lease("b"), 1)
	if diff := cmp.Diff([]limit.Lease{lease("a")}, held); diff != "" || ok || err != nil {
		t.Errorf("Acquire = %v, %v; held (-want +got):\n%s", ok, err, diff)
	}
}

// A reply is lost and the SDK sends the request again: one slot is taken, and
// one is given back.
func TestLostReply(t *testing.T) {
	t.Parallel()
	s := server(t)
	for _, most := range []int{1, 2} {
		for _, fresh := range []bool{true, false} {
			t.Run(fmt.Sprintf("cap %d, new item %v", most, fresh), func(t *testing.T) {
				t.Parallel()
				p := newPeer(t, s)
				store := p.plain(t)
				if !fresh {
					p.put(t, map[string]types.AttributeValue{"pk": str("slots|dns"), "leases": leasesOf(map[string]types.AttributeValue{})})
				}
				// The reply to what writes: the second update where the item
				// has to be made.
				writes := map[bool]int{true: 2, false: 1}[fresh]
				p.lost = func(op string, n int) bool { return op == "UpdateItem" && n == writes }
				if _, ok, err := store.Acquire(t.Context(), "dns", lease("mine"), most); !ok || err != nil {
					t.Fatalf("Acquire = %v, %v", ok, err)
				}
				if n := p.taken()["UpdateItem"]; n < writes+1 {
					t.Errorf("%d updates: nothing was sent again", n)
				}
				p.lost = nil
				for i := range most - 1 {
					if _, ok, err := store.Acquire(t.Context(), "dns", lease(fmt.Sprint(i)), most); !ok || err != nil {
						t.Errorf("Acquire = %v, %v: the lost reply took a second slot", ok, err)
					}
				}
				if held, ok, err := store.Acquire(t.Context(), "dns", lease("x"), most); ok || err != nil || len(held) != most {
					t.Errorf("Acquire = %v, %v, %v", held, ok, err)
				}
				p.taken()
				p.lost = func(op string, n int) bool { return op == "UpdateItem" && n == 1 }
				if err := store.Remove(t.Context(), "dns", lease("mine")); err != nil {
					t.Fatalf("Remove = %v", err)
				}
				if n := p.taken()["UpdateItem"]; n != 2 {
					t.Errorf("%d updates, want the removal twice", n)
				}
				p.lost = nil
				if _, ok, err := store.Acquire(t.Context(), "dns", lease("x"), most); !ok || err != nil {
					t.Errorf("Acquire = %v, %v", ok, err)
				}
			})
		}
	}
}

// An addition is not sent twice, whatever happens to the reply.
func TestLostReplyOfAdd(t *testing.T) {
	t.Parallel()
	p := newPeer(t, server(t))
	store := p.store(t)
	p.lost = func(string, int) bool { return true }
	if n, err := store.Add(t.Context(), "c", noon, limit.Units{All: 31}); err == nil {
		t.Errorf("Add = %+v", n)
	}
	if n := p.taken()["UpdateItem"]; n != 1 {
		t.Errorf("sent %d times", n)
	}
	p.lost = nil
	if n, err := store.Add(t.Context(), "c", noon, limit.Units{All: 1}); n.All != 32 || err != nil {
		t.Errorf("Add = %+v, %v", n, err)
	}
}

// Units of a payment are counted again rather than not at all: its payer is not
// turned away because a reply was lost.
func TestLostReplyOfTake(t *testing.T) {
	t.Parallel()
	p := newPeer(t, server(t))
	store := p.store(t)
	p.lost = func(_ string, n int) bool { return n == 1 }
	if n, ok, err := store.Take(t.Context(), "c", noon, limit.Units{All: 5, Open: 4}, 300); err != nil || !ok || n.All != 10 {
		t.Errorf("Take = %+v, %v, %v", n, ok, err)
	}
}

// What is stored and is no map of leases lets nobody in.
func TestCorrupt(t *testing.T) {
	t.Parallel()
	p := newPeer(t, server(t))
	for name, value := range map[string]types.AttributeValue{
		"text":         str("full"),
		"number":       num("1"),
		"end as text":  leasesOf(map[string]types.AttributeValue{"a": str("1")}),
		"half an end":  leasesOf(map[string]types.AttributeValue{"a": num("1.5")}),
		"a huge end":   leasesOf(map[string]types.AttributeValue{"a": num("1e30")}),
		"nested lease": leasesOf(map[string]types.AttributeValue{"a": leasesOf(nil)}),
	} {
		p.put(t, map[string]types.AttributeValue{"pk": str("slots|" + name), "leases": value})
		for _, store := range []*dynamo.Store{p.store(t), p.plain(t)} {
			if _, ok, err := store.Acquire(t.Context(), name, lease("x"), 1); ok || err == nil {
				t.Errorf("%s: Acquire = %v, %v", name, ok, err)
			}
		}
	}
	// An item without the attribute is one that was not used yet.
	p.put(t, map[string]types.AttributeValue{"pk": str("slots|bare")})
	if _, ok, err := p.plain(t).Acquire(t.Context(), "bare", lease("x"), 1); !ok || err != nil {
		t.Errorf("Acquire = %v, %v", ok, err)
	}
}

func BenchmarkSlots(b *testing.B) {
	p := newPeer(b, server(b))
	store := dynamo.New(dynamo.Config{API: p.client, Table: p.table, Timeout: patience})
	for _, held := range []int{0, 49} {
		b.Run(fmt.Sprintf("held=%d", held), func(b *testing.B) { limittest.BenchSlots(b, store, held) })
	}
}

func BenchmarkAdd(b *testing.B) {
	p := newPeer(b, server(b))
	limittest.BenchAdd(b, dynamo.New(dynamo.Config{API: p.client, Table: p.table, Timeout: patience}))
}
