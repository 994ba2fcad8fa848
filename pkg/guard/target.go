package guard

import (
	"context"
	"errors"
	"net"
	"net/netip"
)

// Target is a name whose addresses were resolved once and were all found to be
// public. Nothing is connected to but a Target's addresses.
type Target struct {
	Name  string // as Domain returns it
	Addrs []netip.Addr
}

// Connector finds and reaches public hosts, and no others. *Dialer is one;
// tests of lookups have their own.
type Connector interface {
	// Resolve asks for every A and AAAA address of a name and checks all of
	// them. Its errors are faults (nxdomain, blocked_address, connect_failed
	// for a name without addresses) or wrap ErrResolvers.
	Resolve(ctx context.Context, name string) (Target, error)

	// Dial connects to the target's addresses in turn and returns the
	// connection with the peer that it reached. Each address has its share of
	// the time that ctx leaves. Its errors are faults (connect_failed,
	// blocked_address) or wrap ErrNoRoute.
	Dial(ctx context.Context, t Target, port uint16) (net.Conn, netip.Addr, error)
}

// Errors that say nothing about the target: a tool answers its own time-out
// code for them, and the answer stays owed.
var (
	// ErrResolvers: our resolvers are down or silent.
	ErrResolvers = errors.New("guard: the resolvers do not answer")
	// ErrNoRoute: the target has IPv6 addresses only and this deployment has
	// no IPv6 route.
	ErrNoRoute = errors.New("guard: no route to the target's address family")
)
