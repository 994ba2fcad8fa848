package guard

import (
	"net/netip"
	"strings"

	"code.dny.dev/ssrf"

	"github.com/hostfacts/hostfacts/pkg/lookup"
)

// public knows every special-purpose range of the IANA registries, multicast
// and, for IPv6, everything outside 2000::/3. Ports and networks are the
// Dialer's business. It is never changed.
var public = ssrf.New(
	ssrf.WithAnyPort(), ssrf.WithAnyNetwork(),
	// Azure's WireServer answers metadata at an address that is in no registry.
	ssrf.WithDeniedV4Prefixes(netip.MustParsePrefix("168.63.129.16/32")),
)

// checkAddr returns nil for an address that is public unicast and
// blocked_address for every other, all forms of IPv6 that carry an IPv4 address
// (mapped, compatible, translated, 6to4, Teredo) and any with a zone among them.
//
// The message names the address: it is in the public DNS, and without it nobody
// could tell a sinkhole from a mistake in the zone.
func checkAddr(a netip.Addr) error {
	if !a.IsValid() { // which the library takes for public
		return lookup.Fault(lookup.BlockedAddress, nil)
	}
	if err := public.SafeAddr(a); err != nil {
		return lookup.Faultf(lookup.BlockedAddress, err, "The domain resolves to %s, which is not a public address.", a.WithZone(""))
	}
	return nil
}

// isSpecial reports whether a normalised name is, or lies under, a name that
// is not part of the public DNS or that must not be asked about.
func isSpecial(name string) bool {
	for rest, more := name, true; more; _, rest, more = strings.Cut(rest, ".") {
		switch rest {
		case
			// Special-use domain names (IANA registry of RFC 6761 and its
			// successors: RFC 6762, 7686, 9476 and the whole of arpa).
			"localhost", "local", "test", "example", "invalid", "onion", "alt", "arpa",
			// Kept for private use, or refused delegation, by ICANN.
			"internal", "corp", "home", "mail",
			// Private by practice (RFC 6762 appendix G).
			"lan", "intranet", "private", "localdomain", "domain", "workgroup",
			// A cloud's metadata service under a public top-level domain.
			"metadata.goog":
			return true
		}
	}
	return false
}
