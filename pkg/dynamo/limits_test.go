package dynamo_test

import (
	"crypto/rand"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/pkg/dynamo"
	"github.com/hostfacts/hostfacts/pkg/limit"
	"github.com/hostfacts/hostfacts/pkg/limit/limittest"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

var (
	exact = cmp.Exporter(func(reflect.Type) bool { return true })
)

func lease(id string) limit.Lease {
	return limit.Lease{ID: id, Until: noon.Add(1234 * time.Millisecond)}
}

func TestLimitsConformance(t *testing.T) {
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

// The items are those of the design, stand in the ledger's table, and never pass for
// a record.
func TestLimitsItems(t *testing.T) {
	t.Parallel()
	p := newPeer(t, server(t))
	store := p.store(t)
	for _, id := range []string{"a", "b"} {
		acquires(t, store, "host-intel", id, 2, true)
		if _, err := store.Add(t.Context(), "2001:db8:1:2::/64", noon, limit.Units{All: 31, Open: 2}); err != nil {
			t.Fatal(err)
		}
	}
	records := dynamo.NewLedger(dynamo.Config{API: p.client, Table: p.table, Timeout: patience})
	until := num("1793534401234")
	for key, want := range map[string]map[string]types.AttributeValue{
		"slots|host-intel": {"leases": leasesOf(map[string]types.AttributeValue{"a": until, "b": until})},
		"rate|2001:db8:1:2::/64|1793534400": {
			"requests": num("62"), "undecided": num("4"), "expires_at": num("1793535000"),
		},
	} {
		item := p.item(t, key)
		want["pk"] = str(key)
		if diff := cmp.Diff(want, item, exact); diff != "" {
			t.Errorf("%s (-want +got):\n%s", key, diff)
		}
		if r, err := records.Fetch(t.Context(), key); r != nil || !errors.Is(err, ledger.ErrCorrupt) {
			t.Errorf("Fetch(%s) = %v, %v", key, r, err)
		}
	}
}

// What a call costs: the happy path is two updates and no read.
func TestLimitsCosts(t *testing.T) {
	t.Parallel()
	s := server(t)
	p := newPeer(t, s)
	store := p.plain(t)
	var clock limittest.Clock
	clock.Set(noon)
	slots := limittest.NewSlots(store, "dns", 2, 0, clock.Now)
	ctx, reads := t.Context(), 1
	if *endpoint != "" {
		reads = 0 // DynamoDB returns the old item
	}
	var last *limit.Slot
	take := func() (err error) {
		last, err = slots.Acquire(ctx, rand.Text(), clock.Now().Add(30*time.Second))
		return err
	}
	give := func() error { return last.Release(ctx) }
	pay := func(want bool) func() error {
		return func() error {
			_, took, err := store.Take(ctx, "c", noon, limit.Units{All: 5, Open: 4}, 9)
			if took != want {
				t.Errorf("Take = %v", took)
			}
			return err
		}
	}
	for _, c := range []struct {
		what           string
		do             func() error
		updates, reads int
	}{
		{"the first slot of all", take, 2, 1},
		{"its release", give, 1, 0},
		{"an acquire", take, 1, 0},
		{"a release", give, 1, 0},
		{"a second release", give, 0, 0},
		{"an acquire", take, 1, 0},
		{"another", take, 1, 0},
		{"a refusal", func() error {
			if take() == nil {
				t.Error("three slots of two")
			}
			return nil
		}, 1, reads},
		{"a slot in place of dead ones", func() error {
			clock.Advance(30 * time.Second)
			return take()
		}, 3, reads},
		{"a report", func() error {
			_, err := store.Add(ctx, "c", noon, limit.Units{All: 1})
			return err
		}, 1, 0},
		{"a payment counted", pay(true), 1, 0},
		{"a payment turned away", pay(false), 1, reads},
	} {
		if err := c.do(); err != nil {
			t.Fatalf("%s: %v", c.what, err)
		}
		if calls := p.taken(); calls["UpdateItem"] != c.updates || calls["GetItem"] != c.reads || len(calls) > 2 {
			t.Errorf("%s took %v, want %d updates and %d reads", c.what, calls, c.updates, c.reads)
		}
	}
}

// The old item that comes with a failed condition saves the read.
func TestNoReadWithOldItem(t *testing.T) {
	t.Parallel()
	store := over(fakeLimits{t: t, update: func() (*out, error) {
		return nil, &types.ConditionalCheckFailedException{Item: map[string]types.AttributeValue{
			"leases": leasesOf(map[string]types.AttributeValue{"a": num("1793534401234")}),
		}}
	}})
	held := acquires(t, store, "dns", "b", 1, false)
	if diff := cmp.Diff([]limit.Lease{lease("a")}, held); diff != "" {
		t.Errorf("held (-want +got):\n%s", diff)
	}
}

// A reply is lost and the SDK sends the request again: one slot is taken, and
// one is given back.
func TestLimitsLostReply(t *testing.T) {
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
				p.loses(writes)
				acquires(t, store, "dns", "mine", most, true)
				if n := p.taken()["UpdateItem"]; n < writes+1 {
					t.Errorf("%d updates: nothing was sent again", n)
				}
				p.lost = nil
				for i := range most - 1 { // the lost reply took no second slot
					acquires(t, store, "dns", fmt.Sprint(i), most, true)
				}
				if held := acquires(t, store, "dns", "x", most, false); len(held) != most {
					t.Errorf("held are %v", held)
				}
				p.loses(1)
				if err := store.Remove(t.Context(), "dns", lease("mine")); err != nil {
					t.Fatalf("Remove = %v", err)
				}
				if n := p.taken()["UpdateItem"]; n != 2 {
					t.Errorf("%d updates, want the removal twice", n)
				}
				p.lost = nil
				acquires(t, store, "dns", "x", most, true)
			})
		}
	}
}

// acquires has a store add a lease, or refuse it, and returns what is held then.
func acquires(t *testing.T, s *dynamo.Limits, operation, id string, most int, want bool) []limit.Lease {
	t.Helper()
	held, ok, err := s.Acquire(t.Context(), operation, lease(id), most)
	if ok != want || err != nil {
		t.Fatalf("Acquire of %s = %v, %v; want %v", id, ok, err, want)
	}
	return held
}

// An addition is not sent twice, whatever happens to the reply. Units of a payment
// are counted again rather than not at all: its payer is not turned away because a
// reply was lost.
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
	p.loses(1)
	n, ok, err := store.Take(t.Context(), "d", noon, limit.Units{All: 5, Open: 4}, 300)
	if err != nil || !ok || n.All != 10 {
		t.Errorf("Take = %+v, %v, %v", n, ok, err)
	}
}

// What is stored and is no map of leases lets nobody in.
func TestLimitsCorrupt(t *testing.T) {
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
		for _, store := range []*dynamo.Limits{p.store(t), p.plain(t)} {
			if _, ok, err := store.Acquire(t.Context(), name, lease("x"), 1); ok || err == nil {
				t.Errorf("%s: Acquire = %v, %v", name, ok, err)
			}
		}
	}
	// An item without the attribute is one that was not used yet.
	p.put(t, map[string]types.AttributeValue{"pk": str("slots|bare")})
	acquires(t, p.plain(t), "bare", "x", 1, true)
}
