package dns_test

import (
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
)

// TestLate checks that only one question waits for a dead resolver. The resolver must be tried
// again after half a minute. Once it has replied, it must be back in its place in the order.
func TestLate(t *testing.T) {
	t.Parallel()
	const trip = 20 * ms
	var dead atomic.Bool
	flaky := func(n int, q []byte) []message {
		if dead.Load() {
			return nil
		}
		return replyGood(trip)(n, q)
	}
	type step struct {
		what string
		wait time.Duration // the pause before the question
		dead bool
		from string
		took time.Duration
	}
	steps := []step{
		{what: "alive", from: "1.1.1.1", took: trip},
		{what: "dead", dead: true, from: "8.8.8.8", took: 200*ms + trip},
		{what: "the second question", dead: true, from: "8.8.8.8", took: trip},
		{what: "before half a minute is over", wait: 29 * time.Second, dead: true, from: "8.8.8.8", took: trip},
		{what: "on trial, still dead", wait: time.Second, dead: true, from: "8.8.8.8", took: 15*ms + trip},
		{what: "after the trial", dead: true, from: "8.8.8.8", took: trip},
		{what: "alive, not known yet", from: "8.8.8.8", took: trip},
		{what: "on trial, alive", wait: time.Minute / 2, from: "1.1.1.1", took: trip},
		{what: "after it replied", from: "1.1.1.1", took: trip},
		{what: "dead again", dead: true, from: "8.8.8.8", took: 200*ms + trip},
	}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, host{udp: flaky}, host{udp: replyGood(trip)}, host{udp: replyGood(trip)})
		cl := w.client()
		for _, s := range steps {
			time.Sleep(s.wait) // fake time, in the synctest bubble
			dead.Store(s.dead)
			begin := time.Now()
			r, err := cl.Lookup(t.Context(), query("A"))
			if took := time.Since(begin); err != nil || r.Resolver != s.from || took != s.took {
				t.Errorf("%s: %s, %v after %v; want %s after %v", s.what, r.Resolver, err, took, s.from, s.took)
			}
		}
		w.wantDials()
	})
}

// TestLateClock checks that a resolver does not count as late for longer than half a minute
// after the clock is set back.
func TestLateClock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var skew time.Duration
		w := newWorld(t, host{udp: sendNothing}, host{udp: replyGood(0)})
		cl := dns.New(dns.Config{Resolvers: w.addresses, Dial: w.dial, Now: func() time.Time { return time.Now().Add(skew) }})
		for i, step := range []struct{ skew, took time.Duration }{{0, 200 * ms}, {0, 0}, {-time.Hour, 15 * ms}, {time.Hour, 15 * ms}} {
			skew += step.skew
			begin := time.Now()
			_, err := cl.Lookup(t.Context(), query("A"))
			if took := time.Since(begin); err != nil || took != step.took {
				t.Errorf("question %d: %v after %v, want it after %v", i, err, took, step.took)
			}
		}
		w.wantDials()
	})
}

// TestLateNumbers checks the 95th percentile of the time of a lookup when resolvers are dead
// or slow. From the second lookup on, each dead or slow resolver before a healthy one may add
// at most 20 ms to a round trip. The pause between lookups must make no difference.
func TestLateNumbers(t *testing.T) {
	const trip = 10 * ms
	slow := replyAfter(600*ms, answer(goodRecord))
	type network struct {
		hosts []script
		more  time.Duration // time allowed in addition to a round trip
	}
	type row struct {
		network

		pause time.Duration // the pause between lookups
	}
	rows := map[string]row{}
	for name, n := range map[string]network{
		"the first is dead":      {[]script{sendNothing, replyGood(trip), replyGood(trip)}, 20 * ms},
		"the first is slow":      {[]script{slow, replyGood(trip), replyGood(trip)}, 20 * ms},
		"two are dead":           {[]script{sendNothing, sendNothing, replyGood(trip)}, 40 * ms},
		"the second is dead":     {[]script{replyGood(trip), sendNothing, replyGood(trip)}, 0},
		"dead, and nobody there": {[]script{sendNothing, nil, replyGood(trip)}, 20 * ms},
	} {
		for pause, often := range map[time.Duration]string{0: "at once", 7 * time.Second: "every 7 s", time.Minute: "every minute"} {
			rows[name+", "+often] = row{n, pause}
		}
	}
	eachInBubble(t, rows, func(t *testing.T, c row) {
		var hosts []host
		for _, s := range c.hosts {
			hosts = append(hosts, host{udp: s})
		}
		w := newWorld(t, hosts...)
		cl := w.client()
		if _, err := cl.Lookup(t.Context(), query("A")); err != nil {
			t.Fatal(err)
		}
		var took []time.Duration
		for range 100 {
			time.Sleep(c.pause) // fake time, in the synctest bubble
			begin := time.Now()
			_, err := cl.Lookup(t.Context(), query("A"))
			took = append(took, time.Since(begin))
			if err != nil {
				t.Errorf("%v", err)
			}
		}
		slices.Sort(took)
		if p95 := took[94]; p95 > trip+c.more {
			t.Errorf("p95 is %v, want at most %v", p95, trip+c.more)
		}
		w.wantDials()
	})
}

// TestLateTogether checks lookups of both address families when one resolver is dead. The two
// families must wait for that resolver at the same time, and not one after the other. Later
// lookups must not wait for it: the client remembers that the resolver was late.
func TestLateTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, host{udp: sendNothing}, host{udp: eachFamily(10*ms, 10*ms)})
		cl := w.client()
		for _, want := range []time.Duration{210 * ms, 10 * ms, 10 * ms} {
			ctx, end := dns.Share(t.Context())
			begin := time.Now()
			addrs, err := cl.Addresses(ctx, "example.com")
			if took := time.Since(begin); len(addrs) != 2 || took != want {
				t.Errorf("%v, %v after %v, want two after %v", addrs, err, took, want)
			}
			end()
		}
		w.wantDials()
	})
}
