package guard_test

import (
	"errors"
	"flag"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/guard"
)

var million = flag.Bool("million", false, "compare the address guard with the registries on a million addresses")

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
// gives out nothing but 2000::/3 as global unicast.
var refused6 = []span{
	{"::", "1fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"}, // below global unicast
	{"::", "::"},                                                // unspecified, RFC 4291
	{"::1", "::1"},                                              // loopback, RFC 4291
	{"::", "::ffff:ffff"},                                       // IPv4-compatible, RFC 4291
	{"::ffff:0:0", "::ffff:ffff:ffff"},                          // IPv4-mapped, RFC 4291
	{"::ffff:0:0:0", "::ffff:0:ffff:ffff"},                      // IPv4-translated, RFC 2765
	{"64:ff9b::", "64:ff9b::ffff:ffff"},                         // NAT64, RFC 6052
	{"64:ff9b:1::", "64:ff9b:1:ffff:ffff:ffff:ffff:ffff"},       // NAT64, RFC 8215
	{"100::", "100::ffff:ffff:ffff:ffff"},                       // discard only, RFC 6666
	{"100:0:0:1::", "100::1:ffff:ffff:ffff:ffff"},               // dummy, RFC 9780
	{"2001::", "2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff"},        // protocol assignments, RFC 2928
	{"2001::", "2001:0:ffff:ffff:ffff:ffff:ffff:ffff"},          // Teredo, RFC 4380
	{"2001:1::1", "2001:1::1"},                                  // PCP anycast, RFC 7723
	{"2001:1::2", "2001:1::2"},                                  // TURN anycast, RFC 8155
	{"2001:1::3", "2001:1::3"},                                  // DNS-SD anycast, RFC 9665
	{"2001:2::", "2001:2:0:ffff:ffff:ffff:ffff:ffff"},           // benchmarking, RFC 5180
	{"2001:3::", "2001:3:ffff:ffff:ffff:ffff:ffff:ffff"},        // AMT, RFC 7450
	{"2001:4:112::", "2001:4:112:ffff:ffff:ffff:ffff:ffff"},     // AS112, RFC 7535
	{"2001:10::", "2001:1f:ffff:ffff:ffff:ffff:ffff:ffff"},      // ORCHID, RFC 4843
	{"2001:20::", "2001:2f:ffff:ffff:ffff:ffff:ffff:ffff"},      // ORCHIDv2, RFC 7343
	{"2001:30::", "2001:3f:ffff:ffff:ffff:ffff:ffff:ffff"},      // DETs, RFC 9374
	{"2001:db8::", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff"},    // documentation, RFC 3849
	{"2002::", "2002:ffff:ffff:ffff:ffff:ffff:ffff:ffff"},       // 6to4, RFC 3056
	{"2620:4f:8000::", "2620:4f:8000:ffff:ffff:ffff:ffff:ffff"}, // AS112, RFC 7534
	{"3fff::", "3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff"},        // documentation, RFC 9637
	{"4000::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"},       // above global unicast
	{"5f00::", "5f00:ffff:ffff:ffff:ffff:ffff:ffff:ffff"},       // segment routing, RFC 9602
	{"fc00::", "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"},       // unique local, RFC 4193
	{"fe80::", "febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff"},       // link local, RFC 4291
	{"fec0::", "feff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"},       // site local, RFC 3879
	{"ff00::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"},       // multicast, RFC 4291
}

type bounds struct{ first, last netip.Addr }

// oracle judges addresses by the tables above, by comparing numbers.
type oracle struct{ four, six []bounds }

func newOracle() oracle {
	read := func(spans []span) []bounds {
		out := make([]bounds, len(spans))
		for i, s := range spans {
			out[i] = bounds{netip.MustParseAddr(s.first), netip.MustParseAddr(s.last)}
		}
		return out
	}
	return oracle{four: read(refused4), six: read(refused6)}
}

func (o oracle) public(a netip.Addr) bool {
	table := o.six
	if a.Is4() {
		table = o.four
	}
	for _, b := range table {
		if b.first.Compare(a) <= 0 && a.Compare(b.last) <= 0 {
			return false
		}
	}
	return true
}

// TestCheckAddrAgainstRegistries draws addresses, half of them anywhere and
// half at a range's ends or a few steps from them.
func TestCheckAddrAgainstRegistries(t *testing.T) {
	t.Parallel()
	n := 100_000
	if *million {
		n = 1_000_000
	}
	o, r := newOracle(), rand.New(rand.NewPCG(7, 11))
	all := append(append([]bounds{}, o.four...), o.six...)
	publics := 0
	for i := range n {
		a := draw(r)
		if i%2 == 0 {
			a = near(r, all[r.IntN(len(all))])
		}
		want := o.public(a)
		if got := guard.CheckAddr(a) == nil; got != want {
			t.Fatalf("%s: public %v, the registries say %v", a, got, want)
		}
		if want {
			publics++
		}
	}
	if publics < n/10 || publics > n*9/10 {
		t.Errorf("%d of %d were public: the draw is lopsided", publics, n)
	}
}

// draw is any IPv4 address, any global unicast one or any other of IPv6.
func draw(r *rand.Rand) netip.Addr {
	var b [16]byte
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	switch r.IntN(3) {
	case 0:
		return netip.AddrFrom4([4]byte(b[:4]))
	case 1:
		b[0] = b[0]&0x1f | 0x20
	}
	return netip.AddrFrom16(b)
}

// near is up to three steps from one of the ends, on either side.
func near(r *rand.Rand, b bounds) netip.Addr {
	a, step := b.first, netip.Addr.Prev
	if r.IntN(2) == 0 {
		a = b.last
	}
	if r.IntN(2) == 0 {
		step = netip.Addr.Next
	}
	for range r.IntN(4) {
		if next := step(a); next.IsValid() {
			a = next
		}
	}
	return a
}

func TestCheckAddrRefuses(t *testing.T) {
	t.Parallel()
	for _, s := range []string{
		"0.0.0.0", "127.0.0.1", "127.255.255.254", "10.1.2.3", "172.16.0.1", "172.31.255.255", "192.168.1.1", "100.64.0.1",
		// Metadata services: AWS, its containers, DNS and clock; Oracle,
		// Alibaba, Tencent, Azure.
		"169.254.169.254", "169.254.170.2", "169.254.170.23", "169.254.169.253", "169.254.169.123", "192.0.0.192",
		"100.100.100.200", "169.254.0.23", "168.63.129.16", "fd00:ec2::254", "fd00:ec2::253", "fd00:ec2::23",
		"fd20:ce::254", "fd00:c1::a9fe:a9fe",
		"224.0.0.251", "239.255.255.250", "240.0.0.1", "255.255.255.255", "198.18.0.1", "203.0.113.7",
		"::", "::1", "::127.0.0.1", "::8.8.8.8", "::ffff:127.0.0.1", "::ffff:8.8.8.8", "::ffff:0:8.8.8.8",
		"64:ff9b::8.8.8.8", "64:ff9b:1::1", "100::1", "100:0:0:1::1", "2001::1", "2001:2::1", "2001:10::1", "2001:20::1",
		"2001:30::1", "2001:db8::1", "2002:7f00:1::", "2002:808:808::1", "2620:4f:8000::1", "3fff::1", "3fff:fff::1", "5f00::1",
		"fc00::1", "fd12:3456::1", "fe80::1", "fe80::1%eth0", "febf::1", "fec0::1", "ff02::1", "ff0e::1",
		"2606:4700:4700::1111%eth0", "4000::1", "8000::1",
	} {
		if code := codeOf(guard.CheckAddr(netip.MustParseAddr(s))); code != fault.BlockedAddress {
			t.Errorf("%s: %q, want blocked_address", s, code)
		}
	}
	if code := codeOf(guard.CheckAddr(netip.Addr{})); code != fault.BlockedAddress {
		t.Errorf("no address: %q, want blocked_address", code)
	}
}

func TestCheckAddrAccepts(t *testing.T) {
	t.Parallel()
	for _, s := range []string{
		"1.1.1.1", "8.8.8.8", "9.9.9.10", "93.184.216.34", "100.63.255.255", "100.128.0.0", "168.63.129.15", "168.63.129.17",
		"172.15.255.255", "172.32.0.0", "192.0.1.1", "198.17.255.255", "198.20.0.0", "223.255.255.255",
		"2606:4700:4700::1111", "2001:4860:4860::8888", "2001:200::1", "2a00:1450::1", "2620:4f:8001::", "3ffe::1", "3fff:1000::",
	} {
		if err := guard.CheckAddr(netip.MustParseAddr(s)); err != nil {
			t.Errorf("%s: %v", s, err)
		}
	}
}

func FuzzCheckAddr(f *testing.F) {
	for _, s := range append(append([]span{}, refused4...), refused6...) {
		f.Add(netip.MustParseAddr(s.first).AsSlice())
		f.Add(netip.MustParseAddr(s.last).AsSlice())
	}
	for _, public := range []string{"8.8.8.8", "2606:4700:4700::1111", "::ffff:8.8.8.8"} {
		f.Add(netip.MustParseAddr(public).AsSlice())
	}
	o := newOracle()
	f.Fuzz(func(t *testing.T, b []byte) {
		a, ok := netip.AddrFromSlice(b)
		if !ok {
			return
		}
		if got, want := guard.CheckAddr(a) == nil, o.public(a); got != want {
			t.Errorf("%s: public %v, the registries say %v", a, got, want)
		}
	})
}

func codeOf(err error) fault.Code {
	var f *fault.Error
	if errors.As(err, &f) {
		return f.Code
	}
	return ""
}
