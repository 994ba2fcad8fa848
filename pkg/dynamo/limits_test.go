package dynamo_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/dynamo"
	"github.com/hostfacts/hostfacts/pkg/limit"
	"github.com/hostfacts/hostfacts/pkg/limit/limittest"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
)

func lease(id string) limit.Lease {
	return limit.Lease{ID: id, Until: noon.Add(1234 * time.Millisecond)}
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

// refuse is a condition that does not hold.
func refuse() (item, error) { return nil, &types.ConditionalCheckFailedException{} }

// What the calls of both stores cost: the happy path of a slot is two updates and no
// read, and a refusal a read where the server does not return the old item.
func TestCosts(t *testing.T) {
	t.Parallel()
	checkCosts(t, newWorld(t, testbed.StartDynamo(t)), 1)
}

func checkCosts(t *testing.T, w *world, reads int) {
	t.Helper()
	ctx, store, records := t.Context(), w.limits(), w.ledger()
	var clock limittest.Clock
	clock.Set(noon)
	slots := limittest.NewSlots(store, "dns", 2, 0, clock.Now)
	var last *limit.Slot
	take := func() (err error) {
		last, err = slots.Acquire(ctx, rand.Text(), clock.Now().Add(30*time.Second))
		return err
	}
	give := func() error { return last.Release(ctx) }
	pays := func(want bool) error {
		_, took, err := store.Take(ctx, "c", noon, limit.Units{All: 5, Open: 4}, 9)
		return errors.Join(err, differ(want, took))
	}
	first := ledgertest.Full("k")
	second := ledgertest.Next(first)
	creates := func(r ledger.Record, want *ledger.Record) error {
		existing, err := records.Create(ctx, r)
		return errors.Join(err, differ(want, existing))
	}
	w.took()
	for _, c := range []struct {
		what                 string
		do                   func() error
		puts, updates, reads int
	}{
		{"the first slot of all", take, 0, 2, 1},
		{"its release", give, 0, 1, 0},
		{"an acquire", take, 0, 1, 0},
		{"a release", give, 0, 1, 0},
		{"a second release", give, 0, 0, 0},
		{"an acquire", take, 0, 1, 0},
		{"another", take, 0, 1, 0},
		{"a refusal", func() error { return differ(true, take() != nil) }, 0, 1, reads},
		{"a slot in place of dead ones", func() error {
			clock.Advance(30 * time.Second)
			return take()
		}, 0, 3, reads},
		{"a report", func() error { return errOf(store.Add(ctx, "c", noon, limit.Units{All: 1})) }, 0, 1, 0},
		{"a payment counted", func() error { return pays(true) }, 0, 1, 0},
		{"a payment turned away", func() error { return pays(false) }, 0, 1, reads},
		{"a create", func() error { return creates(first, nil) }, 1, 0, 0},
		{"a replace", func() error { return records.Replace(ctx, second) }, 1, 0, 0},
		{"a create of a taken key", func() error { return creates(ledgertest.First("k"), &second) }, 1, 0, reads},
		{"a late replace", func() error {
			return differ(true, errors.Is(records.Replace(ctx, ledgertest.Next(first)), ledger.ErrConflict))
		}, 1, 0, reads},
		{"a replace sent again", func() error { return records.Replace(ctx, second) }, 1, 0, reads},
	} {
		must(t, c.do())
		calls := w.took()
		if diff := cmp.Diff([]int{c.puts, c.updates, c.reads}, []int{calls["PutItem"], calls["UpdateItem"], calls["GetItem"]}); diff != "" {
			t.Errorf("puts, updates and reads of %s (-want +got):\n%s", c.what, diff)
		}
	}
}

// differ is an error when two values do.
func differ[T any](want, got T) error {
	if diff := cmp.Diff(want, got); diff != "" {
		return fmt.Errorf("(-want +got):\n%s", diff)
	}
	return nil
}

// A reply is lost and the SDK sends the request again: one slot is taken, and
// one is given back.
func TestLostReplyOfALease(t *testing.T) {
	t.Parallel()
	s := testbed.StartDynamo(t)
	for what, there := range map[string]item{"no item": nil, "an item without leases": {}, "an empty one": {"leases": leasesOf(item{})}} {
		for _, most := range []int{1, 2} {
			t.Run(fmt.Sprintf("cap %d, %s", most, what), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, s)
				store := w.limits()
				if there != nil {
					there := maps.Clone(there)
					there["pk"] = str("slots|dns")
					w.put(there)
				}
				// The reply to what writes: the second update where the leases
				// have to be made.
				writes := 2 - len(there)
				w.loses(nth("UpdateItem", writes))
				acquires(t, store, "dns", "mine", most, true)
				if n := w.took()["UpdateItem"]; n < writes+1 {
					t.Errorf("%d updates: nothing was sent again", n)
				}
				w.loses(nil)
				for i := range most - 1 { // the lost reply took no second slot
					acquires(t, store, "dns", fmt.Sprint(i), most, true)
				}
				if held := acquires(t, store, "dns", "x", most, false); len(held) != most {
					t.Errorf("held are %v", held)
				}
				w.loses(nth("UpdateItem", 1))
				must(t, store.Remove(t.Context(), "dns", lease("mine")))
				if n := w.took()["UpdateItem"]; n != 2 {
					t.Errorf("%d updates, want the removal twice", n)
				}
				w.loses(nil)
				acquires(t, store, "dns", "x", most, true)
			})
		}
	}
}

// An addition is not sent twice, whatever happens to the reply. Units of a payment
// are counted again rather than not at all: its payer is not turned away because a
// reply was lost.
func TestLostReplyOfUnits(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testbed.StartDynamo(t))
	store := w.limits()
	w.loses(nth("UpdateItem", 1))
	if n, err := store.Add(t.Context(), "c", noon, limit.Units{All: 31}); err == nil || w.took()["UpdateItem"] != 1 {
		t.Errorf("Add = %+v, %v; or it was sent again", n, err)
	}
	w.loses(nil)
	if n, err := store.Add(t.Context(), "c", noon, limit.Units{All: 1}); n.All != 32 || err != nil {
		t.Errorf("Add = %+v, %v", n, err)
	}
	w.loses(nth("UpdateItem", 1))
	if n, ok, err := store.Take(t.Context(), "d", noon, limit.Units{All: 5, Open: 4}, 300); err != nil || !ok || n.All != 10 {
		t.Errorf("Take = %+v, %v, %v", n, ok, err)
	}
}

// What is stored and is no map of leases lets nobody in.
func TestCorruptLeases(t *testing.T) {
	t.Parallel()
	for name, value := range map[string]types.AttributeValue{
		"text": str("full"), "number": num("1"), "end as text": leasesOf(item{"a": str("1")}), "half an end": leasesOf(item{"a": num("1.5")}),
		"a huge end": leasesOf(item{"a": num("1e30")}), "nested lease": leasesOf(item{"a": leasesOf(nil)}),
	} {
		api := fake{update: refuse, get: func(context.Context) (item, error) { return item{"leases": value}, nil }}
		if _, ok, err := dynamo.NewLimits(api.config()).Acquire(t.Context(), "dns", lease("x"), 1); ok || err == nil {
			t.Errorf("%s: Acquire = %v, %v", name, ok, err)
		}
	}
}

// Whatever goes wrong on the way is an error with its cause, not a verdict.
func TestLimitsErrors(t *testing.T) {
	t.Parallel()
	cause := errors.New("no route")
	for name, api := range map[string]fake{
		"update":         {update: func() (item, error) { return nil, cause }},
		"read":           {update: refuse, get: func(context.Context) (item, error) { return nil, cause }},
		"comes and goes": {update: refuse, get: func(context.Context) (item, error) { return nil, nil }}, // the store does not loop
	} {
		store := dynamo.NewLimits(api.config())
		held, ok, err := store.Acquire(t.Context(), "dns", lease("a"), 1)
		if ok || held != nil || err == nil || name != "comes and goes" && !errors.Is(err, cause) {
			t.Errorf("%s: Acquire = %v, %v, %v", name, held, ok, err)
		}
		if _, ok, err := store.Take(t.Context(), "c", noon, limit.Units{All: 1}, 9); ok || (name != "comes and goes") != errors.Is(err, cause) {
			t.Errorf("%s: Take = %v, %v", name, ok, err)
		}
		if name != "update" {
			continue
		}
		_, add := store.Add(t.Context(), "c", noon, limit.Units{All: 1})
		if remove := store.Remove(t.Context(), "dns", lease("a")); !errors.Is(remove, cause) || !errors.Is(add, cause) {
			t.Errorf("Remove = %v, Add = %v", remove, add)
		}
	}
	for name, reply := range map[string]item{
		"nothing": nil, "text": {"requests": str("3")}, "half": {"requests": num("1.5")}, "another": {"request": num("3")},
		"undecided as text": {"requests": num("3"), "undecided": str("1")},
	} {
		store := dynamo.NewLimits(fake{update: func() (item, error) { return reply, nil }}.config())
		_, add := store.Add(t.Context(), "c", noon, limit.Units{All: 1})
		if _, ok, take := store.Take(t.Context(), "c", noon, limit.Units{All: 1}, 9); ok || take == nil || add == nil {
			t.Errorf("a reply with %s: Add = %v; Take = %v, %v", name, add, ok, take)
		}
	}
}

// What is read after a refusal may show room that was not there: then the store
// tries again, once.
func TestRoomAfterRefusal(t *testing.T) {
	t.Parallel()
	leases := func(id, until string) item { return item{"leases": leasesOf(item{id: num(until)})} }
	for _, frees := range []bool{true, false} {
		updates := 0
		store := dynamo.NewLimits(fake{
			update: func() (item, error) {
				if updates++; updates == 2 && frees {
					return leases("b", "1793534401234"), nil
				}
				return refuse()
			},
			get: func(context.Context) (item, error) { return leases("a", "1"), nil },
		}.config())
		held := acquires(t, store, "dns", "b", 2, frees)
		if updates != 2 || frees != slices.Contains(held, lease("b")) {
			t.Errorf("%v after %d updates", held, updates)
		}
	}
	// A lease is there because its request was sent again only if it is this one: a
	// client's two leases may draw the same id.
	for until, ours := range map[string]bool{"1793534401234": true, "1793534401235": false} {
		store := dynamo.NewLimits(fake{update: refuse, get: func(context.Context) (item, error) { return leases("a", until), nil }}.config())
		acquires(t, store, "dns", "a", 1, ours)
	}
}
