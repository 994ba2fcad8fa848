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

// ClientKey names the client behind an address: an IPv4 address as it is, or
// the /64 of an IPv6 address, which is the smallest network that is assigned, and whose
// client may use every address in it. The address may have a port, brackets or a zone;
// IPv4 mapped into IPv6 is IPv4. Anything else is Unknown. A key is at most 24
// bytes of ASCII.
func ClientKey(remoteAddr string) string { return keyOf(remoteAddr, 64) }

// DocumentsKey names the tally of what a client asks of the free documents, apart
// from its ClientKey's, so that a client without units left can still read what an
// error means. A key is at most 34 bytes.
func DocumentsKey(remoteAddr string) string { return "documents|" + ClientKey(remoteAddr) }

// SiteKey is a ClientKey with the /48 of an IPv6 address in place of its /64: providers
// assign a /56 or a /48 on request, which is 256 or 65,536 networks of a client's size.
// What is expensive to serve is counted by it, so that such a customer does not have a
// limit for each of them.
func SiteKey(remoteAddr string) string { return keyOf(remoteAddr, 48) }

func keyOf(remoteAddr string, bits int) string {
	addr := parseRemote(remoteAddr).Unmap()
	if addr.Is4() {
		return addr.String()
	}
	prefix, _ := addr.Prefix(bits) // without the zone; invalid of an invalid address
	if !prefix.IsValid() {
		return Unknown
	}
	return prefix.String()
}

// parseRemote tries the bare address first: that is what API Gateway sends. It returns
// the zero Addr for what is not an address.
func parseRemote(s string) netip.Addr {
	if len(s) > maxRemote {
		return netip.Addr{}
	}
	if addr, err := netip.ParseAddr(s); err == nil {
		return addr
	}
	if strings.HasSuffix(s, "]") { // brackets without a port
		s += ":0"
	}
	withPort, _ := netip.ParseAddrPort(s) // zero after an error
	return withPort.Addr()
}
