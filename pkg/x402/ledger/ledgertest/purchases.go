package ledgertest

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// ExercisePurchases runs the rules of purchases over a store. open is as with
// Exercise, which runs them too.
func ExercisePurchases(t *testing.T, open func(t *testing.T) ledger.Store) {
	for name, run := range map[string]func(*testing.T, ledger.Store){
		"open": openPurchase, "take over": takeOver, "take over, half": halfTakeOver,
		"without its owner": lostOwner, "50 take over": raceTakeOver, "withdraw": withdraw,
		"kept": keepPurchase,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, open(t))
		})
	}
}

// market is a Ledger over the store that is exercised, with one payer who buys
// one thing.
type market struct {
	*ledger.Ledger
	store ledger.Store
	mu    sync.Mutex
	at    time.Time
}

func newMarket(s ledger.Store) *market {
	m := &market{store: s, at: time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)}
	m.Ledger = ledger.New(s, m.now, rand.Text)
	return m
}

func (m *market) now() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.at
}

func (m *market) pass(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.at = m.at.Add(d)
}

const bought = "exercise|purchase"

// pay claims a payment for the purchase.
func (m *market) pay(t *testing.T, name string) *ledger.Hold {
	t.Helper()
	c, err := m.Claim(t.Context(), ledger.Payment{
		Key: "exercise|" + name, AuthDigest: "auth " + name, SigDigest: "s", Request: "GET /a", Terms: json.RawMessage(`{}`),
		ValidBefore: m.now().Add(5 * time.Minute), Purchase: bought, Proof: ledger.Proof{Token: name},
	}, m.now().Add(30*time.Second))
	if err != nil || c.Hold == nil {
		t.Fatalf("claim %s: standing %d, %v", name, c.Standing, err)
	}
	return c.Hold
}

// opens opens the purchase and says whose it is.
func (m *market) opens(t *testing.T, h *ledger.Hold, owner *ledger.Hold) *ledger.Purchase {
	t.Helper()
	p, err := m.Open(t.Context(), h)
	if err != nil || p.Owner != owner.Record().Key || p.Mine(h) != (h == owner) {
		t.Fatalf("open for %s: %+v, %v; want %s", h.Record().Key, p, err, owner.Record().Key)
	}
	return p
}

func (m *market) owner(t *testing.T, p *ledger.Purchase) *ledger.Record {
	t.Helper()
	r, err := m.Owner(t.Context(), p)
	must(t, err)
	return r
}

// openPurchase: whoever opens a purchase first owns it, and opens it again before
// every attempt; others learn who it is.
func openPurchase(t *testing.T, s ledger.Store) {
	m := newMarket(s)
	first, second := m.pay(t, "first"), m.pay(t, "second")
	m.opens(t, first, first)
	p := m.opens(t, second, first)
	m.opens(t, first, first)
	if _, err := m.TakeOver(t.Context(), p, m.owner(t, p), second); !errors.Is(err, ledger.ErrConflict) {
		t.Errorf("taken over although the owner has opened it since: %v", err)
	}
	m.opens(t, second, first)
	// A purchase that nobody has opened for its time is as good as none.
	m.pass(35*24*time.Hour + time.Minute)
	m.opens(t, second, second)
}

// takeOver: the owner is closed before the purchase is swapped, on the very
// version that was read.
func takeOver(t *testing.T, s ledger.Store) {
	m := newMarket(s)
	first, second := m.pay(t, "first"), m.pay(t, "second")
	m.opens(t, first, first)
	must(t, first.NotSent(t.Context(), "overloaded"))
	p := m.opens(t, second, first)
	dead := m.owner(t, p)

	// The owner is claimed once more in between: nothing is taken over.
	first = m.pay(t, "first")
	if _, err := m.TakeOver(t.Context(), p, dead, second); !errors.Is(err, ledger.ErrConflict) {
		t.Fatalf("taken over from an owner that lives: %v", err)
	}
	m.opens(t, first, first)
	must(t, first.NotSent(t.Context(), "overloaded"))
	p = m.opens(t, second, first)
	got, err := m.TakeOver(t.Context(), p, m.owner(t, p), second)
	if err != nil || !got.Mine(second) {
		t.Fatalf("%+v, %v", got, err)
	}
	m.opens(t, second, second)
	if r := m.owner(t, p); r.State != ledger.Superseded || r.Owner != second.Record().Key || r.Payload != nil {
		t.Errorf("the old owner: %+v", r)
	}
	c, err := m.Claim(t.Context(), ledger.Payment{Key: first.Record().Key, AuthDigest: "auth first", Request: "GET /a", Proof: ledger.Proof{Token: "first"}}, m.now().Add(time.Minute))
	if err != nil || c.Standing != ledger.Replaced {
		t.Errorf("the old owner is claimed: %d, %v", c.Standing, err)
	}
}

// halfTakeOver: a process that ends between the two writes leaves a purchase that
// the next one takes over.
func halfTakeOver(t *testing.T, s ledger.Store) {
	m := newMarket(&noSwap{Store: s})
	first, second := m.pay(t, "first"), m.pay(t, "second")
	m.opens(t, first, first)
	must(t, first.Disproved(t.Context(), "cancelled"))
	p := m.opens(t, second, first)
	if _, err := m.TakeOver(t.Context(), p, m.owner(t, p), second); !errors.Is(err, errNoSwap) {
		t.Fatal(err)
	}
	m = newMarket(s)
	third := m.pay(t, "third")
	p = m.opens(t, third, first)
	r := m.owner(t, p)
	if r.State != ledger.Superseded || !r.Disproved {
		t.Fatalf("%+v", r)
	}
	if _, err := m.TakeOver(t.Context(), p, r, third); err != nil {
		t.Fatal(err)
	}
	m.opens(t, third, third)
}

var errNoSwap = errors.New("ledgertest: the process has ended")

// noSwap ends before a purchase is swapped.
type noSwap struct{ ledger.Store }

func (s *noSwap) Replace(ctx context.Context, r ledger.Record) error {
	if r.State == ledger.Bought {
		return errNoSwap
	}
	return s.Store.Replace(ctx, r)
}

// lostOwner: a purchase whose owner has no record any more, or whose record is of
// another authorization under the same nonce, can be taken over.
func lostOwner(t *testing.T, s ledger.Store) {
	m := newMarket(s)
	first, second := m.pay(t, "first"), m.pay(t, "second")
	m.opens(t, first, first)
	must(t, first.NotSent(t.Context(), "overloaded"))
	m.pass(20 * 24 * time.Hour)
	p := m.opens(t, second, first)
	m.pass(15*24*time.Hour + time.Hour) // the record ends before the purchase does
	if r := m.owner(t, p); r != nil {
		t.Fatalf("the owner has a record: %+v", r)
	}
	if got, err := m.TakeOver(t.Context(), p, nil, second); err != nil || !got.Mine(second) {
		t.Fatalf("%+v, %v", got, err)
	}
}

// raceTakeOver: of many payments that open one purchase at once one owns it, and
// of many that take it over at once one does.
func raceTakeOver(t *testing.T, s ledger.Store) {
	const n = 50
	m := newMarket(s)
	holds := make([]*ledger.Hold, n)
	for i := range holds {
		holds[i] = m.pay(t, rand.Text())
	}
	seen := make([]*ledger.Purchase, n)
	atOnce(n, func(i int) {
		var err error
		if seen[i], err = m.Open(t.Context(), holds[i]); err != nil {
			t.Errorf("open: %v", err)
		}
	})
	if t.Failed() {
		return
	}
	mine := 0
	for i, p := range seen {
		if p.Owner != seen[0].Owner {
			t.Errorf("two owners: %s and %s", p.Owner, seen[0].Owner)
		}
		if p.Mine(holds[i]) {
			mine++
			must(t, holds[i].NotSent(t.Context(), "overloaded"))
		}
	}
	if mine != 1 {
		t.Fatalf("%d owners", mine)
	}
	var mu sync.Mutex
	winners := 0
	atOnce(n, func(i int) {
		if seen[i].Mine(holds[i]) {
			return
		}
		owner, err := m.Owner(t.Context(), seen[i])
		if err != nil {
			t.Errorf("owner: %v", err)
			return
		}
		_, err = m.TakeOver(t.Context(), seen[i], owner, holds[i])
		if err != nil && !errors.Is(err, ledger.ErrConflict) {
			t.Errorf("take over: %v", err)
		}
		mu.Lock()
		defer mu.Unlock()
		if err == nil {
			winners++
		}
	})
	if winners != 1 {
		t.Errorf("%d payments took the purchase over", winners)
	}
}

// keepPurchase: a purchase does not end before a payment in doubt that owns it.
func keepPurchase(t *testing.T, s ledger.Store) {
	const day = 24 * time.Hour
	m := newMarket(s)
	owner, other := m.pay(t, "owner"), m.pay(t, "other")
	m.opens(t, owner, owner)
	must(t, owner.Uncertain(t.Context(), "timeout", ""))
	for range 10 { // as reconcile does, every now and then
		m.pass(7 * day)
		r, err := m.Fetch(t.Context(), owner.Record().Key)
		if err != nil || r == nil {
			t.Fatal(r, err)
		}
		must(t, m.KeepPurchase(t.Context(), *r))
		must(t, m.KeepPurchase(t.Context(), *r))
	}
	p := m.opens(t, other, owner)
	if r := m.owner(t, p); r == nil || r.State != ledger.Uncertain {
		t.Errorf("after 70 days: %+v", r)
	}
	m.pass(36 * day) // nobody has looked
	if p, err := m.Purchase(t.Context(), bought); p != nil || err != nil {
		t.Errorf("%+v, %v", p, err)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// withdraw: a payment that waited for another one when its process ended was never
// sent; the owner of a purchase may have been.
func withdraw(t *testing.T, s ledger.Store) {
	m := newMarket(s)
	owner, waits, early := m.pay(t, "owner"), m.pay(t, "waits"), m.pay(t, "early")
	m.opens(t, owner, owner)
	m.opens(t, waits, owner)
	is := func(what string, h *ledger.Hold, want bool) {
		t.Helper()
		r, err := m.Fetch(t.Context(), h.Record().Key)
		if err != nil || r == nil {
			t.Fatal(what, r, err)
		}
		if got, err := m.Withdraw(t.Context(), *r); got != want || err != nil {
			t.Errorf("%s: withdrawn %t, %v", what, got, err)
		}
	}
	m.pass(30*time.Second + ledger.ClockSlack - time.Nanosecond)
	is("a clock may be wrong", waits, false)
	m.pass(time.Nanosecond)
	is("the owner", owner, false)
	is("before the purchase was opened for it", early, true)
	is("waits", waits, true)
	r, err := m.Fetch(t.Context(), waits.Record().Key)
	if err != nil || r.State != ledger.Refused || r.Sent || r.Doubt {
		t.Errorf("%+v, %v", r, err)
	}
	is("decided", waits, false)
	must(t, m.pay(t, "waits").Uncertain(t.Context(), "timeout", ""))
	is("in doubt", waits, false)
}
