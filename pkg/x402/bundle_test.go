package x402_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// A bundle of which parts are owed is looked up again, spaced, until none is owed
// or no lookup is left. Meanwhile its payer has the answer that there is, and so
// has whoever signs anew for the same purchase.
func TestBundleOwes(t *testing.T) {
	type run struct {
		wait      time.Duration // before it
		owes      []string      // what the lookup leaves owed, when it runs
		fails     bool          // the lookup as a whole
		prevented bool
		anew      bool // another signature asks
		body      string
		owed      []string // what is said to be owed
		runs      int32
		lookups   int // as the ledger counts
	}
	both, one := []string{"ssl", "whois"}, []string{"whois"}
	for name, steps := range map[string][]run{
		"less and less": {
			{owes: both, body: "1", owed: both, runs: 1, lookups: 1},
			{wait: 9 * time.Second, body: "1", owed: both, runs: 1, lookups: 1},
			{wait: time.Second, owes: one, body: "2", owed: one, runs: 2, lookups: 2},
			{wait: 10 * time.Second, anew: true, body: "3", runs: 3, lookups: 3},
			{wait: time.Hour, body: "3", runs: 3, lookups: 3},
		},
		"never better": {
			{owes: one, body: "1", owed: one, runs: 1, lookups: 1},
			{wait: time.Minute, owes: both, body: "1", owed: one, runs: 2, lookups: 2},
			{wait: time.Minute, fails: true, body: "1", owed: one, runs: 3, lookups: 3},
			{wait: time.Minute, owes: one, body: "1", owed: one, runs: 4, lookups: 4},
			{wait: 10 * time.Minute, owes: one, body: "1", runs: 5, lookups: 5},
			{wait: 10 * time.Minute, body: "1", runs: 5, lookups: 5},
		},
		"prevented": {
			{owes: one, prevented: true, body: "1", owed: one, runs: 1},
			{wait: 9 * time.Second, owes: one, prevented: true, body: "1", owed: one, runs: 1},
			{wait: time.Second, owes: one, prevented: true, body: "1", owed: one, runs: 2},
			{wait: 9 * time.Second, body: "1", owed: one, runs: 2},
			{wait: time.Second, body: "3", runs: 3, lookups: 1},
		},
	} {
		within(t, nil, func(t *testing.T, b *harness) {
			b.withWindow(nil)
			b.keys = []string{"bundle"}
			var now run
			b.reply = func(n int32) (x402.Reply, error) {
				if now.fails {
					return x402.Reply{}, fault.New(fault.HostIntelTimeout, nil)
				}
				return x402.Reply{Body: []byte{'0' + byte(n)}, Owed: now.owes, Prevented: now.prevented}, nil
			}
			h := b.sign(nil)
			var answered time.Time // which is when the replay of an answer begins
			for i, s := range steps {
				time.Sleep(s.wait)
				now = s
				sent := h
				if s.anew {
					sent = b.sign(nil)
				}
				out := b.ask(sent, "GET /bundle")
				b.expect(name, out, 200, "", "true", false, true)
				if !out.Replayed {
					answered = time.Now()
				} else if !out.Answered.Equal(answered) {
					t.Errorf("%s, %d: answered %s, want %s", name, i, out.Answered, answered)
				}
				r := b.stored(h)
				if string(out.Body) != s.body || !slices.Equal(out.Owed, s.owed) || b.runs.Load() != s.runs || r.Lookups != s.lookups {
					t.Errorf("%s, %d: body %s, owed %v, %d runs, %d lookups", name, i, out.Body, out.Owed, b.runs.Load(), r.Lookups)
				}
				if r.Owed() || !r.LeaseUntil.IsZero() {
					t.Errorf("%s, %d: a debt, or a lease: %+v", name, i, r)
				}
			}
			b.expectCalls(name, 1, int(b.runs.Load()))
		})
	}
}

// A lookup that our own pause prevented uses none of those that a payment buys.
func TestPreventedLookupIsNotCounted(t *testing.T) {
	within(t, nil, func(t *testing.T, b *harness) {
		b.work = func(context.Context, int) ([]byte, error) {
			return nil, fault.New(fault.BootstrapUnavailable, nil).Prevented()
		}
		h := b.sign(nil)
		for range 2 * ledger.MaxLookups {
			b.expect("prevented", b.ask(h, "GET /a"), 503, fault.BootstrapUnavailable, "true", true, true)
			if r := b.stored(h); r.Lookups != 0 || !r.LeaseUntil.IsZero() {
				t.Errorf("%+v", r)
			}
			time.Sleep(time.Second)
		}
		b.work = looksUp("")
		b.expect("well again", b.ask(h, "GET /a"), 200, "", "true", false, true)
	})
}
