package limit_test

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/limit"
	"github.com/hostfacts/hostfacts/pkg/x402/limit/limittest"
)

const client = "203.0.113.7"

var (
	noon    = time.Date(2026, time.November, 1, 12, 0, 0, 0, time.UTC)
	errDown = errors.New("the store is down")
)

// same compares what there is with what is wanted.
func same[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func at(offset time.Duration) *limittest.Clock {
	var c limittest.Clock
	c.Set(noon.Add(offset))
	return &c
}

// store is a Memory that notes its calls, and fails as it is told.
type store = limittest.Watched

// added is what the calls since the last time added.
func added(s *store) (units []int) {
	for _, c := range s.Calls() {
		units = append(units, c.Units)
	}
	return units
}

// down, silent and slow are what a store does: it fails, it answers when its caller gives
// up, or it takes a tenth of a second, by the clock of a bubble.
func down(context.Context, limittest.Call) error { return errDown }

func silent(ctx context.Context, _ limittest.Call) error {
	<-ctx.Done()
	return ctx.Err()
}

func slow(context.Context, limittest.Call) error {
	time.Sleep(100 * time.Millisecond)
	return nil
}

func TestMemory(t *testing.T) {
	t.Parallel()
	limittest.Exercise(t, func(*testing.T) limittest.Store { return &limit.Memory{} })
}

// Counts of past windows are forgotten.
func TestMemoryForgets(t *testing.T) {
	var m limit.Memory
	const w = limit.Window
	for i, c := range []struct {
		after time.Duration
		want  int
	}{{0, 1}, {w, 1}, {0, 2}, {2 * w, 1}, {w, 2}, {0, 1}} { // the third is a late report, which counts
		if got, _, err := m.Count(t.Context(), "c", noon.Add(c.after), limit.Units{All: 1}, limit.Unbounded); err != nil || got.All != c.want {
			t.Errorf("Count %d = %+v, %v; want %d", i, got, err, c.want)
		}
	}
}

// An IPv4 address is a client and a site by itself. An IPv6 client is its /64; what is
// expensive is counted by the /48: an address in another /64 of it is the same client.
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
		same(t, "ClientKey of "+in, limit.ClientKey(in), want.client)
		same(t, "SiteKey of "+in, limit.SiteKey(in), want.site)
		same(t, "DocumentsKey of "+in, limit.DocumentsKey(in), "documents|"+want.client)
	}
	for _, in := range []string{
		"", "203.0.113.07", "203.0.113.7:", "203.0.113.7:65536", "203.0.113.7, 198.51.100.1", "[203.0.113.7]", "[2001:db8::1", "2001:db8::1]",
		"example.com:443", "f::1%" + strings.Repeat("z", 200),
	} {
		same(t, "keys of "+in, limit.ClientKey(in)+limit.SiteKey(in), limit.Unknown+limit.Unknown)
	}
}

// A key is short, is Unknown only for what is not an address, and is the key of each address
// that it names, however that is written.
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
