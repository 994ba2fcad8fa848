package guard

import (
	"errors"
	"net/netip"

	"code.dny.dev/ssrf"

	"github.com/hostfacts/hostfacts/pkg/fault"
)

// public knows every special-purpose range of the IANA registries, multicast
// and, for IPv6, everything outside 2000::/3. Ports and networks are the
// Dialer's business. It is never changed.
var public = ssrf.New(
	ssrf.WithAnyPort(), ssrf.WithAnyNetwork(),
	// Azure's WireServer answers metadata at an address that is in no
	// registry.
	ssrf.WithDeniedV4Prefixes(netip.MustParsePrefix("168.63.129.16/32")),
)

// CheckAddr returns nil for an address that is public unicast and
// blocked_address for every other: private, loopback, link-local, metadata,
// shared, documentation, benchmarking, multicast, reserved, and all forms of
// IPv6 that carry an IPv4 address (mapped, compatible, translated, 6to4,
// Teredo), whichever they carry. An address with a zone is never public.
func CheckAddr(a netip.Addr) error {
	switch {
	case !a.IsValid():
		return blocked(a, errors.New("not an address"))
	case a.Zone() != "":
		return blocked(a, errors.New("address with a zone"))
	}
	if err := public.SafeAddr(a); err != nil {
		return blocked(a, err)
	}
	return nil
}

// blocked names the address: it is in the public DNS, and without it nobody
// could tell a sinkhole from a mistake in the zone.
func blocked(a netip.Addr, cause error) *fault.Error {
	if !a.IsValid() {
		return fault.New(fault.BlockedAddress, cause)
	}
	return fault.Newf(fault.BlockedAddress, cause, "The domain resolves to %s, which is not a public address.", a.WithZone(""))
}
