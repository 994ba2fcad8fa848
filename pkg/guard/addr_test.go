package guard_test

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/guard"
	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// refused are the ranges that are not public, from the IANA registries of special-purpose
// addresses and, for what these leave out, from those of multicast and of the address space
// of IPv6, which gives out nothing but 2000::/3 as global unicast, and from Azure's
// documentation. 2001::/23 holds Teredo, benchmarking, ORCHID and others.
var refused = strings.Fields(`
	0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 168.63.129.16/32 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 192.0.2.0/24
	192.31.196.0/24 192.52.193.0/24 192.88.99.0/24 192.168.0.0/16 192.175.48.0/24 198.18.0.0/15 198.51.100.0/24
	203.0.113.0/24 224.0.0.0/4 240.0.0.0/4
	::/3 2001::/23 2001:db8::/32 2002::/16 2620:4f:8000::/48 3fff::/20 4000::/2 8000::/1`)

// TestPublic compares with the registries at the ends of every range, up to three
// steps from them, and at addresses drawn from anywhere.
func TestPublic(t *testing.T) {
	t.Parallel()
	publics, n := 0, 0
	check := func(a netip.Addr) {
		within := func(p string) bool { return netip.MustParsePrefix(p).Contains(a) }
		want := !slices.ContainsFunc(refused, within)
		if code := codeOf(resolved(t, a)); (code == "") != want || !want && code != lookup.BlockedAddress {
			t.Fatalf("%s: %q, the registries say public %v", a, code, want)
		}
		if n++; want {
			publics++
		}
	}
	for _, text := range refused {
		p := netip.MustParsePrefix(text)
		last := p.Addr().AsSlice()
		for i := p.Bits(); i < p.Addr().BitLen(); i++ {
			last[i/8] |= 0x80 >> (i % 8)
		}
		end, _ := netip.AddrFromSlice(last)
		for _, up := range []netip.Addr{p.Addr(), end} {
			down := up
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
