package dynamo_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
	"github.com/hostfacts/hostfacts/pkg/x402/limit"
)

func lease(id string) limit.Lease {
	return limit.Lease{ID: id, Until: noon.Add(1234 * time.Second)}
}

// mustAcquire adds a lease with the given id to an operation, and fails the test if the table
// refuses it.
func mustAcquire(t *testing.T, s *world, operation, id string) {
	t.Helper()
	if _, ok, err := s.Acquire(t.Context(), operation, lease(id), 2); !ok || err != nil {
		t.Fatalf("Acquire of %s = %v, %v", id, ok, err)
	}
}

// checkCosts checks that each call costs one write and no read. A paid request must change the
// index twice: when its payment is claimed, and when its answer is stored.
func checkCosts(t *testing.T, w *world) {
	t.Helper()
	ctx := t.Context()
	takes := func(id string, want bool) error {
		_, took, err := w.Acquire(ctx, "dns", lease(id), 1)
		return errors.Join(err, diffErr(want, took))
	}
	pays := func(want bool) error {
		_, took, err := w.Count(ctx, "c", noon, limit.Units{All: 5, Open: 4}, 9)
		return errors.Join(err, diffErr(want, took))
	}
	first := ledgertest.First("k")
	second := ledgertest.Next(first)
	redeemed := ledgertest.Next(second)
	redeemed.State = ledger.Redeemed
	puts := func(r ledger.Payment, want ledger.Payment) error {
		current, err := w.Put(ctx, r)
		return errors.Join(err, diffErr(ledger.Record(want), current))
	}
	w.takeCharges()
	for _, c := range []struct {
		name string
		do   func() error
		// puts and updates are the wanted numbers of PutItem and UpdateItem calls. Each call must
		// cost at most one write unit. index is the wanted number of units for the index.
		puts, updates, index int
	}{
		{name: "the first slot of all", do: func() error { return takes("a", true) }, updates: 1},
		{name: "its release", do: func() error { return w.Remove(ctx, "dns", lease("a")) }, updates: 1},
		{name: "an acquire", do: func() error { return takes("b", true) }, updates: 1},
		{name: "a refusal", do: func() error { return takes("c", false) }, updates: 1},
		{name: "a report", do: func() error { return errOf3(w.Count(ctx, "c", noon, limit.Units{All: 1}, limit.Unbounded)) }, updates: 1},
		{name: "a payment counted", do: func() error { return pays(true) }, updates: 1},
		{name: "a payment turned away", do: func() error { return pays(false) }, updates: 1},
		{name: "a create", do: func() error { return puts(first, first) }, puts: 1, index: 1},
		{name: "a replace", do: func() error { return puts(second, second) }, puts: 1},
		{name: "a create of a taken key", do: func() error { return puts(ledgertest.First("k"), second) }, puts: 1},
		{name: "a late replace", do: func() error { return puts(ledgertest.Next(first), second) }, puts: 1},
		{name: "a replace sent again", do: func() error { return puts(second, second) }, puts: 1},
		{name: "an answer", do: func() error { return puts(redeemed, redeemed) }, puts: 1, index: 1},
	} {
		must(t, c.do())
		took, want := w.takeCharges(), map[string]int{"PutItem": c.puts, "UpdateItem": c.updates}
		maps.DeleteFunc(want, func(_ string, n int) bool { return n == 0 })
		if !maps.Equal(took.calls, want) || took.tableUnits > float64(c.puts+c.updates) || took.indexUnits != float64(c.index) {
			t.Errorf("%s took %+v", c.name, took)
		}
	}
}

// diffErr returns an error if two values differ.
func diffErr[T any](want, got T) error {
	if diff := cmp.Diff(want, got); diff != "" {
		return fmt.Errorf("(-want +got):\n%s", diff)
	}
	return nil
}

// TestLimitsErrors checks that a failed call returns an error with its cause, and no decision
// about the limit. A call also fails if the item has a value of another kind where it must
// have a number or a set of leases.
func TestLimitsErrors(t *testing.T) {
	t.Parallel()
	reads := func(it item, err error) fake {
		return func(_ context.Context, op string) (item, error) {
			if op == "update" {
				return nil, &types.ConditionalCheckFailedException{}
			}
			return it, err
		}
	}
	stored := func(value types.AttributeValue) fake { return reads(item{"slots": value}, nil) }
	updates := func(it item, err error) fake {
		return func(context.Context, string) (item, error) { return it, err }
	}
	for name, c := range map[string]struct {
		api         fake
		failedCalls string
	}{
		"update": {updates(nil, errDown), "[acquire add remove take]"}, "read": {reads(nil, errDown), "[acquire add remove take]"},
		"text": {stored(str("full")), "[acquire add take]"}, "number": {stored(num("1")), "[acquire add take]"},
		"no end":         {stored(set("a")), "[acquire add take]"},
		"an odd end":     {stored(set("a 1.5")), "[acquire add take]"},
		"a huge end":     {stored(set("a zzzzzzzzzzzzzzzz")), "[acquire add take]"},
		"no id":          {stored(set(" tntq5u")), "[acquire add take]"},
		"units as text":  {updates(item{"requests": str("3")}, nil), "[add take]"},
		"half a unit":    {updates(item{"requests": num("1.5")}, nil), "[add take]"},
		"another number": {updates(item{"request": num("3")}, nil), "[add take]"}, "no reply": {updates(nil, nil), "[add take]"},
		"undecided text": {updates(item{"requests": num("3"), "undecided": str("1")}, nil), "[add take]"},
		"no undecided":   {updates(item{"requests": num("3")}, nil), "[add take]"},
		"no requests":    {updates(item{"undecided": num("3")}, nil), "[add take]"},
	} {
		store, ctx := c.api.table(), t.Context()
		_, acquired, acquire := store.Acquire(ctx, "dns", lease("x"), 1)
		_, took, take := store.Count(ctx, "c", noon, limit.Units{All: 1}, 9)
		var fails []string
		for verb, err := range map[string]error{
			"acquire": acquire, "take": take, "add": errOf3(store.Count(ctx, "c", noon, limit.Units{All: 1}, limit.Unbounded)),
			"remove": store.Remove(ctx, "dns", lease("a")),
		} {
			if err != nil {
				fails = append(fails, verb)
			}
			if causes := name == "update" || name == "read"; causes && !errors.Is(err, errDown) {
				t.Errorf("%s: %s = %v", name, verb, err)
			}
		}
		if slices.Sort(fails); fmt.Sprint(fails) != c.failedCalls || acquired && acquire != nil || took && take != nil {
			t.Errorf("%s: %v fail, want %s; acquired %v, took %v", name, fails, c.failedCalls, acquired, took)
		}
	}
}

// checkSlotUnits checks that an update of a slots item costs one write unit, even with 50
// leases and the longest name of an operation.
func checkSlotUnits(t *testing.T, w *world) {
	t.Helper()
	const most, operation = 50, "resolve-redirect"
	slots := limit.NewSlots(operation, most, w, func() time.Time { return noon })
	until := time.Unix(1793534411, 123456789) // the end of a lease, with as many digits as it can have
	for i := range most {
		must(t, errOf(slots.Acquire(t.Context(), fmt.Sprint("client ", i), until)))
	}
	if took := w.takeCharges(); took.maxUnits != 1 || took.calls["UpdateItem"] != most {
		t.Errorf("an update costs %.0f write units, want 1; %v", took.maxUnits, took.calls)
	}
}
