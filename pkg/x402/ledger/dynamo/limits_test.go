package dynamo_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/dynamo"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
	"github.com/hostfacts/hostfacts/pkg/x402/limit"
	"github.com/hostfacts/hostfacts/pkg/x402/limit/limittest"
)

func lease(id string) limit.Lease {
	return limit.Lease{ID: id, Until: noon.Add(1234 * time.Second)}
}

// acquires has a store add a lease, or refuse it, and returns what is held then.
func acquires(t *testing.T, s *dynamo.Table, operation, id string, most int, want bool) []limit.Lease {
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
// read.
func checkCosts(t *testing.T, w *world) {
	t.Helper()
	ctx := t.Context()
	var clock limittest.Clock
	clock.Set(noon)
	slots := limit.NewSlots("dns", 2, w, clock.Now)
	var last interface{ Release(context.Context) error }
	take := func() (err error) {
		last, err = slots.Acquire(ctx, rand.Text(), clock.Now().Add(30*time.Second))
		return err
	}
	give := func() error { return last.Release(ctx) }
	pays := func(want bool) error {
		_, took, err := w.Count(ctx, "c", noon, limit.Units{All: 5, Open: 4}, 9)
		return errors.Join(err, differ(want, took))
	}
	first := ledgertest.Full("k")
	second := ledgertest.Next(first)
	puts := func(r ledger.Record, want ledger.Record) error {
		stands, err := w.Put(ctx, r)
		return errors.Join(err, differ(&want, stands))
	}
	w.took()
	for _, c := range []struct {
		what          string
		do            func() error
		puts, updates int
	}{
		{"the first slot of all", take, 0, 1},
		{"its release", give, 0, 1},
		{"an acquire", take, 0, 1},
		{"another", take, 0, 1},
		{"a refusal", func() error { return differ(true, take() != nil) }, 0, 1},
		{"a slot in place of dead ones", func() error {
			clock.Advance(30 * time.Second)
			return take()
		}, 0, 3},
		{"a report", func() error { return errOf3(w.Count(ctx, "c", noon, limit.Units{All: 1}, limit.Unbounded)) }, 0, 1},
		{"a payment counted", func() error { return pays(true) }, 0, 1},
		{"a payment turned away", func() error { return pays(false) }, 0, 1},
		{"a create", func() error { return puts(first, first) }, 1, 0},
		{"a replace", func() error { return puts(second, second) }, 1, 0},
		{"a create of a taken key", func() error { return puts(ledgertest.First("k"), second) }, 1, 0},
		{"a late replace", func() error { return puts(ledgertest.Next(first), second) }, 1, 0},
		{"a replace sent again", func() error { return puts(second, second) }, 1, 0},
	} {
		must(t, c.do())
		calls := w.took()
		if calls["PutItem"] != c.puts || calls["UpdateItem"] != c.updates || calls["GetItem"] > 0 {
			t.Errorf("%s took %v", c.what, calls)
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
	for _, most := range []int{1, 2} {
		w := newWorld(t, s)
		w.loses(nth("UpdateItem", 1))
		acquires(t, w.Table, "dns", "mine", most, true)
		if n := w.took()["UpdateItem"]; n != 2 {
			t.Errorf("%d updates, want the acquisition twice", n)
		}
		for i := range most - 1 { // the lost reply took no second slot
			acquires(t, w.Table, "dns", fmt.Sprint(i), most, true)
		}
		if held := acquires(t, w.Table, "dns", "x", most, false); len(held) != most {
			t.Errorf("held are %v", held)
		}
		w.loses(nth("UpdateItem", 1))
		must(t, w.Remove(t.Context(), "dns", lease("mine")))
		if n := w.took()["UpdateItem"]; n != 2 {
			t.Errorf("%d updates, want the removal twice", n)
		}
		acquires(t, w.Table, "dns", "x", most, true)
	}
}

// An addition is not sent twice, whatever happens to the reply. Units of a payment
// are counted again rather than not at all: its payer is not turned away because a
// reply was lost.
func TestLostReplyOfUnits(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testbed.StartDynamo(t))
	store := w.Table
	w.loses(nth("UpdateItem", 1))
	if n, _, err := store.Count(t.Context(), "c", noon, limit.Units{All: 31}, limit.Unbounded); err == nil || w.took()["UpdateItem"] != 1 {
		t.Errorf("Count = %+v, %v; or it was sent again", n, err)
	}
	w.loses(nil)
	if n, _, err := store.Count(t.Context(), "c", noon, limit.Units{All: 1}, limit.Unbounded); n.All != 32 || err != nil {
		t.Errorf("Count = %+v, %v", n, err)
	}
	w.loses(nth("UpdateItem", 1))
	if n, ok, err := store.Count(t.Context(), "d", noon, limit.Units{All: 5, Open: 4}, 300); err != nil || !ok || n.All != 10 {
		t.Errorf("Count = %+v, %v, %v", n, ok, err)
	}
}

// Whatever goes wrong on the way, or is stored and is not a number or a map of leases, is an
// error with its cause, and not a verdict.
func TestLimitsErrors(t *testing.T) {
	t.Parallel()
	down := func() (item, error) { return nil, errDown }
	reads := func(it item, err error) fake {
		return fake{update: refuse, get: func(context.Context) (item, error) { return it, err }}
	}
	stored := func(value types.AttributeValue) fake { return reads(item{"slots": value}, nil) }
	updates := func(it item) fake { return fake{update: func() (item, error) { return it, nil }} }
	for name, c := range map[string]struct {
		api   fake
		fails string
	}{
		"update": {fake{update: down}, "[acquire add remove take]"}, "read": {reads(nil, errDown), "[acquire add remove take]"},
		"text": {stored(str("full")), "[acquire add take]"}, "number": {stored(num("1")), "[acquire add take]"},
		"no end":         {stored(set("a")), "[acquire add take]"},
		"an odd end":     {stored(set("a 1.5")), "[acquire add take]"},
		"a huge end":     {stored(set("a zzzzzzzzzzzzzzzz")), "[acquire add take]"},
		"no id":          {stored(set(" tntq5u")), "[acquire add take]"},
		"units as text":  {updates(item{"requests": str("3")}), "[add take]"},
		"half a unit":    {updates(item{"requests": num("1.5")}), "[add take]"},
		"another number": {updates(item{"request": num("3")}), "[add take]"}, "no reply": {updates(nil), "[add take]"},
		"undecided text": {updates(item{"requests": num("3"), "undecided": str("1")}), "[add take]"},
		"no undecided":   {updates(item{"requests": num("3")}), "[add take]"},
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
		if slices.Sort(fails); fmt.Sprint(fails) != c.fails || acquired && acquire != nil || took && take != nil {
			t.Errorf("%s: %v fail, want %s; acquired %v, took %v", name, fails, c.fails, acquired, took)
		}
	}
}

// checkWriteUnits prints what each write of a paid request costs, with records as
// long as real ones and an answer of 1 KB. The bounds are what is measured today:
// a longer record shows here.
func checkWriteUnits(t *testing.T, w *world) {
	t.Helper()
	l := ledger.New(w, time.Now, rand.Text)
	const (
		network, asset = "eip155:8453", "0x833589fcd6edb6e08f4c7c32d4f71b54bda02913"
		payer          = "0x857b06519e91e3a54538791bdbb0e22373e36b66"
		payee          = "0x209693Bc6afc0C5328bA36FaF03C514EF312287C"
	)
	digits := func(n int) string { // as little to be compressed as the real ones
		b := make([]byte, n)
		_, _ = rand.Read(b) // never fails
		return hex.EncodeToString(b)
	}
	until, nonce := time.Now().Add(5*time.Minute), "0x"+digits(32)
	terms := fmt.Sprintf(`{"scheme":"exact","network":%q,"asset":%q,"amount":"5000","payTo":%q,"maxTimeoutSeconds":300,`+
		`"extra":{"name":"USD Coin","version":"2","paymentFlow":"upfront"}}`, network, asset, payee)
	payload := fmt.Sprintf(`{"signature":"0x%s","authorization":{"from":%q,"to":%q,"value":"5000","validAfter":"0","validBefore":"%d","nonce":%q}}`,
		digits(65), payer, payee, until.Unix(), nonce)
	c, err := l.Claim(t.Context(), ledger.Payment{
		Key: ledger.Key(network, asset, payer, nonce), AuthDigest: digits(32), SigDigest: digits(32),
		Request: digits(32), Terms: json.RawMessage(terms), Payload: json.RawMessage(payload),
		ValidBefore: until, Token: digits(32), Recovered: true,
		Purchase: ledger.PurchaseKey(network, asset, payer, "request:"+digits(32)),
	}, time.Now().Add(30*time.Second))
	must(t, err)
	receipt := ledger.Receipt{Transaction: "0x" + digits(32), Payer: payer, Network: network}
	answer := ledger.Answer{Status: 200, Stored: true, Body: bytes.Repeat([]byte("x"), 1024)}
	for _, step := range []struct {
		name        string
		most, index float64
		do          func() error
	}{
		{"claim", 1, 1, func() error { return nil }},
		{"open the purchase", 1, 0, func() error { return errOf(l.OpenPurchase(t.Context(), c.Hold)) }},
		{"settled", 1, 0, func() error { return c.Hold.Settled(t.Context(), receipt, true) }},
		{"redeemed, 1 KB", 2, 1, func() error { return c.Hold.Redeem(t.Context(), answer, 0, false) }},
	} {
		must(t, step.do())
		units, index, _, calls := w.spent()
		t.Logf("%-18s %2.0f write units, %.0f of the index, %d call", step.name, units, index, calls)
		if units > step.most || index > step.index || calls != 1 {
			t.Errorf("%s: %.0f write units and %.0f of the index in %d calls, want %.0f and %.0f in one", step.name, units, index, calls, step.most, step.index)
		}
	}
}

// A slot update costs one write unit also at the cap of 50, with the longest name of an
// operation.
func checkSlotUnits(t *testing.T, w *world) {
	t.Helper()
	const most, operation = 50, "resolve-redirect"
	slots := limit.NewSlots(operation, most, w, func() time.Time { return noon })
	// An end with all the digits that it can have.
	until := time.Unix(1793534411, 123456789)
	var last interface{ Release(context.Context) error }
	for i := range most {
		slot, err := slots.Acquire(t.Context(), fmt.Sprint("client ", i), until)
		must(t, err)
		last = slot
	}
	if _, err := slots.Acquire(t.Context(), "one more", until); err == nil {
		t.Error("one slot more than the cap")
	}
	must(t, last.Release(t.Context()))
	if _, _, units, calls := w.spent(); units != 1 || calls < most {
		t.Errorf("an update costs %.0f write units, want 1; %d calls", units, calls)
	}
}
