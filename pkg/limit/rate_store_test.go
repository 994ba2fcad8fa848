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
)

// While the store is down requests pass up to the limit per environment, and it
// is asked after 1, 2, 4, 8, 16 and then every 30 seconds.
func TestRateStoreDown(t *testing.T) {
	s, clock := &store{Before: down}, at(0)
	r := newRate(9, s, clock) // so low that every request is reported
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
	if diff := cmp.Diff([]int{0, 1, 3, 7, 15, 31, 61, 91, 121}, asked); diff != "" || len(s.Calls()) != len(asked) {
		t.Errorf("asked after seconds (-want +got):\n%s", diff)
	}
	ok := 0
	for range 1000 {
		if r.Allow(t.Context(), client).OK {
			ok++
		}
	}
	same(t, "passed of one client, by the environment's own count", ok, 9)
}

// After a failure the report is not repeated, and what was counted since is.
func TestRateStoreComesBack(t *testing.T) {
	s, clock := &store{Before: down}, at(0)
	r := newRate(100, s, clock)
	send := func(n int) {
		t.Helper()
		for range n {
			if !r.Allow(t.Context(), client).OK {
				t.Fatal("refused")
			}
		}
	}
	send(31) // 11 in the report that fails, 20 after it
	s.Before = nil
	clock.Advance(time.Second - 1)
	send(1)
	clock.Advance(1)
	send(1)
	send(11) // a success ends the back-off: the next report is due after a tenth
	if diff := cmp.Diff([]int{11, 22, 11}, added(s)); diff != "" {
		t.Errorf("reports (-want +got):\n%s", diff)
	}
}

// bubbled runs a test with a Rate by the clock of a bubble.
func bubbled(t *testing.T, perMinute int, s *store, test func(*testing.T, *limit.Rate)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		test(t, limit.NewRate(limit.RateConfig{PerMinute: perMinute, Counter: s, Now: time.Now}))
	})
}

// A store that says nothing costs the time-out once; then it is left alone. When the
// back-off is over, one request tries it, and the others do not wait for that.
func TestRateStoreSlow(t *testing.T) {
	s := &store{Before: silent}
	bubbled(t, 9, s, func(t *testing.T, r *limit.Rate) {
		begun := time.Now()
		if v := r.Allow(t.Context(), client); !v.OK || !errors.Is(v.Err, context.DeadlineExceeded) {
			t.Errorf("Allow = %+v", v)
		}
		same(t, "the first took", time.Since(begun), limit.DefaultStoreTimeout)
		for range 2 {
			for i := range 8 {
				if v := r.Allow(t.Context(), fmt.Sprint(i)); !v.OK || v.Err != nil {
					t.Errorf("Allow = %+v", v)
				}
			}
			same(t, "with the others", time.Since(begun), limit.DefaultStoreTimeout)
			same(t, "calls", len(s.Calls()), 1)
			time.Sleep(time.Second)
			go r.Allow(t.Context(), "late")
			synctest.Wait()
			begun = begun.Add(time.Second)
		}
		time.Sleep(time.Second)
		r, begun = limit.NewRate(limit.RateConfig{PerMinute: 9, Counter: s, Now: time.Now, StoreTimeout: 2}), time.Now()
		r.Allow(t.Context(), client)
		same(t, "with a time-out of its own", time.Since(begun), 2)
	})
}

// Failures at the same time count as one.
func TestRateFailuresAtOnce(t *testing.T) {
	s := &store{Before: silent}
	bubbled(t, 9, s, func(t *testing.T, r *limit.Rate) {
		for i := range 10 {
			go r.Allow(t.Context(), fmt.Sprint(i))
		}
		time.Sleep(limit.DefaultStoreTimeout + time.Second + 1)
		s.Calls()
		r.Allow(t.Context(), "late")
		same(t, "calls a second later", len(s.Calls()), 1)
	})
}

// A client that hangs up neither cuts a report short nor waits for one.
func TestRateClientHangsUp(t *testing.T) {
	bubbled(t, 9, &store{Before: slow}, func(t *testing.T, r *limit.Rate) {
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
	s := &store{Before: slow}
	bubbled(t, 100, s, func(t *testing.T, r *limit.Rate) {
		if _, err := s.Memory.Add(t.Context(), client, time.Now().Truncate(limit.Window), limit.Units{All: 90}); err != nil { // elsewhere
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
