package limit_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/limit"
	"github.com/hostfacts/hostfacts/pkg/limit/limittest"
)

func newRate(perMinute int, c limit.Counter, clock *limittest.Clock) *limit.Rate {
	return limit.NewRate(limit.RateConfig{PerMinute: perMinute, Counter: c, Now: clock.Now, StoreTimeout: time.Minute})
}

// passed sends n requests and returns how many may go on.
func passed(t *testing.T, r *limit.Rate, client string, n int) (ok int) {
	t.Helper()
	for range n {
		v := r.Allow(t.Context(), client)
		if v.Err != nil {
			t.Errorf("Allow: %v", v.Err)
		}
		if v.OK {
			ok++
		}
	}
	return ok
}

// One environment: the limit is exact, a tenth is free, and each report carries
// the tenth before it and the request that it decides.
func TestRate(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ perMinute, requests, ok, calls int }{
		{300, 30, 30, 0},
		{300, 31, 31, 1},
		{300, 61, 61, 1},
		{300, 62, 62, 2},
		{300, 100, 100, 3}, // a scanner
		{300, 300, 300, 9},
		{300, 5000, 300, 9},
		{10, 1, 1, 0},
		{10, 50, 10, 5},
		{9, 50, 9, 9},
		{1, 50, 1, 1},
		{100_000, 10_000, 10_000, 0},
	} {
		t.Run(fmt.Sprintf("%d of %d", c.requests, c.perMinute), func(t *testing.T) {
			t.Parallel()
			var store counter
			r := newRate(c.perMinute, &store, at(0))
			same(t, "passed", passed(t, r, client, c.requests), c.ok)
			calls := store.taken()
			same(t, "store calls", len(calls), c.calls)
			for _, n := range calls {
				same(t, "a report of "+fmt.Sprint(calls), n, c.perMinute/10+1)
			}
		})
	}
}

func TestRateOff(t *testing.T) {
	t.Parallel()
	r := limit.NewRate(limit.RateConfig{})
	for range 1000 {
		v := r.Allow(t.Context(), client)
		u, weighed := r.Weigh(t.Context(), client)
		decide(t, true, u)
		for _, v := range []limit.Verdict{v, weighed, u.Verdict(), r.Peek(client)} {
			if !v.OK || v.Headers() != nil || v.Fault() != nil {
				t.Fatalf("%+v", v)
			}
		}
	}
}

func TestRateWindows(t *testing.T) {
	t.Parallel()
	var store counter
	clock := at(-time.Nanosecond) // the last moment of a window
	r := newRate(20, &store, clock)
	for _, c := range []struct {
		name         string
		advance      time.Duration
		requests, ok int
		wait         time.Duration // of one more, which is refused; 0: there is none
	}{
		{"the last moment: a wait of at least a second", 0, 30, 20, time.Second},
		{"the second window", time.Nanosecond, 30, 20, time.Minute},
		{"after 17 s", 17*time.Second + time.Millisecond, 1, 0, 43*time.Second - time.Millisecond},
		{"a clock set back over the turn of a minute forgets nothing", -18 * time.Second, 5, 0, 0},
		{"one that was far off does not lock anybody out", -time.Hour, 5, 5, 0},
		{"hours later", 3 * time.Hour, 30, 20, 0},
	} {
		clock.Advance(c.advance)
		same(t, c.name, passed(t, r, client, c.requests), c.ok)
		if c.wait == 0 {
			continue
		}
		if v := r.Allow(t.Context(), client); v.OK || v.RetryAfter != c.wait {
			t.Errorf("%s: %+v, want a wait of %s", c.name, v, c.wait)
		}
	}
}

// A total that arrives after its window says nothing about the next one.
func TestRateWindowEndsWhileAsking(t *testing.T) {
	t.Parallel()
	clock := at(59 * time.Second)
	store := counter{hook: func(context.Context) error {
		clock.Advance(2 * time.Second)
		return nil
	}}
	r := newRate(1, &store, clock)
	for i := range 2 {
		if v := r.Allow(t.Context(), client); !v.OK || v.Reset != time.Second {
			t.Errorf("request %d: %+v", i, v)
		}
		clock.Advance(58 * time.Second)
	}
}

func TestRateRefused(t *testing.T) {
	t.Parallel()
	var store counter
	r := newRate(300, &store, at(12*time.Second+time.Millisecond))
	v := r.Allow(t.Context(), client)
	want := map[string]string{"RateLimit-Policy": `"default";q=300;w=60`, "RateLimit": `"default";r=299;t=48`}
	if diff := cmp.Diff(want, v.Headers()); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
	if v.Fault() != nil {
		t.Errorf("Fault = %v", v.Fault())
	}
	passed(t, r, client, 299)
	store.taken()
	for range 1000 {
		v = r.Allow(t.Context(), client)
	}
	if calls := store.taken(); len(calls) > 0 {
		t.Errorf("refused requests cost the calls %v", calls)
	}
	want["RateLimit"] = `"default";r=0;t=48`
	if diff := cmp.Diff(want, v.Headers()); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
	f := v.Fault()
	if f == nil || f.Code != fault.RateLimited || f.Info().Status != http.StatusTooManyRequests || f.Wait() != v.RetryAfter || v.RetryAfter != 48*time.Second-time.Millisecond {
		t.Errorf("Fault = %+v, RetryAfter %s", f, v.RetryAfter)
	}
	if !r.Allow(t.Context(), "203.0.113.8").OK {
		t.Error("another client is refused")
	}
}

// Several environments: whatever the schedule, a client gets at least its limit
// and at most a tenth more per environment.
func TestRateCeiling(t *testing.T) {
	t.Parallel()
	const perMinute = 100
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1))
		clock := at(0)
		var store counter
		environments := make([]*limit.Rate, 1+random.IntN(12))
		for i := range environments {
			environments[i] = newRate(perMinute, &store, clock)
		}
		ok, streak := 0, 0
		i := 0
		for range 20 * perMinute {
			if streak == 0 { // stays with one environment for a while
				i, streak = random.IntN(len(environments)), 1+random.IntN(30)
			}
			streak--
			if environments[i].Allow(t.Context(), client).OK {
				ok++
			} else if ok < perMinute {
				t.Fatalf("seed %d: refused after %d requests of %d", seed, ok, perMinute)
			}
		}
		if most := perMinute + perMinute/10*len(environments); ok > most {
			t.Fatalf("seed %d: %d passed in %d environments, the ceiling is %d", seed, ok, len(environments), most)
		}
		if calls := store.taken(); len(calls) > perMinute/(perMinute/10)+len(environments) {
			t.Errorf("seed %d: %d calls in %d environments", seed, len(calls), len(environments))
		}
	}
}

// The worst case is reached: environments that stay at their tenth.
func TestRateCeilingIsReached(t *testing.T) {
	t.Parallel()
	var store counter
	clock := at(0)
	ok := 0
	for range 5 { // below a tenth each
		ok += passed(t, newRate(300, &store, clock), client, 30)
	}
	same(t, "clients below a tenth cost the calls", len(store.taken()), 0)
	ok += passed(t, newRate(300, &store, clock), client, 1000)
	same(t, "passed", ok, 450)
}

// Many requests of a client at once in one environment do not loosen the bound.
func TestRateAtOnce(t *testing.T) {
	t.Parallel()
	const perMinute, workers = 50, 40
	var store counter
	clock := at(0)
	other := newRate(perMinute, &store, clock)
	passed(t, other, client, 24) // 24 requests, of which the store knows all
	r := newRate(perMinute, &store, clock)
	var ok atomic.Int64
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() { ok.Add(int64(passed(t, r, client, 10))) })
	}
	wg.Wait()
	same(t, "passed", 24+ok.Load(), perMinute)
}

func TestRateMemoryIsBounded(t *testing.T) {
	t.Parallel()
	var store counter
	r := limit.NewRate(limit.RateConfig{PerMinute: 20, Counter: &store, Now: at(0).Now, MaxClients: 50, StoreTimeout: time.Minute})
	if got := passed(t, r, client, 40); got != 20 {
		t.Fatalf("%d passed", got)
	}
	for i := range 5000 {
		if got := passed(t, r, "2001:db8:0:"+strconv.FormatInt(int64(i), 16)+"::/64", 1); got != 1 {
			t.Fatal("a new client is refused")
		}
	}
	same(t, "clients are tracked", r.Clients(), 50)
	store.taken()
	if v := r.Allow(t.Context(), client); v.OK {
		t.Error("the flood made the environment forget the client over its limit")
	}
}

func TestHeadersAreStructuredFields(t *testing.T) {
	t.Parallel()
	for _, perMinute := range []int{1, 300, 1_000_000} {
		clock := at(0)
		r := newRate(perMinute, &counter{}, clock)
		for _, step := range []time.Duration{0, time.Nanosecond, 30 * time.Second, time.Minute - 1} {
			clock.Set(noon.Add(step))
			for name, value := range r.Allow(t.Context(), client).Headers() {
				parts := strings.Split(value, ";")
				if parts[0] != `"default"` || len(parts) != 3 {
					t.Errorf("%s: %s", name, value)
				}
				keys := map[string][]string{limit.HeaderPolicy: {"q", "w"}, limit.HeaderLimit: {"r", "t"}}[name]
				for i, p := range parts[1:] {
					key, number, _ := strings.Cut(p, "=")
					n, err := strconv.Atoi(number)
					if key != keys[i] || err != nil || n < 0 || slices.Contains([]string{"w", "t"}, key) && (n < 1 || n > 60) {
						t.Errorf("%s: %s", name, value)
					}
				}
			}
		}
	}
}
