package limit_test

import (
	"context"
	"errors"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/limit"
	"github.com/hostfacts/hostfacts/pkg/x402/limit/limittest"
)

const client = "203.0.113.7"

var (
	noon    = time.Date(2026, time.November, 1, 12, 0, 0, 0, time.UTC)
	errDown = errors.New("the store is down")
)

// checkEqual fails the test if two values differ.
func checkEqual[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// clock is a clock that the test moves.
type clock struct{ time.Time }

func clockAt(offset time.Duration) *clock { return &clock{noon.Add(offset)} }

func (c *clock) now() time.Time          { return c.Time }
func (c *clock) advance(d time.Duration) { c.Time = c.Add(d) }

// store is a Memory that records its calls and can be made to fail.
type store = limittest.Watched

// addedUnits returns the units that each call asked the store to add, for all calls since
// s.Calls was last called.
func addedUnits(s *store) (units []int) {
	for _, c := range s.Calls() {
		units = append(units, c.Units)
	}
	return units
}

// failAtOnce, neverAnswer and answerSlowly are behaviours of a store. failAtOnce fails at
// once, neverAnswer returns only when its caller gives up, and answerSlowly takes a tenth of a
// second.
func failAtOnce(context.Context, limittest.Call) error { return errDown }

func neverAnswer(ctx context.Context, _ limittest.Call) error {
	<-ctx.Done()
	return ctx.Err()
}

func answerSlowly(context.Context, limittest.Call) error {
	time.Sleep(100 * time.Millisecond)
	return nil
}

func TestMemory(t *testing.T) {
	t.Parallel()
	limittest.Exercise(t, func(*testing.T) limit.Store { return &limit.Memory{} })
}

// TestMemoryForgets checks that a Memory keeps only eight windows: those of the most recent
// calls of Count.
func TestMemoryForgets(t *testing.T) {
	var m limit.Memory
	const w = limit.Window
	for i, c := range []struct {
		after time.Duration
		want  int
	}{
		{0, 1}, {w, 1}, {0, 2}, {-9 * time.Hour, 1}, {9 * time.Hour, 1}, {w, 2}, {2 * w, 1}, {3 * w, 1}, {4 * w, 1}, {5 * w, 1}, // these calls use eight windows
		{0, 3}, {w, 3}, {6 * w, 1}, {0, 4}, {9 * time.Hour, 2}, {-9 * time.Hour, 1}, // {6 * w, 1} uses a ninth window, so the window at -9 h is dropped, and its last total is 1 again
	} {
		if got, _, err := m.Count(t.Context(), "c", noon.Add(c.after), limit.Units{All: 1}, limit.Unbounded); err != nil || got.All != c.want {
			t.Errorf("Count %d = %+v, %v; want %d", i, got, err, c.want)
		}
	}
}

// TestKeys checks the keys of addresses. An IPv4 address is both a client and a site. The
// client of an IPv6 address is its /64 network, and the site, for which expensive requests are
// counted, is its /48 network.
func TestKeys(t *testing.T) {
	for in, want := range map[string]struct{ client, site string }{
		"203.0.113.7":               {"203.0.113.7", "203.0.113.7"},
		"203.0.113.7:443":           {"203.0.113.7", "203.0.113.7"},
		"[::ffff:203.0.113.7]:443":  {"203.0.113.7", "203.0.113.7"},
		"::ffff:cb00:7107":          {"203.0.113.7", "203.0.113.7"},
		"2001:db8:1:2:3:4:5:6":      {"2001:db8:1:2::/64", "2001:db8:1::/48"},
		"[2001:db8:1:ffff:3::6]:80": {"2001:db8:1:ffff::/64", "2001:db8:1::/48"},
		"[2001:DB8:2:2::9]":         {"2001:db8:2:2::/64", "2001:db8:2::/48"},
		"[fe80::1%eth0]:80":         {"fe80::/64", "fe80::/48"},
	} {
		checkEqual(t, "ClientKey of "+in, limit.ClientKey(in), want.client)
		checkEqual(t, "SiteKey of "+in, limit.SiteKey(in), want.site)
		checkEqual(t, "DocumentsKey of "+in, limit.DocumentsKey(in), "documents|"+want.client)
	}
	for _, in := range []string{
		"", "203.0.113.07", "203.0.113.7:", "203.0.113.7:65536", "203.0.113.7, 198.51.100.1", "[203.0.113.7]", "[2001:db8::1", "2001:db8::1]",
		"example.com:443", "f::1%" + strings.Repeat("z", 200),
	} {
		checkEqual(t, "keys of "+in, limit.ClientKey(in)+limit.SiteKey(in), limit.Unknown+limit.Unknown)
	}
}

// FuzzClientKey checks that a key is short, and that all notations of an address have the same
// key. Only text that is not an address may have the key Unknown.
func FuzzClientKey(f *testing.F) {
	for _, s := range []string{
		"203.0.113.7", "203.0.113.7:443", "[2001:db8::1]:443", "2001:db8::1", "fe80::1%eth0", "::ffff:203.0.113.7",
		"[::ffff:203.0.113.7%x]:1", "[::1]", "", "unknown", "1.2.3.4:99999", "::1.2.3.4",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		key := limit.ClientKey(s)
		addr, err := netip.ParseAddr(s)
		if len(key) > 24 || key == limit.Unknown && err == nil && len(s) <= 128 {
			t.Fatalf("ClientKey(%q) = %q, %d bytes; the address is %s", s, key, len(key), addr)
		}
		if key == limit.Unknown {
			return
		}
		same := []string{key, key + ":443"}
		if addr, err := netip.ParseAddr(key); err != nil || !addr.Is4() {
			prefix, err := netip.ParsePrefix(key)
			if err != nil || prefix.Bits() != 64 || prefix.Addr().Is4In6() || prefix.Masked() != prefix {
				t.Fatalf("ClientKey(%q) = %q: neither an IPv4 address nor a /64", s, key)
			}
			last := prefix.Addr().As16()
			copy(last[8:], "\xff\xff\xff\xff\xff\xff\xff\xff")
			same = []string{prefix.Addr().String(), netip.AddrFrom16(last).String(), "[" + netip.AddrFrom16(last).String() + "]:80"}
		}
		for _, other := range same {
			if got := limit.ClientKey(other); got != key {
				t.Fatalf("ClientKey(%q) = %q, and of its neighbour %q %q", s, key, other, got)
			}
		}
	})
}

// open opens a request with a payment.
func open(t *testing.T, r *limit.Rate, client string) (*limit.Request, error) {
	q := &limit.Request{Rate: r, Client: client, Site: client, Paid: true, Warn: func(what string, err error) { t.Errorf("%s: %v", what, err) }}
	return q, q.Open(t.Context())
}

// openMany opens n requests with payments, all from one client, and returns those that may
// continue.
func openMany(t *testing.T, r *limit.Rate, client string, n int) (admitted []*limit.Request) {
	t.Helper()
	for range n {
		q, err := open(t, r, client)
		if q.OK != (err == nil) || err != nil && fault.From(err).Code != fault.RateLimited {
			t.Fatalf("Open = %v, %+v", err, q.Decision)
		}
		if q.OK {
			admitted = append(admitted, q)
		}
	}
	return admitted
}

func closeAll(t *testing.T, atFault bool, all ...*limit.Request) {
	t.Helper()
	for _, q := range all {
		q.Close(t.Context(), atFault)
	}
}

// TestWeights checks the weights of payments at several limits.
func TestWeights(t *testing.T) {
	for _, c := range []struct{ perMinute, undecided, atFault int }{
		{1, 1, 1}, {10, 1, 1}, {30, 1, 2}, {60, 1, 4}, {61, 2, 5}, {150, 3, 10}, {300, 5, 20}, {3000, 50, 200}, {1_000_000, 16_667, 66_667},
	} {
		if undecided, atFault := limit.Weights(c.perMinute); undecided != c.undecided || atFault != c.atFault {
			t.Errorf("%+v: %d and %d", c, undecided, atFault)
		}
	}
}

// TestWeighIsExact checks that the counts of requests with a payment are exact over all
// environments. At a limit of 300 units, 60 requests pass if none is decided, 296 if each is
// paid before the next one begins, and 15 if each payer is at fault.
func TestWeighIsExact(t *testing.T) {
	var s store
	rates := make([]*limit.Rate, 200)
	for i := range rates {
		rates[i] = newRate(300, &s, clockAt(0))
	}
	for what, c := range map[string]struct {
		ok     int
		decide func(*limit.Request)
	}{
		"none decided": {60, func(*limit.Request) {}},
		"paid at once": {296, func(u *limit.Request) { closeAll(t, false, u) }},
		"at fault":     {15, func(u *limit.Request) { closeAll(t, true, u) }},
	} {
		ok := 0
		for n := range 400 {
			for _, u := range openMany(t, rates[n%len(rates)], what, 1) {
				ok++
				c.decide(u)
			}
		}
		checkEqual(t, what, ok, c.ok)
	}
}

// TestDebts checks that units above the limit, which requests at fault have caused, count in
// the next windows, in every environment. Over time a client can cause 15 faults in each
// window, however many requests it begins at once. Units that may be given back are no debt.
func TestDebts(t *testing.T) {
	for what, c := range map[string]struct {
		groups     []int // how many payments begin together; each group is decided before the next begins
		faults     int   // how many of each group are at fault; the others are paid
		wantFaults []int // how many requests at fault pass in each of the next windows, if sent one after another
	}{
		"as many as there is room for": {groups: []int{15}, faults: 15, wantFaults: []int{15}},
		"twelve places":                {groups: []int{12, 12}, faults: 12, wantFaults: []int{6, 15}},
		"a whole limit":                {groups: []int{60}, faults: 60, wantFaults: []int{0, 0, 0, 15}},
		"one of a whole limit":         {groups: []int{60}, faults: 1, wantFaults: []int{15}},
	} {
		var s store
		clock := clockAt(0)
		rates := []*limit.Rate{newRate(300, &s, clock), newRate(300, &s, clock)}
		for _, n := range c.groups {
			on := openMany(t, rates[0], what, n)
			checkEqual(t, what+", begun", len(on), n)
			closeAll(t, true, on[:c.faults]...)
			closeAll(t, false, on[c.faults:]...)
		}
		for i, want := range c.wantFaults {
			clock.advance(limit.Window)
			got := 0
			for n := range 20 {
				for _, q := range openMany(t, rates[n%2], what, 1) {
					got++
					closeAll(t, true, q)
				}
			}
			checkEqual(t, what+", in window "+strconv.Itoa(i+1), got, want)
		}
	}
}

// TestWeighAsksAgain checks how often the store is called for a client that has used up its
// limit. Such a client is refused without a call. If it may get units back, the store is asked
// about once a second.
func TestWeighAsksAgain(t *testing.T) {
	var s store
	clock := clockAt(0)
	r, other := newRate(300, &s, clock), newRate(300, &s, clock)
	on := openMany(t, r, client, 60)
	s.Calls()
	for range 100 {
		if q, err := open(t, r, client); err == nil || q.RetryAfter != 2*time.Second {
			t.Fatalf("Open = %v, %+v", err, q.Decision)
		}
	}
	checkEqual(t, "passed without a payment", countPassed(t, r, client, 100), 0)
	checkEqual(t, "known to be over, and yet the calls", len(s.Calls()), 0)
	// Another environment asks the store about the client once a second.
	for range 3 {
		openMany(t, other, client, 50)
		checkEqual(t, "calls", len(s.Calls()), 1)
		clock.advance(time.Second)
	}
	checkEqual(t, "passed without a payment, asked about again", countPassed(t, other, client, 1), 0)
	clock.advance(time.Second)
	closeAll(t, false, on...)
	checkEqual(t, "payments after all were decided", len(openMany(t, other, client, 1)), 1)
	checkEqual(t, "requests after all were decided", countPassed(t, other, client, 1), 1)
	// Once the limit is used up and nothing can be given back, the store is called at most
	// once.
	for range 20 {
		closeAll(t, true, openMany(t, other, client, 1)...)
	}
	s.Calls()
	for range 10 {
		clock.advance(time.Second)
		if q, err := open(t, other, client); err == nil || q.RetryAfter < 30*time.Second {
			t.Errorf("Open = %v, %+v", err, q.Decision)
		}
	}
	if calls := s.Calls(); len(calls) > 1 { // one call may be needed to learn that nothing can be given back
		t.Errorf("over for good, and yet the calls %v", calls)
	}
}

// TestWeighStoreDown checks payments while the store is down. Each payment must call the
// store, even after a failed call, and must be refused. The report of an outcome must take no
// longer than any other report, and must continue when the client hangs up.
func TestWeighStoreDown(t *testing.T) {
	s := &store{Before: failAtOnce}
	inBubble(t, 300, s, func(t *testing.T, r *limit.Rate) {
		for range 3 {
			if q, err := open(t, r, client); q.OK || !errors.Is(err, errDown) || fault.From(err).Code != fault.LedgerUnavailable {
				t.Errorf("Open = %v, %+v", err, q.Decision)
			}
		}
		checkEqual(t, "calls", len(s.Calls()), 3)
		s.Before = nil
		q := openMany(t, r, client, 1)[0]
		s.Before = neverAnswer
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		begun, warned := time.Now(), error(nil)
		q.Warn = func(_ string, err error) { warned = err }
		if q.Close(ctx, false); !errors.Is(warned, context.DeadlineExceeded) || time.Since(begun) != limit.StoreTimeout {
			t.Errorf("Close: %v after %s", warned, time.Since(begun))
		}
		checkEqual(t, "left after a correction that failed", q.Remaining, 295)
	})
}

// TestReplaysWeigh checks the weight of answers to payments. A replayed answer weighs one unit
// per 16 KiB, rounded up, and the first answer to a payment weighs one unit. The store learns
// of these units at once, so other environments learn of them as well.
func TestReplaysWeigh(t *testing.T) {
	t.Parallel()
	clock, s := clockAt(0), &limit.Memory{}
	for _, c := range []struct {
		size     int
		replayed bool
		used     int
	}{
		{1 << 20, false, 1}, {16 << 10, true, 1 + 1}, {16<<10 + 1, true, 2 + 2}, {1 << 20, true, 4 + 64}, {1 << 20, true, 68 + 64},
	} {
		q, err := open(t, newRate(300, s, clock), client)
		if err != nil {
			t.Fatalf("%+v: %v", c, err)
		}
		q.Close(t.Context(), false)
		q.Served(t.Context(), c.size, c.replayed)
		if used := 300 - q.Decision.Remaining; used != c.used {
			t.Errorf("after %+v %d units are used", c, used)
		}
	}
	for n := range 4 { // a replay weighs 64 units: the third begins at 260 units and passes, the fourth does not
		q, err := open(t, newRate(300, s, clock), client)
		if passes := n < 3; (err == nil) != passes {
			t.Fatalf("replay %d: %v", n, err)
		}
		if err == nil {
			q.Close(t.Context(), false)
			q.Served(t.Context(), 1<<20, true)
		}
	}
}
