package limit_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/limit"
)

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
	}
	for _, in := range []string{
		"", "203.0.113.07", "203.0.113.7:", "203.0.113.7:65536", "203.0.113.7, 198.51.100.1", "[203.0.113.7]", "[2001:db8::1", "2001:db8::1]",
		"example.com:443", "f::1%" + strings.Repeat("z", 200),
	} {
		same(t, "keys of "+in, limit.ClientKey(in)+limit.SiteKey(in), limit.Unknown+limit.Unknown)
	}
}

// A key is short, is Unknown only for what is no address, and is the key of each address
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
