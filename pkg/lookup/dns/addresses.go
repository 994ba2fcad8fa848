package dns

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
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
func (c *Client) Addresses(ctx context.Context, name string) (addrs []netip.Addr, err error) {
	defer catch(&err)
	if _, ok := miekg.IsDomainName(name); !ok {
		return nil, lookup.Fault(lookup.InvalidDomain, nil)
	}
	g := newCrew(ctx)
	defer g.end()
	ask := func(qtype uint16) <-chan family {
		out := make(chan family, 1)
		g.start(func() {
			defer close(out)
			out <- c.family(g, name, qtype)
		})
		return out
	}
	four, six := ask(miekg.TypeA), ask(miekg.TypeAAAA)
	v4 := <-four
	switch {
	case v4.denied:
		return nil, v4.err
	case len(v4.addrs) > 0:
		over := time.AfterFunc(grace, g.cancel)
		defer over.Stop()
	}
	v6 := <-six
	if addrs := append(v4.addrs, v6.addrs...); len(addrs) > 0 {
		return addrs, nil
	}
	return nil, unresolved(v4, v6)
}

// family is what the resolvers say about one family of a name. It has no addresses
// and no error when the name exists and has none. The error is a fault if a resolver
// said something about the name.
type family struct {
	addrs  []netip.Addr
	err    error
	denied bool // the name, not only its addresses, does not exist
}

// family asks for the addresses of one family, without a bound: each must be
// checked, and a message of 64 KiB holds some 4,000.
func (c *Client) family(ctx context.Context, name string, qtype uint16) (f family) {
	r, err := c.resolve(ctx, name, qtype)
	if err != nil {
		return family{err: fmt.Errorf("%w: %v", guard.ErrResolvers, err)} //nolint:errorlint // the codes of the dns tool must not become another tool's
	}
	switch r.msg.Rcode {
	case miekg.RcodeNameError:
		_, f.err = r.result(Query{})
		f.denied = true
	case miekg.RcodeYXDomain:
		f.err = noAddress("the resolvers answer YXDOMAIN for it, a DNAME leads to a name that is too long")
		f.denied = true
	case miekg.RcodeServerFailure:
		f.err = noAddress("the resolvers answer SERVFAIL for it")
	default:
		for _, rr := range r.found {
			if a, ok := record(rr).(Address); ok { // mapped addresses stay mapped, so that the guard sees them
				f.addrs = append(f.addrs, netip.MustParseAddr(a.Address))
			}
		}
	}
	return f
}

// unresolved weighs two families without an address. What a resolver said
// about the name counts more than silence, except that a family that nobody spoke
// of may have addresses when the other has none. A name that exists without
// IPv4 exists, so NXDOMAIN for IPv6 is an old server's mistake (RFC 4074 §4.2)
// and means none.
func unresolved(v4, v6 family) error {
	errs := []error{v4.err, v6.err}
	switch {
	case v6.denied && v4.err != nil:
		return v6.err
	case v6.denied:
		errs[1] = nil
	}
	if i := slices.IndexFunc(errs, func(err error) bool { return errors.As(err, new(*fault.Error)) }); i >= 0 {
		return errs[i]
	}
	return cmp.Or(errs[0], errs[1], noAddress("it exists without A and AAAA records"))
}

func noAddress(why string) error {
	return lookup.Faultf(lookup.ConnectFailed, nil, "The domain has no address to connect to: %s.", why)
}
