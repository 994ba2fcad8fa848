package guard

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"

	"code.dny.dev/ssrf"

	"github.com/hostfacts/hostfacts/pkg/lookup"
)

const (
	// maxAddrs is the largest number of addresses that Dial tries. All addresses of a target
	// are checked, even if there are more.
	maxAddrs = 16

	// defaultTimeout limits a call whose context has no deadline.
	defaultTimeout = 8 * time.Second

	// resolveShare and dialShare are the shares of the remaining time that resolving and
	// dialling may use. So both end before the caller's deadline, and a time-out of the dial
	// can be told from a time-out of the whole call.
	resolveShare = 0.5
	dialShare    = 0.75
)

// Resolver looks up addresses.
type Resolver interface {
	// Addresses returns every A and AAAA address of a name. It does not check whether they are
	// public. Its error is nxdomain, a NoAddress error if the name has no address, or an error
	// that wraps ErrResolvers.
	Addresses(ctx context.Context, name string) ([]netip.Addr, error)
}

// NoAddress returns the error for a domain that has no address to connect to.
func NoAddress(why string) error {
	return lookup.Faultf(lookup.ConnectFailed, nil, "The domain has no address to connect to: %s.", why)
}

// Target is a name with its addresses, of which there is at least one. The name was resolved
// once, and all its addresses are public. A Connector connects only to these addresses.
type Target struct {
	Name  string // as Domain returns it
	Addrs []netip.Addr
}

// Connector resolves names and connects to them if all their addresses are public.
type Connector interface {
	// Resolve looks up every A and AAAA address of a name and checks that all of them are
	// public. Its errors are those of a Resolver and blocked_address.
	Resolve(ctx context.Context, name string) (Target, error)

	// Dial connects to the addresses of a target. It returns the first connection that
	// succeeds, and the address of its peer. Its errors are connect_failed and
	// blocked_address. The error connect_failed wraps ErrNoRoute if this machine has no route
	// to any of the addresses.
	Dial(ctx context.Context, t Target, port uint16) (net.Conn, netip.Addr, error)
}

// Messages for ErrResolvers and ErrUnresolvable. All lookups use these messages, each with its
// own time-out code.
const (
	Unresolved   = "The domain name could not be resolved: no DNS resolver gave a usable answer."
	Unresolvable = "The domain name could not be resolved: the resolvers answer for other names, so its name servers may be silent."
)

// Errors that a Connector returns without a code.
var (
	// ErrResolvers means that the resolvers of the service are down or silent, or give no
	// usable answer. It says nothing about the target. A lookup returns its own time-out code
	// for this error, and the answer stays owed.
	ErrResolvers = errors.New("guard: no resolver gave a usable answer")
	// ErrUnresolvable means that the resolvers work for other names, but give no usable answer
	// for one name. It wraps ErrResolvers. A lookup of this name treats the error as the
	// silence of its target.
	ErrUnresolvable = fmt.Errorf("%w about this name", ErrResolvers)
	// ErrNoRoute means that this machine has no route to any address family of the target.
	ErrNoRoute = errors.New("guard: no route to the target's address family")
)

// Dialer is the Connector used in production. It resolves a name once, refuses the name if any
// of its addresses is not public, and connects only to the addresses that it has checked. It
// is safe for concurrent use.
type Dialer struct {
	Resolver Resolver
	// Connect opens a "tcp" connection to a literal ip:port. The default is a net.Dialer that
	// checks the address of the socket once more, just before it connects. Any other function
	// must make this last check itself. Tests set Connect if their peers are on loopback.
	Connect func(ctx context.Context, network, address string) (net.Conn, error)
	// HasRoute reports whether this machine has a route to an address. By default the kernel
	// looks up the route, and nothing is sent.
	HasRoute func(ctx context.Context, a netip.Addr) bool
}

var _ Connector = (*Dialer)(nil)

// Resolve implements Connector. It takes at most half of the remaining time of ctx.
func (d *Dialer) Resolve(ctx context.Context, name string) (Target, error) {
	ctx, cancel := withShare(ctx, resolveShare)
	defer cancel()
	addrs, err := d.Resolver.Addresses(ctx, name)
	if err == nil {
		err = checkAddrs(addrs...)
	}
	if err != nil {
		return Target{}, err
	}
	return Target{Name: name, Addrs: addrs}, nil
}

// Dial implements Connector. It tries at most sixteen addresses, with the function race. IPv4
// and IPv6 addresses alternate, beginning with IPv4. A family without a route is left out.
// Dial takes at most three quarters of the remaining time of ctx. If ctx itself ends, the
// error wraps the error of ctx and has no code.
func (d *Dialer) Dial(ctx context.Context, t Target, port uint16) (net.Conn, netip.Addr, error) {
	none := netip.Addr{}
	if err := checkAddrs(t.Addrs...); err != nil {
		return nil, none, err
	}
	addrs, unrouted := d.routedAddrs(ctx, t.Addrs)
	if len(addrs) == 0 {
		return nil, none, lookup.Faultf(lookup.ConnectFailed, ErrNoRoute,
			"The TCP connection to the host failed: this service has no route to %s, and the host has no other address.", strings.Join(unrouted, " or "))
	}
	connect := d.Connect
	if connect == nil {
		connect = connectChecked
	}
	dialCtx, cancel := withShare(ctx, dialShare)
	defer cancel()
	conn, peer, failed := race(dialCtx, addrs, func(ctx context.Context, a netip.Addr) (net.Conn, error) {
		return connect(ctx, "tcp", netip.AddrPortFrom(a, port).String())
	})
	switch {
	case conn != nil:
		return conn, peer, nil
	case ctx.Err() != nil:
		return nil, none, fmt.Errorf("guard: connect: %w", ctx.Err())
	}
	return nil, none, connectFailed(failed, unrouted)
}

// connectFailed returns connect_failed for a host when every attempt to connect to it failed.
func connectFailed(failed []failure, unrouted []string) error {
	var causes []error
	var ways []string
	for _, f := range failed {
		causes = append(causes, fmt.Errorf("connect to %s: %w", f.addr, f.err))
		if way := describeFailure(f.err, f.addr); !slices.Contains(ways, way) {
			ways = append(ways, way)
		}
	}
	leftOut := ""
	if len(unrouted) > 0 {
		leftOut = " This service has no route to the host's addresses of " + strings.Join(unrouted, " or ") + "."
	}
	return lookup.Faultf(lookup.ConnectFailed, errors.Join(causes...),
		"The TCP connection to the host failed: %s (addresses tried: %d).%s", strings.Join(ways, ", "), len(failed), leftOut)
}

// routedAddrs returns the addresses to try, without duplicates, in the order in which to try
// them. It also returns the names of the address families that it leaves out because this
// machine has no route to them.
func (d *Dialer) routedAddrs(ctx context.Context, addrs []netip.Addr) (toTry []netip.Addr, unrouted []string) {
	routeExists := d.HasRoute
	if routeExists == nil {
		routeExists = hasRoute
	}
	families := map[string][]netip.Addr{}
	for _, name := range []string{ipv4, ipv6} {
		var family []netip.Addr
		for _, a := range addrs {
			if familyOf(a) == name && !slices.Contains(family, a) {
				family = append(family, a)
			}
		}
		switch {
		case len(family) == 0:
		// One address is enough to check a family, because all public addresses have the same
		// route or none.
		case routeExists(ctx, family[0]):
			families[name] = family
		default:
			unrouted = append(unrouted, name)
		}
	}
	toTry = interleave(families[ipv4], families[ipv6])
	return toTry[:min(len(toTry), maxAddrs)], unrouted
}

// The names of the address families in messages.
const (
	ipv4 = "IPv4"
	ipv6 = "IPv6"
)

func familyOf(a netip.Addr) string {
	if a.Is4() {
		return ipv4
	}
	return ipv6
}

// withShare returns a context that ends after the given share of the remaining time of ctx.
func withShare(ctx context.Context, share float64) (context.Context, context.CancelFunc) {
	remaining := defaultTimeout
	if end, ok := ctx.Deadline(); ok {
		remaining = time.Until(end)
	}
	return context.WithTimeout(ctx, time.Duration(float64(remaining)*share))
}

// describeFailure tells in words how connecting to an address failed.
func describeFailure(err error, a netip.Addr) string {
	netErr, ok := errors.AsType[net.Error](err)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused"
	case ok && netErr.Timeout():
		return "timed out"
	case errors.Is(err, syscall.EADDRNOTAVAIL), errors.Is(err, syscall.EAFNOSUPPORT):
		return "this service has no address of " + familyOf(a)
	case isNoRoute(err):
		return "unreachable over " + familyOf(a)
	}
	return "no connection"
}

// connectChecked is the default of Dialer.Connect. It turns keep-alive probes off, because
// connections live only for seconds.
func connectChecked(ctx context.Context, network, address string) (net.Conn, error) {
	return (&net.Dialer{Control: checkSocket, KeepAlive: -1}).DialContext(ctx, network, address)
}

// hasRoute reports whether the kernel has a route to an address. It connects a UDP socket: for
// that, the kernel looks up the route and picks an address of this machine, and sends nothing.
// hasRoute returns false only for a missing route, address or family. Any other failure, such as
// a lack of file descriptors on this machine, says nothing about routes.
func hasRoute(ctx context.Context, a netip.Addr) bool {
	// The kernel answers without waiting for the network, so nothing has to cancel the call.
	// If ctx cancelled it, the end of a lookup would look like a missing route.
	conn, err := new(net.Dialer).DialContext(context.WithoutCancel(ctx), "udp", netip.AddrPortFrom(a, 443).String())
	if err != nil {
		return !isNoRoute(err)
	}
	conn.Close()
	return true
}

// isNoRoute reports whether an error of the kernel means that this machine cannot send
// anything to an address.
func isNoRoute(err error) bool {
	for _, known := range []error{
		syscall.ENETUNREACH,
		syscall.EHOSTUNREACH,
		syscall.EADDRNOTAVAIL,
		syscall.EAFNOSUPPORT,
	} {
		if errors.Is(err, known) {
			return true
		}
	}
	return false
}

// publicCheck decides whether an address is public. It refuses every special-purpose range of
// the IANA registries, multicast and, for IPv6, everything outside 2000::/3. It accepts any
// port and network, because the Dialer decides about these. publicCheck is never changed.
var publicCheck = ssrf.New(
	ssrf.WithAnyPort(), ssrf.WithAnyNetwork(),
	// Azure's WireServer serves metadata at an address that no registry lists.
	ssrf.WithDeniedV4Prefixes(netip.MustParsePrefix("168.63.129.16/32")),
)

// checkAddrs returns nil if all addresses are public unicast addresses, and blocked_address
// otherwise. IPv6 addresses that carry an IPv4 address (mapped, compatible, translated, 6to4,
// Teredo) and addresses with a zone are not public.
//
// The message contains the refused address. That address is in the public DNS, and without it
// nobody could tell a sinkhole from a mistake in the zone.
func checkAddrs(addrs ...netip.Addr) error {
	for _, a := range addrs {
		if !a.IsValid() { // SafeAddr would accept it as public
			return lookup.Fault(lookup.BlockedAddress, nil)
		}
		if err := publicCheck.SafeAddr(a); err != nil {
			return lookup.Faultf(lookup.BlockedAddress, err, "The domain resolves to %s, which is not a public address.", a.WithZone(""))
		}
	}
	return nil
}

// checkSocket checks the address that a socket is about to connect to (net.Dialer.Control).
// This is the last check before the connection.
func checkSocket(network, address string, _ syscall.RawConn) error {
	a, err := netip.ParseAddrPort(address)
	if err != nil || network != "tcp4" && network != "tcp6" {
		return lookup.Fault(lookup.BlockedAddress, fmt.Errorf("socket %s to %s", network, address))
	}
	return checkAddrs(a.Addr())
}
