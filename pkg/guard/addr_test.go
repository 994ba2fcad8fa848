package guard_test

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/guard"
	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// span is a range of a registry, first to last address.
type span struct{ first, last string }

// refused4 are the ranges of IPv4 that are not public, typed from the IANA
// IPv4 Special-Purpose Address Registry and, for what it leaves out, from the
// multicast registry and from Azure's documentation.
var refused4 = []span{
	{"0.0.0.0", "0.255.255.255"},           // this network, RFC 791
	{"10.0.0.0", "10.255.255.255"},         // private, RFC 1918
	{"100.64.0.0", "100.127.255.255"},      // shared, RFC 6598
	{"127.0.0.0", "127.255.255.255"},       // loopback, RFC 1122
	{"168.63.129.16", "168.63.129.16"},     // Azure WireServer
	{"169.254.0.0", "169.254.255.255"},     // link local, RFC 3927
	{"172.16.0.0", "172.31.255.255"},       // private, RFC 1918
	{"192.0.0.0", "192.0.0.255"},           // protocol assignments, RFC 6890
	{"192.0.2.0", "192.0.2.255"},           // documentation, RFC 5737
	{"192.31.196.0", "192.31.196.255"},     // AS112, RFC 7535
	{"192.52.193.0", "192.52.193.255"},     // AMT, RFC 7450
	{"192.88.99.0", "192.88.99.255"},       // 6to4 relays, RFC 7526
	{"192.168.0.0", "192.168.255.255"},     // private, RFC 1918
	{"192.175.48.0", "192.175.48.255"},     // AS112, RFC 7534
	{"198.18.0.0", "198.19.255.255"},       // benchmarking, RFC 2544
	{"198.51.100.0", "198.51.100.255"},     // documentation, RFC 5737
	{"203.0.113.0", "203.0.113.255"},       // documentation, RFC 5737
	{"224.0.0.0", "239.255.255.255"},       // multicast, RFC 5771
	{"240.0.0.0", "255.255.255.254"},       // reserved, RFC 1112
	{"255.255.255.255", "255.255.255.255"}, // limited broadcast, RFC 8190
}

// refused6 are the ranges of IPv6 that are not public, from the IANA IPv6
// Special-Purpose Address Registry and the IPv6 address space registry, which
// gives out nothing but 2000::/3 as global unicast. What lies within another range
// is left out: what is below and above global unicast, and 2001::/23, which holds
// Teredo, benchmarking, ORCHID and others.
var refused6 = []span{
	{"::", "1fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"},           // below global unicast
	{"2001::", "2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff"},        // protocol assignments, RFC 2928
	{"2001:db8::", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff"},    // documentation, RFC 3849
	{"2002::", "2002:ffff:ffff:ffff:ffff:ffff:ffff:ffff"},       // 6to4, RFC 3056
	{"2620:4f:8000::", "2620:4f:8000:ffff:ffff:ffff:ffff:ffff"}, // AS112, RFC 7534
	{"3fff::", "3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff"},        // documentation, RFC 9637
	{"4000::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"},       // above global unicast
}

// TestPublic compares with the registries at the ends of every range, up to three
// steps from them, and at addresses drawn from anywhere.
func TestPublic(t *testing.T) {
	t.Parallel()
	refused := slices.Concat(refused4, refused6)
	within := func(s span, a netip.Addr) bool {
		first, last := netip.MustParseAddr(s.first), netip.MustParseAddr(s.last)
		return first.Is4() == a.Is4() && first.Compare(a) <= 0 && a.Compare(last) <= 0
	}
	publics, n := 0, 0
	check := func(a netip.Addr) {
		want := !slices.ContainsFunc(refused, func(s span) bool { return within(s, a) })
		if code := codeOf(resolved(t, a)); (code == "") != want || !want && code != lookup.BlockedAddress {
			t.Fatalf("%s: %q, the registries say public %v", a, code, want)
		}
		if n++; want {
			publics++
		}
	}
	for _, s := range refused {
		for _, end := range []string{s.first, s.last} {
			up, down := netip.MustParseAddr(end), netip.MustParseAddr(end)
			for range 4 {
				for _, a := range []netip.Addr{up, down} {
					if a.IsValid() {
						check(a)
					}
				}
				up, down = up.Next(), down.Prev()
			}
		}
	}
	// Any IPv4 address, and any global unicast one of IPv6.
	r := rand.New(rand.NewPCG(7, 11))
	for range 2_000 {
		var b [16]byte
		binary.BigEndian.PutUint64(b[:], r.Uint64())
		check(netip.AddrFrom4([4]byte(b[:4])))
		b[0] = b[0]&0x1f | 0x20
		check(netip.AddrFrom16(b))
	}
	if publics < n/10 || publics > n*9/10 {
		t.Errorf("%d of %d were public: the draw is lopsided", publics, n)
	}
	// Metadata services are in these ranges, or in the corpus of infra/simnet. What has a zone
	// is not public, nor what is not an address.
	for _, a := range []netip.Addr{{}, netip.MustParseAddr("2606:4700:4700::1111%eth0")} {
		if code := codeOf(resolved(t, a)); code != lookup.BlockedAddress {
			t.Errorf("%s: %q, want blocked_address", a, code)
		}
	}
}

// one is a Resolver that gives every name one address.
type one struct{ netip.Addr }

func (o one) Addresses(context.Context, string) ([]netip.Addr, error) {
	return []netip.Addr{o.Addr}, nil
}

// resolved is what the guard says of a name with this address.
func resolved(t *testing.T, a netip.Addr) error {
	t.Helper()
	_, err := (&guard.Dialer{Resolver: one{a}}).Resolve(t.Context(), "a.test.com")
	return err
}

func codeOf(err error) fault.Code {
	var f *fault.Error
	if errors.As(err, &f) {
		return f.Code
	}
	return ""
}
