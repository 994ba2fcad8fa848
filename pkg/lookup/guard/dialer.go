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
	// maxAddrs bounds the addresses of one target that are tried. All are checked.
	maxAddrs = 16

	// defaultTimeout bounds a call whose context has no deadline.
	defaultTimeout = 8 * time.Second

	// Shares of the time that is left. So neither ends because the caller's time does, and
	// a time-out of the dial is told from one of the whole call.
	resolveShare = 0.5
	dialShare    = 0.75
)

// Resolver finds addresses.
type Resolver interface {
	// Addresses returns every A and AAAA address of a name, unchecked. Its errors are
	// nxdomain, that of NoAddress for a name that has none, or wrap ErrResolvers.
	Addresses(ctx context.Context, name string) ([]netip.Addr, error)
}

// NoAddress is the error about a domain without an address to connect to.
func NoAddress(why string) error {
	return lookup.Faultf(lookup.ConnectFailed, nil, "The domain has no address to connect to: %s.", why)
}

// Target is a name whose addresses, at least one, were resolved once and were all found
// to be public. Nothing is connected to but a Target's addresses.
type Target struct {
	Name  string // as Domain returns it
	Addrs []netip.Addr
}

// Connector finds and reaches public hosts, and no others.
type Connector interface {
	// Resolve looks up every A and AAAA address of a name and checks all of
	// them. Its errors are those of a Resolver and blocked_address.
	Resolve(ctx context.Context, name string) (Target, error)

	// Dial connects to one of the target's addresses, the first that takes a connection,
	// and returns the connection with that address. Its errors are connect_failed, which
	// wraps ErrNoRoute where this machine has no route to any of the addresses, and
	// blocked_address.
	Dial(ctx context.Context, t Target, port uint16) (net.Conn, netip.Addr, error)
}

// Messages of every tool, under its own code: for ErrResolvers, and for ErrUnresolvable.
const (
	Unresolved   = "The domain name could not be resolved: no DNS resolver gave a usable answer."
	Unresolvable = "The domain name could not be resolved: the resolvers answer for other names, so its name servers may be silent."
)

// Errors of a Connector without a code of their own.
var (
	// ErrResolvers: our resolvers are down or silent, or say nothing usable. It says
	// nothing about the target: a tool answers its own time-out code for it, and the
	// answer stays owed.
	ErrResolvers = errors.New("guard: no resolver gave a usable answer")
	// ErrUnresolvable is an ErrResolvers about a name, by resolvers that work for others.
	// For a tool whose target that name is, it is the silence of the target.
	ErrUnresolvable = fmt.Errorf("%w about this name", ErrResolvers)
	// ErrNoRoute: this machine has no route to any address family of the target.
	ErrNoRoute = errors.New("guard: no route to the target's address family")
)

// Dialer is the Connector of production: it resolves a name once, refuses it
// when any of its addresses is not public, and connects to the literal
// addresses that it checked. It is safe for concurrent use.
type Dialer struct {
	Resolver Resolver
	// Connect opens a "tcp" connection to a literal ip:port. It is for tests whose
	// peers are on loopback, and must make the last check, that of the socket's address,
	// itself. Default: a net.Dialer with that check.
	Connect func(ctx context.Context, network, address string) (net.Conn, error)
	// HasRoute reports whether this machine has a route to an address.
	// Default: the kernel looks the route up, and nothing is sent.
	HasRoute func(ctx context.Context, a netip.Addr) bool
}

var _ Connector = (*Dialer)(nil)

// Resolve implements Connector. It takes at most half of the time that ctx leaves.
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

// Dial implements Connector. IPv4 comes first and then the families take turns, a family
// without a route is left out, and at most sixteen addresses are tried, as race does it. All
// together take at most three quarters of the time that ctx leaves. When ctx itself ends, the
// error wraps its error and is not a fault.
func (d *Dialer) Dial(ctx context.Context, t Target, port uint16) (net.Conn, netip.Addr, error) {
	none := netip.Addr{}
	if err := checkAddrs(t.Addrs...); err != nil {
		return nil, none, err
	}
	addrs, unrouted := d.reachable(ctx, t.Addrs)
	if len(addrs) == 0 {
		return nil, none, lookup.Faultf(lookup.ConnectFailed, ErrNoRoute,
			"The TCP connection to the host failed: this service has no route to %s, and the host has no other address.", strings.Join(unrouted, " or "))
	}
	connect := d.Connect
	if connect == nil {
		connect = connectChecked
	}
	all, cancel := withShare(ctx, dialShare)
	defer cancel()
	conn, peer, failed := race(all, addrs, func(ctx context.Context, a netip.Addr) (net.Conn, error) {
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

// connectFailed is the fault of a host none of whose addresses took a connection.
func connectFailed(failed []failure, unrouted []string) error {
	var causes []error
	var ways []string
	for _, f := range failed {
		causes = append(causes, fmt.Errorf("connect to %s: %w", f.addr, f.err))
		if way := wayOf(f.err, f.addr); !slices.Contains(ways, way) {
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

// reachable returns the addresses to try, each once, in the order in which they are tried, and
// the names of the families that are left out because there is no route to them.
func (d *Dialer) reachable(ctx context.Context, addrs []netip.Addr) (try []netip.Addr, unrouted []string) {
	routed := d.HasRoute
	if routed == nil {
		routed = hasRoute
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
		// One look answers for the family: what is public has one route or none.
		case routed(ctx, family[0]):
			families[name] = family
		default:
			unrouted = append(unrouted, name)
		}
	}
	try = inTurn(families[ipv4], families[ipv6])
	return try[:min(len(try), maxAddrs)], unrouted
}

// Address families, as messages have them.
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

// withShare returns ctx with a share of the time that it leaves.
func withShare(ctx context.Context, share float64) (context.Context, context.CancelFunc) {
	remaining := defaultTimeout
	if end, ok := ctx.Deadline(); ok {
		remaining = time.Until(end)
	}
	return context.WithTimeout(ctx, time.Duration(float64(remaining)*share))
}

// wayOf says in words how an address failed.
func wayOf(err error, a netip.Addr) string {
	timed, ok := errors.AsType[net.Error](err)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused"
	case ok && timed.Timeout():
		return "timed out"
	case errors.Is(err, syscall.EADDRNOTAVAIL), errors.Is(err, syscall.EAFNOSUPPORT):
		return "this service has no address of " + familyOf(a)
	case isNoRoute(err):
		return "unreachable over " + familyOf(a)
	}
	return "no connection"
}

// connectChecked is Connect by default. Connections live for seconds, so keep-alive probes
// are never sent.
func connectChecked(ctx context.Context, network, address string) (net.Conn, error) {
	return (&net.Dialer{Control: checkSocket, KeepAlive: -1}).DialContext(ctx, network, address)
}

// hasRoute connects a UDP socket: the kernel looks the route up and picks an address of this
// machine, and sends nothing. Any failure but a missing route, address or family (of a machine
// without a free file descriptor, for instance) says nothing about routes.
func hasRoute(ctx context.Context, a netip.Addr) bool {
	// It does not wait for anybody, and the end of a lookup is not a missing route.
	conn, err := new(net.Dialer).DialContext(context.WithoutCancel(ctx), "udp", netip.AddrPortFrom(a, 443).String())
	if err != nil {
		return !isNoRoute(err)
	}
	conn.Close()
	return true
}

// isNoRoute recognises the errors of the kernel for an address that nothing can be sent to.
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

// public knows every special-purpose range of the IANA registries, multicast
// and, for IPv6, everything outside 2000::/3. The Dialer decides about ports and
// networks. It is never changed.
var public = ssrf.New(
	ssrf.WithAnyPort(), ssrf.WithAnyNetwork(),
	// Azure's WireServer answers metadata at an address that is in no registry.
	ssrf.WithDeniedV4Prefixes(netip.MustParsePrefix("168.63.129.16/32")),
)

// checkAddrs returns nil for addresses that are public unicast and blocked_address where
// one is not, which all forms of IPv6 that carry an IPv4 address (mapped, compatible,
// translated, 6to4, Teredo) are not, nor any with a zone.
//
// The message names the address: it is in the public DNS, and without it nobody
// could tell a sinkhole from a mistake in the zone.
func checkAddrs(addrs ...netip.Addr) error {
	for _, a := range addrs {
		if !a.IsValid() { // which the library takes for public
			return lookup.Fault(lookup.BlockedAddress, nil)
		}
		if err := public.SafeAddr(a); err != nil {
			return lookup.Faultf(lookup.BlockedAddress, err, "The domain resolves to %s, which is not a public address.", a.WithZone(""))
		}
	}
	return nil
}

// checkSocket is the last look, at the address that the socket is about to
// connect to (net.Dialer.Control).
func checkSocket(network, address string, _ syscall.RawConn) error {
	a, err := netip.ParseAddrPort(address)
	if err != nil || network != "tcp4" && network != "tcp6" {
		return lookup.Fault(lookup.BlockedAddress, fmt.Errorf("socket %s to %s", network, address))
	}
	return checkAddrs(a.Addr())
}
