package dns

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// ParseResolvers reads a comma-separated list of ip or ip:port, IPv6 bare or
// in brackets, and returns each as ip:port, with port 53 if it has none. Its
// error names every entry that is wrong, in one line; the text is meant for the
// operator.
func ParseResolvers(csv string) (resolvers []string, err error) {
	var faults []string
	for i, entry := range strings.Split(csv, ",") {
		r, err := parseResolver(strings.TrimSpace(entry))
		if err == nil && slices.Contains(resolvers, r.String()) {
			err = fmt.Errorf("%s is listed twice", r)
		}
		if err != nil {
			faults = append(faults, fmt.Sprintf("entry %d: %v", i+1, err))
		}
		resolvers = append(resolvers, r.String())
	}
	if faults != nil {
		return nil, fmt.Errorf("DNS resolvers: %s", strings.Join(faults, "; "))
	}
	return resolvers, nil
}

func parseResolver(s string) (netip.AddrPort, error) {
	r, err := netip.ParseAddrPort(s)
	if err != nil {
		r, err = netip.ParseAddrPort(s + ":53")
	}
	if a, bare := netip.ParseAddr(s); bare == nil {
		r, err = netip.AddrPortFrom(a, 53), nil
	}
	r = netip.AddrPortFrom(r.Addr().Unmap(), r.Port())
	switch {
	case s == "":
		return r, errors.New("empty, want ip or ip:port")
	case err != nil:
		return r, fmt.Errorf("%q is not ip or ip:port", s)
	case r.Port() == 0:
		return r, fmt.Errorf("%q has port 0", s)
	case r.Addr().IsUnspecified() || r.Addr().IsMulticast():
		return r, fmt.Errorf("%q is not the address of a host", s)
	}
	return r, nil
}
