package dns

import (
	"fmt"
	"net/netip"
	"strings"
)

// resolverPort is the port of a resolver that is given without one.
const resolverPort = 53

// ParseResolvers reads a comma-separated list of ip or ip:port, IPv6 bare or
// in brackets, and returns each as ip:port. Its error names every entry that
// is wrong, in one line; the text is meant for the operator.
func ParseResolvers(csv string) ([]string, error) {
	var out, faults []string
	seen := map[netip.AddrPort]bool{}
	for i, entry := range strings.Split(csv, ",") {
		r, err := parseResolver(strings.TrimSpace(entry))
		switch {
		case err != nil:
			faults = append(faults, fmt.Sprintf("entry %d: %v", i+1, err))
		case seen[r]:
			faults = append(faults, fmt.Sprintf("entry %d: %s is listed twice", i+1, r))
		default:
			seen[r] = true
			out = append(out, r.String())
		}
	}
	if faults != nil {
		return nil, fmt.Errorf("DNS resolvers: %s", strings.Join(faults, "; "))
	}
	return out, nil
}

func parseResolver(s string) (netip.AddrPort, error) {
	if s == "" {
		return netip.AddrPort{}, fmt.Errorf("empty, want ip or ip:port")
	}
	r, err := netip.ParseAddrPort(s)
	if err != nil {
		bare := s
		if inner, ok := strings.CutPrefix(s, "["); ok && strings.HasSuffix(inner, "]") {
			bare = strings.TrimSuffix(inner, "]")
		}
		addr, err := netip.ParseAddr(bare)
		if err != nil || bare != s && !addr.Is6() {
			return netip.AddrPort{}, fmt.Errorf("%q is not ip or ip:port", s)
		}
		r = netip.AddrPortFrom(addr, resolverPort)
	}
	r = netip.AddrPortFrom(r.Addr().Unmap(), r.Port())
	switch {
	case r.Port() == 0:
		return netip.AddrPort{}, fmt.Errorf("%q has port 0", s)
	case r.Addr().IsUnspecified() || r.Addr().IsMulticast():
		return netip.AddrPort{}, fmt.Errorf("%q is not the address of a host", s)
	}
	return r, nil
}
