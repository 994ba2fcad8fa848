package limit_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/limit"
	"github.com/hostfacts/hostfacts/pkg/x402/limit/limittest"
)

func newRate(perMinute int, s limit.Store, clock *clock) *limit.Rate {
	return limit.NewRate(perMinute, s, clock.now).Patient()
}

// decision is the decision on a request without a payment, and the error of the store.
type decision struct {
	limit.Decision
	Err error
}

// allow sends a request without a payment.
func allow(t *testing.T, r *limit.Rate, client string) decision {
	return allowRequest(t.Context(), r, client)
}

func allowRequest(ctx context.Context, r *limit.Rate, client string) (v decision) {
	q := limit.Request{Rate: r, Client: client, Warn: func(_ string, err error) { v.Err = err }}
	q.Admit(ctx)
	v.Decision = q.Decision
	return v
}

// countPassed sends n requests without a payment, and returns how many may continue.
func countPassed(t *testing.T, r *limit.Rate, client string, n int) (ok int) {
	t.Helper()
	for range n {
		v := allow(t, r, client)
		if v.Err != nil {
			t.Errorf("Allow: %v", v.Err)
		}
		if v.OK {
			ok++
		}
	}
	return ok
}

// TestRate checks the limit in one environment. Exactly as many requests pass as the limit
// allows. The first tenth of the limit passes without a call of the store. The next request
// calls the store, and reports its own unit and all units that were not reported before.
func TestRate(t *testing.T) {
	for _, c := range []struct{ perMinute, requests, ok, calls int }{
		{300, 30, 30, 0}, {300, 31, 31, 1}, {300, 61, 61, 1}, {300, 62, 62, 2}, {300, 300, 300, 9}, {300, 5000, 300, 9},
		{10, 1, 1, 0}, {10, 50, 10, 5}, {9, 50, 9, 9}, {1, 50, 1, 1}, {100_000, 10_000, 10_000, 0},
	} {
		var s store
		checkEqual(t, fmt.Sprintf("%+v: passed", c), countPassed(t, newRate(c.perMinute, &s, clockAt(0)), client, c.requests), c.ok)
		calls := addedUnits(&s)
		checkEqual(t, fmt.Sprintf("%+v: store calls", c), len(calls), c.calls)
		for _, n := range calls {
			checkEqual(t, "a report of "+fmt.Sprint(calls), n, c.perMinute/10+1)
		}
	}
}

// TestRateWindowEndsWhileAsking checks a call of the store that returns only after its window
// has ended. The total that it returns must not count in the next window.
func TestRateWindowEndsWhileAsking(t *testing.T) {
	clock := clockAt(59 * time.Second)
	r := newRate(1, &store{Before: func(context.Context, limittest.Call) error {
		clock.advance(2 * time.Second)
		return nil
	}}, clock)
	for i := range 2 {
		if v := allow(t, r, client); !v.OK || v.Reset != time.Second {
			t.Errorf("request %d: %+v", i, v)
		}
		clock.advance(58 * time.Second)
	}
}

func TestRateRefused(t *testing.T) {
	var s store
	clock := clockAt(12*time.Second + time.Millisecond)
	r := newRate(300, &s, clock)
	checkHeaders := func(v interface{ Headers() (policy, state string) }, state string) {
		t.Helper()
		policy, got := v.Headers()
		checkEqual(t, "policy", policy, `"default";q=300;w=60`)
		checkEqual(t, "state", got, `"default";`+state)
	}
	checkHeaders(allow(t, r, client), "r=299;t=48")
	countPassed(t, r, client, 299)
	s.Calls()
	checkEqual(t, "more passed", countPassed(t, r, client, 1000), 0)
	checkEqual(t, "calls for refused requests", len(s.Calls()), 0)
	q, wait := limit.Request{Rate: r, Client: client}, 48*time.Second-time.Millisecond
	if f := q.Admit(t.Context()); f == nil || f.Code != fault.RateLimited || f.Info().Status != http.StatusTooManyRequests || f.Wait() != wait || q.RetryAfter != wait {
		t.Errorf("Admit = %+v, RetryAfter %s", f, q.RetryAfter)
	}
	checkHeaders(q, "r=0;t=48")
	if !allow(t, r, "203.0.113.8").OK {
		t.Error("another client is refused")
	}
	clock.advance(wait - 1)
	checkHeaders(allow(t, r, client), "r=0;t=1") // a client must never be told to wait 0 s
}

// TestRateCeiling spreads the requests of one client over several environments at random. The
// client must get at least its limit. It may get at most its limit, plus a tenth of the limit
// for each environment.
func TestRateCeiling(t *testing.T) {
	const perMinute = 100
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1))
		var s store
		environments := make([]*limit.Rate, 1+random.IntN(12))
		for i := range environments {
			environments[i] = newRate(perMinute, &s, clockAt(0))
		}
		ok, streak := 0, 0
		i := 0
		for range 20 * perMinute {
			if streak == 0 { // choose an environment for the next few requests
				i, streak = random.IntN(len(environments)), 1+random.IntN(30)
			}
			streak--
			if allow(t, environments[i], client).OK {
				ok++
			} else if ok < perMinute {
				t.Fatalf("seed %d: refused after %d requests of %d", seed, ok, perMinute)
			}
		}
		most, calls := perMinute+perMinute/10*len(environments), s.Calls()
		if ok > most || len(calls) > 10+len(environments) {
			t.Fatalf("seed %d: %d passed in %d environments with %d calls, the ceiling is %d", seed, ok, len(environments), len(calls), most)
		}
	}
}

// TestRateMemoryIsBounded sends requests of 30,000 clients to one environment. The environment
// must keep the counts of at most 10,000 clients. Among them must be a client that was over
// its limit before.
func TestRateMemoryIsBounded(t *testing.T) {
	var s store
	r := newRate(20, &s, clockAt(0))
	checkEqual(t, "passed", countPassed(t, r, client, 40), 20)
	for i := range 30_000 {
		if got := countPassed(t, r, strconv.Itoa(i), 1); got != 1 {
			t.Fatal("a new client is refused")
		}
	}
	checkEqual(t, "clients are tracked", r.Clients(), 10_000)
	s.Calls()
	checkEqual(t, "passed after a flood of others", countPassed(t, r, client, 1), 0)
	checkEqual(t, "calls to know it", len(s.Calls()), 0)
}

// TestRateStoreDown checks requests without a payment while the store fails. They pass up to
// the limit of each environment, and the store is called once a second. Once the store works
// again, the failed report is not repeated, but later counts are reported.
func TestRateStoreDown(t *testing.T) {
	s, clock := &store{}, clockAt(0)
	r := newRate(100, s, clock)
	for _, c := range []struct {
		advance   time.Duration
		before    func(context.Context, limittest.Call) error
		n, wantOK int
		firstErr  error // the error of the first request
	}{
		{before: failAtOnce, n: 10, wantOK: 10}, {before: failAtOnce, n: 41, wantOK: 41, firstErr: errDown}, {advance: time.Second - 1, before: failAtOnce, n: 1, wantOK: 1},
		{advance: 1, before: failAtOnce, n: 50, wantOK: 48, firstErr: errDown}, // after 48 requests, the environment's own count is 100
		{advance: 59*time.Second - 1, n: 1},
		{advance: 1, before: failAtOnce, n: 10, wantOK: 10}, {before: failAtOnce, n: 21, wantOK: 21, firstErr: errDown},
		{advance: time.Second, n: 1, wantOK: 1}, {n: 11, wantOK: 11}, // the first request makes a report, and the next report comes with the 11th request after it
	} {
		clock.advance(c.advance)
		s.Before = c.before
		for i := range c.n {
			if v := allow(t, r, client); v.OK != (i < c.wantOK) || i == 0 && !errors.Is(v.Err, c.firstErr) || i > 0 && v.Err != nil {
				t.Fatalf("%s, request %d: %+v", clock, i, v)
			}
		}
	}
	if diff := cmp.Diff([]int{11, 42, 11, 21, 11}, addedUnits(s)); diff != "" {
		t.Errorf("reports (-want +got):\n%s", diff)
	}
}

// inBubble runs a test with a Rate in a synctest bubble, whose clock the Rate reads.
func inBubble(t *testing.T, perMinute int, s *store, test func(*testing.T, *limit.Rate)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		test(t, limit.NewRate(perMinute, s, time.Now))
	})
}

// TestRateStoreSlow checks a store that does not answer. The first call ends with a time-out,
// and then the store is not called for a second. After that second, one request calls the
// store, and the other requests do not wait for that call.
func TestRateStoreSlow(t *testing.T) {
	s := &store{Before: neverAnswer}
	inBubble(t, 9, s, func(t *testing.T, r *limit.Rate) {
		begun := time.Now()
		if v := allow(t, r, client); !v.OK || !errors.Is(v.Err, context.DeadlineExceeded) {
			t.Errorf("Allow = %+v", v)
		}
		for range 2 {
			for i := range 8 {
				if v := allow(t, r, fmt.Sprint(i)); !v.OK || v.Err != nil {
					t.Errorf("Allow = %+v", v)
				}
			}
			checkEqual(t, "with the others", time.Since(begun), limit.StoreTimeout)
			checkEqual(t, "calls", len(s.Calls()), 1)
			time.Sleep(time.Second)
			go allow(t, r, "late")
			synctest.Wait()
			begun = begun.Add(time.Second)
		}
		time.Sleep(time.Second)
	})
}

// TestRateClientHangsUp checks a client that hangs up during two requests. The first request
// is being reported to the store, and the second waits for that report. When the client hangs
// up, the report must still be completed. The second request must be allowed at once, with the
// error context.Canceled.
func TestRateClientHangsUp(t *testing.T) {
	inBubble(t, 9, &store{Before: answerSlowly}, func(t *testing.T, r *limit.Rate) {
		ctx, cancel := context.WithCancel(t.Context())
		reported, waiting := make(chan error, 1), make(chan decision, 1)
		go func() { reported <- allowRequest(ctx, r, client).Err }()
		synctest.Wait()
		go func() { waiting <- allowRequest(ctx, r, client) }()
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

// TestRateWaitsForReport checks that, while a report is running, other requests of the same
// client wait for its result. The result decides whether they pass.
func TestRateWaitsForReport(t *testing.T) {
	s := &store{Before: answerSlowly}
	inBubble(t, 100, s, func(t *testing.T, r *limit.Rate) {
		if _, _, err := s.Memory.Count(t.Context(), client, time.Now().Truncate(limit.Window), limit.Units{All: 90}, limit.Unbounded); err != nil { // 90 units, as if another environment had reported them
			t.Fatal(err)
		}
		var ok, refused atomic.Int64
		for range 40 {
			go func() {
				if allow(t, r, client).OK {
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
