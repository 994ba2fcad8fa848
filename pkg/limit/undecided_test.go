package limit_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/pkg/limit"
)

// weigh weighs n requests with a payment and returns those that may go on.
func weigh(t *testing.T, r *limit.Rate, client string, n int) (on []*limit.Undecided) {
	t.Helper()
	for range n {
		u, v := r.Weigh(t.Context(), client)
		if v.Err != nil || v.OK != (u != nil) {
			t.Fatalf("Weigh = %v, %+v", u, v)
		}
		if v.OK {
			on = append(on, u)
		}
	}
	return on
}

func decide(t *testing.T, refused bool, all ...*limit.Undecided) {
	t.Helper()
	for _, u := range all {
		if err := u.Decide(t.Context(), refused); err != nil {
			t.Errorf("Decide: %v", err)
		}
	}
}

// What payments weigh at several limits, and what of it comes back.
func TestWeights(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ perMinute, undecided, refused int }{
		{1, 1, 1}, {10, 1, 1}, {30, 1, 2}, {60, 1, 4}, {61, 2, 5}, {150, 3, 10}, {300, 5, 20}, {3000, 50, 200}, {1_000_000, 16_667, 66_667},
	} {
		t.Run(fmt.Sprint(c.perMinute), func(t *testing.T) {
			t.Parallel()
			var store counter
			clock := at(0)
			r := newRate(c.perMinute, &store, clock)
			total := func() limit.Units { return store.total(t, client, noon) }
			at := weigh(t, r, client, 1)
			if got := total(); got != (limit.Units{All: c.undecided, Open: c.undecided - 1}) {
				t.Errorf("undecided: %+v", got)
			}
			decide(t, false, at...)
			decide(t, true, at...) // too late: it is decided
			if got := total(); got != (limit.Units{All: 1}) {
				t.Errorf("decided: %+v", got)
			}
			r = newRate(c.perMinute, &store, clock) // another environment
			if at = weigh(t, r, "other", 1); len(at) != 1 {
				t.Fatal("refused")
			}
			decide(t, true, at...)
			if got := store.total(t, "other", noon); got != (limit.Units{All: c.refused}) {
				t.Errorf("refused: %+v", got)
			}
		})
	}
}

// As many payments at once as the limit has room for while they are undecided,
// over all environments; all of the limit once they are decided; and few whose
// payer is at fault.
func TestWeighIsExact(t *testing.T) {
	t.Parallel()
	for _, environments := range []int{1, 200} {
		t.Run(fmt.Sprint(environments), func(t *testing.T) {
			t.Parallel()
			var store counter
			clock := at(0)
			rates := make([]*limit.Rate, environments)
			for i := range rates {
				rates[i] = newRate(300, &store, clock)
			}
			n := 0
			send := func(client string, decided func(*limit.Undecided)) (ok int) {
				for range 400 {
					n++
					for _, u := range weigh(t, rates[n%environments], client, 1) {
						ok++
						decided(u)
					}
				}
				return ok
			}
			same(t, "payments while none was decided", send("none decided", func(*limit.Undecided) {}), 60)
			same(t, "payments that were decided at once", send("paid", func(u *limit.Undecided) { decide(t, false, u) }), 296)
			same(t, "payments of a payer at fault", send("refused", func(u *limit.Undecided) { decide(t, true, u) }), 15)
		})
	}
}

// A client that has used its limit for good is turned away without a call, and
// one that may get units back is asked about once a second.
func TestWeighAsksAgain(t *testing.T) {
	t.Parallel()
	var store counter
	clock := at(0)
	r := newRate(300, &store, clock)
	other := newRate(300, &store, clock)
	at := weigh(t, r, client, 60)
	store.taken()
	for range 100 {
		_, v := r.Weigh(t.Context(), client)
		if v.OK || v.RetryAfter != 2*time.Second {
			t.Fatalf("Weigh = %+v", v)
		}
		if v := r.Allow(t.Context(), client); v.OK {
			t.Fatal("without a payment it passes")
		}
	}
	same(t, "known to be over, and yet the calls", len(store.taken()), 0)
	// Another environment hears of it once a second.
	for range 3 {
		weigh(t, other, client, 50)
		same(t, "calls", len(store.taken()), 1)
		clock.Advance(time.Second)
	}
	decide(t, false, at...)
	same(t, "payments after all were decided", len(weigh(t, other, client, 1)), 1)
	same(t, "requests after all were decided", passed(t, other, client, 1), 1)
	// Over for good: no calls any more.
	for range 20 {
		decide(t, true, weigh(t, other, client, 1)...)
	}
	store.taken()
	for range 10 {
		clock.Advance(time.Second)
		if _, v := other.Weigh(t.Context(), client); v.OK || v.RetryAfter < 30*time.Second {
			t.Errorf("Weigh = %+v", v)
		}
	}
	if calls := store.taken(); len(calls) > 1 { // the last of them was seen by the other one
		t.Errorf("over for good, and yet the calls %v", calls)
	}
}

// Requests with and without a payment share the limit, and what only this
// environment knows counts.
func TestWeighBesideOthers(t *testing.T) {
	t.Parallel()
	var store counter
	r := newRate(300, &store, at(0))
	passed(t, r, client, 30) // not reported
	same(t, "payments of 270 units", len(weigh(t, r, client, 100)), 54)
	same(t, "more passed", passed(t, r, client, 100), 0)
	if !r.Peek("198.51.100.9").OK || r.Peek(client).OK {
		t.Error("Known knows something else")
	}
}

// What is refused after the turn of a minute counts in the new one, and nothing
// is given back there.
func TestDecideInTheNextWindow(t *testing.T) {
	t.Parallel()
	var store counter
	clock := at(59 * time.Second)
	r := newRate(300, &store, clock)
	at := weigh(t, r, client, 2)
	clock.Advance(2 * time.Second)
	store.taken()
	decide(t, false, at[0])
	same(t, "given back into a window that is over", len(store.taken()), 0)
	decide(t, true, at[1])
	if got := store.total(t, client, noon.Add(limit.Window)); got != (limit.Units{All: 15}) {
		t.Errorf("in the new window: %+v", got)
	}
}

func TestWeighStoreDown(t *testing.T) {
	t.Parallel()
	store := counter{down: true}
	r := newRate(300, &store, at(0))
	for range 3 { // each asks: the ledger is down as well, and nobody else is held up
		if u, v := r.Weigh(t.Context(), client); u != nil || v.OK || !errors.Is(v.Err, errDown) {
			t.Errorf("Weigh = %v, %+v", u, v)
		}
	}
	same(t, "calls", len(store.taken()), 3)
	store.down = false
	at := weigh(t, r, client, 1)
	store.down = true
	if err := at[0].Decide(t.Context(), false); !errors.Is(err, errDown) {
		t.Errorf("Decide = %v", err)
	}
}

// A correction takes no longer than a report, and no hanging up cuts it short.
func TestDecideSlow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, store := bubbled(300, nil)
		u := weigh(t, r, client, 1)[0]
		store.hook = silent
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		begun := time.Now()
		if err := u.Decide(ctx, false); !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != limit.DefaultStoreTimeout {
			t.Errorf("Decide = %v after %s", err, time.Since(begun))
		}
	})
}

// The headers of a decided request say what is left after it.
func TestUndecidedVerdict(t *testing.T) {
	t.Parallel()
	r := newRate(300, &limit.Memory{}, at(0))
	at := weigh(t, r, client, 1)
	for _, want := range []string{`"default";r=295;t=60`, `"default";r=299;t=60`} {
		if diff := cmp.Diff(want, at[0].Verdict().Headers()["RateLimit"]); diff != "" {
			t.Errorf("RateLimit (-want +got):\n%s", diff)
		}
		decide(t, false, at...)
	}
}

// Many payments at once in many environments never pass what is left.
func TestWeighAtOnce(t *testing.T) {
	t.Parallel()
	var store counter
	clock := at(0)
	var mu sync.Mutex
	on, worst := 0, 0
	now := func(more int) {
		mu.Lock()
		defer mu.Unlock()
		on += more
		worst = max(worst, on)
	}
	var wg sync.WaitGroup
	for range 40 {
		r := newRate(100, &store, clock) // weights 2 and 7
		wg.Go(func() {
			for i := range 10 {
				if u, v := r.Weigh(t.Context(), client); v.OK {
					now(1)
					now(-1)
					decide(t, i%2 == 0, u)
				}
			}
		})
	}
	wg.Wait()
	if worst > 50 || worst == 0 {
		t.Errorf("%d undecided at once, want 50 at most", worst)
	}
}
