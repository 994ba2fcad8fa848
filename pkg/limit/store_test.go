package limit_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/pkg/limit"
	"github.com/hostfacts/hostfacts/pkg/limit/limittest"
)

// While the store is down requests pass up to the limit per environment, and it
// is asked after 1, 2, 4, 8, 16 and then every 30 seconds.
func TestRateStoreDown(t *testing.T) {
	t.Parallel()
	store := counter{down: true}
	clock := at(0)
	r := newRate(9, &store, clock) // so low that every request is reported
	var asked []int
	for second := range 130 {
		for i := range 5 {
			v := r.Allow(t.Context(), fmt.Sprintf("%d at %d s", i, second))
			if !v.OK || v.Err != nil && (i > 0 || !errors.Is(v.Err, errDown)) {
				t.Fatalf("request %d after %d s: %+v", i, second, v)
			}
			if v.Err != nil {
				asked = append(asked, second)
			}
		}
		clock.Advance(time.Second)
	}
	same(t, "calls and errors", len(store.taken()), len(asked))
	if diff := cmp.Diff([]int{0, 1, 3, 7, 15, 31, 61, 91, 121}, asked); diff != "" {
		t.Errorf("asked after seconds (-want +got):\n%s", diff)
	}
}

// An environment holds a client to the limit by its own count.
func TestRateStoreDownLimit(t *testing.T) {
	t.Parallel()
	store := counter{down: true}
	r := newRate(300, &store, at(0))
	ok := 0
	for range 1000 {
		if r.Allow(t.Context(), client).OK {
			ok++
		}
	}
	same(t, "passed", ok, 300)
	same(t, "calls", len(store.taken()), 1)
}

// After a failure the report is not repeated, and what was counted since is.
func TestRateStoreComesBack(t *testing.T) {
	t.Parallel()
	store := counter{down: true}
	clock := at(0)
	r := newRate(100, &store, clock)
	send := func(n int) {
		t.Helper()
		for range n {
			if !r.Allow(t.Context(), client).OK {
				t.Fatal("refused")
			}
		}
	}
	send(31) // 11 in the report that fails, 20 after it
	store.down = false
	clock.Advance(time.Second - 1)
	send(1)
	clock.Advance(1)
	send(1)
	if diff := cmp.Diff([]int{11, 22}, store.taken()); diff != "" {
		t.Errorf("reports (-want +got):\n%s", diff)
	}
	// A success ends the back-off: the next report is due after a tenth.
	send(11)
	if diff := cmp.Diff([]int{11}, store.taken()); diff != "" {
		t.Errorf("reports (-want +got):\n%s", diff)
	}
}

// bubbled is a Rate by the clock of a bubble, over a store with a hook.
func bubbled(perMinute int, hook func(context.Context) error) (*limit.Rate, *counter) {
	store := &counter{hook: hook}
	return limit.NewRate(limit.RateConfig{PerMinute: perMinute, Counter: store, Now: time.Now}), store
}

// A store that says nothing costs the time-out once; then it is left alone.
func TestRateStoreSlow(t *testing.T) {
	t.Parallel()
	for timeout, want := range map[time.Duration]time.Duration{0: 250 * time.Millisecond, time.Millisecond: time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			store := &counter{hook: silent}
			r := limit.NewRate(limit.RateConfig{PerMinute: 9, Counter: store, Now: time.Now, StoreTimeout: timeout})
			begun := time.Now()
			v := r.Allow(t.Context(), client)
			if d := time.Since(begun); d != want || !v.OK || !errors.Is(v.Err, context.DeadlineExceeded) {
				t.Errorf("Allow = %+v after %s", v, d)
			}
			for i := range 8 {
				if v := r.Allow(t.Context(), fmt.Sprint(i)); !v.OK || v.Err != nil {
					t.Errorf("Allow = %+v", v)
				}
			}
			if d := time.Since(begun); d != want || len(store.taken()) != 1 {
				t.Errorf("during the back-off: %s", d-want)
			}
		})
	}
}

// One request tries a store that failed; the others do not wait for it.
func TestRateOneTries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, store := bubbled(9, silent)
		r.Allow(t.Context(), "a")
		time.Sleep(time.Second) // the back-off is over
		begun := time.Now()
		go r.Allow(t.Context(), "b")
		synctest.Wait()
		for _, client := range []string{"b", "c", "d"} {
			if v := r.Allow(t.Context(), client); !v.OK || v.Err != nil {
				t.Errorf("Allow(%s) = %+v", client, v)
			}
		}
		if d, calls := time.Since(begun), store.taken(); d != 0 || len(calls) != 2 {
			t.Errorf("%s, calls %v", d, calls)
		}
		time.Sleep(time.Second)
	})
}

// Failures at the same time count as one.
func TestRateFailuresAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, store := bubbled(9, silent)
		for i := range 10 {
			go r.Allow(t.Context(), fmt.Sprint(i))
		}
		time.Sleep(251*time.Millisecond + time.Second)
		synctest.Wait()
		store.taken()
		r.Allow(t.Context(), "late")
		same(t, "calls a second later", len(store.taken()), 1)
	})
}

// A client that hangs up neither cuts a report short nor waits for one.
func TestRateClientHangsUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, _ := bubbled(9, slow)
		ctx, cancel := context.WithCancel(t.Context())
		reported, waiting := make(chan error, 1), make(chan limit.Verdict, 1)
		go func() { reported <- r.Allow(ctx, client).Err }()
		synctest.Wait()
		go func() { waiting <- r.Allow(ctx, client) }()
		synctest.Wait()
		begun := time.Now()
		cancel()
		if v := <-waiting; time.Since(begun) != 0 || !errors.Is(v.Err, context.Canceled) || !v.OK {
			t.Errorf("the second request got %+v after %s", v, time.Since(begun))
		}
		if err := <-reported; err != nil {
			t.Errorf("the report failed: %v", err)
		}
	})
}

// While a report is under way nobody of the same client slips by, and those who
// wait go by what it learnt.
func TestRateWaitsForReport(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, store := bubbled(100, slow)
		window := time.Now().Truncate(limit.Window)
		if _, err := store.Memory.Add(t.Context(), client, window, limit.Units{All: 90}); err != nil { // elsewhere
			t.Fatal(err)
		}
		var ok, refused atomic.Int64
		for range 40 {
			go func() {
				if r.Allow(t.Context(), client).OK {
					ok.Add(1)
				} else {
					refused.Add(1)
				}
			}()
		}
		for _, want := range []int64{0, 30} {
			synctest.Wait()
			if ok.Load() != 10 || refused.Load() != want {
				t.Errorf("%d passed and %d were refused, want 10 and %d", ok.Load(), refused.Load(), want)
			}
			time.Sleep(100 * time.Millisecond)
		}
	})
}

func TestMemory(t *testing.T) {
	t.Parallel()
	limittest.Exercise(t, func(*testing.T) limittest.Store { return &limit.Memory{} })
}

// Counts of past windows are forgotten.
func TestMemoryForgets(t *testing.T) {
	t.Parallel()
	var m limit.Memory
	add := func(window time.Time, want int) {
		t.Helper()
		if got, err := m.Add(t.Context(), "c", window, limit.Units{All: 1}); err != nil || got.All != want {
			t.Errorf("Add in %s = %+v, %v; want %d", window, got, err, want)
		}
	}
	add(noon, 1)
	add(noon.Add(limit.Window), 1)
	add(noon, 2) // a late report still counts
	add(noon.Add(2*limit.Window), 1)
	add(noon.Add(limit.Window), 2)
	add(noon, 1)
}
