package limit

import (
	"net/netip"
	"strings"
)

// Unknown is the key that all addresses share that cannot be parsed.
const Unknown = "unknown"

// maxRemote is more than any address with a port needs. A zone may have any
// length, so longer text is not parsed.
const maxRemote = 128

const (
	// clientBits is the length of the prefix that is one IPv6 client: the smallest
	// network that is assigned is a /64, and its client may use every address in it.
	clientBits = 64
	// siteBits is the length of the prefix that is one IPv6 customer: providers
	// assign a /56 or a /48 on request, which is 256 or 65,536 networks of the size
	// above.
	siteBits = 48
)

// ClientKey names the client behind an address: an IPv4 address as it is, or
// the /64 of an IPv6 address. The address may have a port, brackets or a zone;
// IPv4 mapped into IPv6 is IPv4. Anything else is Unknown. A key is at most 24
// bytes of ASCII.
func ClientKey(remoteAddr string) string { return keyOf(remoteAddr, clientBits) }

// DocumentsKey names the tally of what a client asks of the free documents, apart
// from its ClientKey's, so that a client without units left can still read what an
// error means. A key is at most 34 bytes.
func DocumentsKey(remoteAddr string) string { return "documents|" + ClientKey(remoteAddr) }

// SiteKey is a ClientKey with the /48 of an IPv6 address in place of its /64. What
// is expensive to serve is counted by it, so that a customer to whom a provider has
// assigned many networks does not have a limit for each of them.
func SiteKey(remoteAddr string) string { return keyOf(remoteAddr, siteBits) }

func keyOf(remoteAddr string, bits int) string {
	addr, ok := parseRemote(remoteAddr)
	if !ok {
		return Unknown
	}
	addr = addr.Unmap()
	if addr.Is4() {
		return addr.String()
	}
	prefix, err := addr.Prefix(bits) // without the zone
	if err != nil {
		return Unknown
	}
	return prefix.String()
}

// parseRemote tries the bare address first: that is what API Gateway sends.
func parseRemote(s string) (netip.Addr, bool) {
	if len(s) > maxRemote {
		return netip.Addr{}, false
	}
	if addr, err := netip.ParseAddr(s); err == nil {
		return addr, true
	}
	if withPort, err := netip.ParseAddrPort(s); err == nil {
		return withPort.Addr(), true
	}
	inner, opened := strings.CutPrefix(s, "[")
	inner, closed := strings.CutSuffix(inner, "]")
	if !opened || !closed {
		return netip.Addr{}, false
	}
	addr, err := netip.ParseAddr(inner)
	return addr, err == nil && addr.Is6()
}
