package limit_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/limit"
)

func TestClientKey(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"203.0.113.7":                            "203.0.113.7",
		"203.0.113.7:443":                        "203.0.113.7",
		"::ffff:203.0.113.7":                     "203.0.113.7",
		"[::ffff:203.0.113.7]:443":               "203.0.113.7",
		"::ffff:cb00:7107":                       "203.0.113.7",
		"2001:db8:1:2:3:4:5:6":                   "2001:db8:1:2::/64",
		"[2001:db8:1:2:3:4:5:6]:80":              "2001:db8:1:2::/64",
		"[2001:db8:1:2::9]":                      "2001:db8:1:2::/64",
		"2001:DB8:1:2::9":                        "2001:db8:1:2::/64",
		"2001:db8:1:3::9":                        "2001:db8:1:3::/64",
		"fe80::1%eth0":                           "fe80::/64",
		"[fe80::1%eth0]:80":                      "fe80::/64",
		"::1":                                    "::/64",
		"0.0.0.0":                                "0.0.0.0",
		"2001:db8:ffff:ffff:ffff:ffff:ffff:ffff": "2001:db8:ffff:ffff::/64",

		"":                                    limit.Unknown,
		"unknown":                             limit.Unknown,
		"203.0.113.256":                       limit.Unknown,
		"203.0.113.07":                        limit.Unknown,
		"203.0.113.7:":                        limit.Unknown,
		"203.0.113.7:65536":                   limit.Unknown,
		"203.0.113.7, 198.51.100.1":           limit.Unknown,
		"203.0.113.7|1":                       limit.Unknown,
		"[203.0.113.7]":                       limit.Unknown,
		"[2001:db8::1":                        limit.Unknown,
		"2001:db8::1]":                        limit.Unknown,
		"example.com:443":                     limit.Unknown,
		" 203.0.113.7":                        limit.Unknown,
		"fe80::1%" + strings.Repeat("z", 200): limit.Unknown,
	} {
		same(t, "ClientKey of "+in, limit.ClientKey(in), want)
	}
}

// What is expensive is counted by the /48: an address in another /64 of the same
// site is the same client.
func TestSiteKey(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"203.0.113.7:443":           "203.0.113.7",
		"::ffff:203.0.113.7":        "203.0.113.7",
		"2001:db8:1:2:3:4:5:6":      "2001:db8:1::/48",
		"[2001:db8:1:ffff::9]:80":   "2001:db8:1::/48",
		"2001:db8:2::9":             "2001:db8:2::/48",
		"203.0.113.7, 198.51.100.1": limit.Unknown,
	} {
		same(t, "SiteKey of "+in, limit.SiteKey(in), want)
	}
}

func FuzzClientKey(f *testing.F) {
	for _, s := range []string{
		"203.0.113.7", "203.0.113.7:443", "[2001:db8::1]:443", "2001:db8::1", "fe80::1%eth0", "::ffff:203.0.113.7",
		"[::ffff:203.0.113.7%x]:1", "[::1]", "", "unknown", "1.2.3.4:99999", "::1.2.3.4",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		key := limit.ClientKey(s)
		if len(key) > 24 {
			t.Fatalf("ClientKey(%q) = %q, %d bytes", s, key, len(key))
		}
		if key == limit.Unknown {
			if addr, err := netip.ParseAddr(s); err == nil && len(s) <= 128 {
				t.Fatalf("%s is an address, and unknown", addr)
			}
			return
		}
		if addr, err := netip.ParseAddr(key); err == nil {
			if !addr.Is4() || addr.String() != key || limit.ClientKey(key) != key || limit.ClientKey(key+":443") != key {
				t.Fatalf("ClientKey(%q) = %q: not an IPv4 address as it is written", s, key)
			}
			return
		}
		prefix, err := netip.ParsePrefix(key)
		if err != nil || prefix.Bits() != 64 || !prefix.Addr().Is6() || prefix.Addr().Is4In6() || prefix.Masked() != prefix || prefix.String() != key {
			t.Fatalf("ClientKey(%q) = %q: not a /64 as it is written", s, key)
		}
		last := prefix.Addr().As16()
		for i := 8; i < 16; i++ {
			last[i] = 0xff
		}
		other := netip.AddrFrom16(last)
		for _, same := range []string{other.String(), "[" + other.String() + "]:80", prefix.Addr().String()} {
			if got := limit.ClientKey(same); got != key {
				t.Fatalf("ClientKey(%q) = %q, and of its neighbour %q %q", s, key, same, got)
			}
		}
	})
}
