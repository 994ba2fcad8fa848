package dns

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	miekg "github.com/miekg/dns"

	"github.com/hostfacts/hostfacts/pkg/guard"
	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// grace is how long the IPv6 addresses have when the IPv4 addresses are there
// (RFC 8305 §3 gives the other family the same).
const grace = 50 * time.Millisecond

var _ guard.Resolver = (*Client)(nil)

// Addresses returns every IPv4 and IPv6 address of a name, IPv4 first, as the
// resolvers give them: private ones too, and IPv4-mapped ones as IPv6. Both
// families are always asked for, side by side. IPv6 that fails, or that is not
// there 50 ms after IPv4, does not hold up a name with IPv4.
//
// Its errors are nxdomain; connect_failed for a name without an address and
// for one that the resolvers answer SERVFAIL or YXDOMAIN for; internal_error
// after a panic; and else wrap guard.ErrResolvers. It keeps the promises of
// Lookup about deadlines and goroutines.
func (c *Client) Addresses(ctx context.Context, name string) ([]netip.Addr, error) {
	if _, ok := miekg.IsDomainName(name); !ok {
		return nil, lookup.Fault(lookup.InvalidDomain, nil)
	}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	ask := func(qtype uint16) <-chan family {
		out := make(chan family, 1)
		running.Go(func() { out <- c.family(ctx, name, qtype) })
		return out
	}
	four, six := ask(miekg.TypeA), ask(miekg.TypeAAAA)
	v4 := <-four
	switch v4.state { //nolint:exhaustive // the rest waits for IPv6
	case found:
		over := time.AfterFunc(grace, cancel)
		defer over.Stop()
	case missing, crashing: // the name, not only its IPv4 addresses, does not exist
		cancel()
	}
	v6 := <-six
	switch {
	case v4.state == crashing:
		return nil, v4.err
	case v6.state == crashing:
		return nil, v6.err
	case v4.state == missing:
		return nil, v4.err
	case v4.state == found, v6.state == found:
		return append(v4.addrs, v6.addrs...), nil
	}
	return nil, unresolved(v4, v6)
}

// state is what the resolvers say about one family of a name.
type state int

const (
	unanswered state = iota // no resolver answered
	found                   // addresses
	empty                   // the name exists and has none
	missing                 // NXDOMAIN, or YXDOMAIN
	broken                  // SERVFAIL
	crashing                // a panic, a bug of ours
)

type family struct {
	state state
	addrs []netip.Addr
	err   error // of missing, crashing and unanswered
}

// family asks for one family. It runs in a goroutine of its own, where a panic
// would end the process.
func (c *Client) family(ctx context.Context, name string, qtype uint16) (f family) {
	defer func() {
		if p := recover(); p != nil {
			f = family{state: crashing, err: fault.New(fault.InternalError, newBug(p))}
		}
	}()
	r, err := c.exchange(ctx, name, qtype)
	switch {
	case err != nil && fault.From(err).Code == fault.InternalError:
		return family{state: crashing, err: err}
	case err != nil:
		return family{state: unanswered, err: err}
	case r.msg.Rcode == miekg.RcodeNameError:
		_, err := r.result(Query{Domain: name}, qtype)
		return family{state: missing, err: err}
	case r.msg.Rcode == miekg.RcodeYXDomain:
		return family{state: missing, err: lookup.Faultf(lookup.ConnectFailed, nil,
			"The domain has no address to connect to: the resolvers answer YXDOMAIN for it, a DNAME leads to a name that is too long.")}
	case r.msg.Rcode != miekg.RcodeSuccess:
		return family{state: broken}
	}
	if addrs := addresses(r.msg.Answer, name, qtype); len(addrs) > 0 {
		return family{state: found, addrs: addrs}
	}
	return family{state: empty}
}

// unresolved weighs two families without an address. What a resolver said
// about the name counts more than silence, except that a family nobody spoke
// of may have addresses when the other has none.
func unresolved(v4, v6 family) error {
	switch {
	case v6.state == missing && v4.state != empty:
		return v6.err
	case v4.state == broken || v6.state == broken:
		return lookup.Faultf(lookup.ConnectFailed, nil,
			"The domain has no address to connect to: the resolvers answer SERVFAIL for it.")
	case v4.state == unanswered || v6.state == unanswered:
		// %v: the codes inside are those of the dns tool, not of the tool that
		// wants to connect.
		return fmt.Errorf("%w: %v", guard.ErrResolvers, errors.Join(v4.err, v6.err)) //nolint:errorlint // the codes of the dns tool must not become another tool's
	}
	// A name that exists without IPv4 exists, so NXDOMAIN for IPv6 is an old
	// server's mistake (RFC 4074 §4.2) and means none.
	return lookup.Faultf(lookup.ConnectFailed, nil,
		"The domain has no address to connect to: it exists without A and AAAA records.")
}

// addresses are those that name leads to, without a bound: each must be
// checked, and a message of 64 KiB holds some 4,000.
func addresses(answer []miekg.RR, name string, qtype uint16) []netip.Addr {
	owners, _ := chain(answer, name, qtype)
	var out []netip.Addr
	for _, rr := range answer {
		if !answers(rr, owners, qtype) {
			continue
		}
		switch r := rr.(type) {
		case *miekg.A:
			if a, ok := netip.AddrFromSlice(r.A.To4()); ok {
				out = append(out, a)
			}
		case *miekg.AAAA:
			// Mapped addresses stay mapped, so that the guard sees them.
			if a, ok := netip.AddrFromSlice(r.AAAA); ok && a.Is6() {
				out = append(out, a)
			}
		}
	}
	return out
}
