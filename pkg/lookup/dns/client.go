// Package dns looks up the A, AAAA, MX, TXT, CNAME, NS or SOA records of a public name, live,
// from public recursive resolvers. It trusts neither the names nor the resolvers. A Client is
// also the guard.Resolver of the other lookups. (It is the DNS Explorer of the service: spec
// §2.1, §4.2.)
//
// It uses a reply only if its address, ID and letter case match the question, and returns only
// records that can be reached from the name asked about. It does not validate DNSSEC, keeps no
// cache, and returns private addresses as they are.
//
// Several resolvers are queried in a staggered race; the first that says
// something about the name wins:
//
//	NOERROR                      the records, none if there are none
//	NXDOMAIN                     nxdomain; without proof, if a second one says the same
//	YXDOMAIN                     the rcode of the result (RFC 6672 §2.2)
//	SERVFAIL                     the next resolver; the rcode of the result if no other knows better
//	REFUSED, NOTIMP, FORMERR …,  the next resolver: they speak of the resolver,
//	a referral, any rcode in a   not of the name
//	reply without the question,
//	refused, no route
//	silence                      the next resolver, while this one is waited for
//
// NXDOMAIN is proven by the SOA record of a zone above the name, but not of the root. Without
// proof it counts only from resolvers that have answered for com within the last minute: a
// network that denies every name is ignored, and the result is upstream_unavailable if no
// resolver knows better. A network that answers for com, or forges a proof, and denies other
// names to every resolver cannot be detected.
//
// If a resolver that was asked later answers first, the one that has not replied is asked last
// for the next half minute, so that only one question waits for a dead resolver.
//
// When no resolver answers: SERVFAIL if there was one, else dns_timeout if one did not reply,
// else upstream_unavailable. The last two are marked as the silence of the target
// (fault.Error.Silence) if two of the resolvers that were asked, or all if fewer are configured,
// have answered for com within the last minute: then the resolvers work, and the payer may own
// the name and make it fail on purpose. A panic anywhere is internal_error.
//
// The Client of github.com/miekg/dns is not used: it stops at the first malformed datagram,
// outlives its context, and does not compare the question of a reply with its own.
package dns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	miekg "github.com/miekg/dns"

	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/lookup/guard"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// Config is what a Client needs.
type Config struct {
	// Resolvers are recursive resolvers as ip:port, in the order in which they are queried.
	// They must echo the letter case of a question, as all common ones do; for one that
	// does not, every lookup and Probe is dns_timeout.
	Resolvers []string
	// Dial opens "udp" and "tcp" connections to resolvers. It must heed its
	// context. Default: a plain net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Now is the clock by which a Client remembers which resolvers work, and which are late.
	// Default time.Now.
	Now func() time.Time
}

// Client queries resolvers. It is safe for concurrent use, and runs nothing between calls. It
// remembers for a minute which resolvers have answered for com, and for half a minute which
// had not replied when another answered.
type Client struct {
	resolvers []netip.AddrPort
	dial      func(ctx context.Context, network, address string) (net.Conn, error)
	working   *working
	late      *late
}

// New returns a Client. It panics unless ParseResolvers could have made the resolvers.
func New(cfg Config) *Client {
	if len(cfg.Resolvers) == 0 {
		panic("dns: no resolvers")
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	c := &Client{
		dial:    cfg.Dial,
		working: newWorking(cfg.Now),
		late:    newLate(cfg.Now),
	}
	if c.dial == nil {
		c.dial = new(net.Dialer).DialContext
	}
	for _, r := range cfg.Resolvers {
		c.resolvers = append(c.resolvers, netip.MustParseAddrPort(r))
	}
	return c
}

// Lookup answers a query. Its errors are nxdomain, dns_timeout and upstream_unavailable, which
// may be marked as silence, and, after a panic or for a type that it does not read, internal_error.
// It ends before the deadline of ctx, at once when ctx is cancelled, and leaves no goroutine or
// socket behind.
func (c *Client) Lookup(ctx context.Context, q Query) (result Result, err error) {
	defer catch(&err)
	qtype := miekg.StringToType[q.Type]
	if _, ok := readers()[qtype]; !ok { // its records would all be left out
		return Result{}, fault.New(fault.InternalError, fmt.Errorf("readers in pkg/lookup/dns/record.go has no row for the type %q", q.Type))
	}
	r, err := c.resolve(ctx, q.Domain, qtype)
	if err != nil {
		return Result{}, err
	}
	return r.result(q)
}

// Probe reports whether lookups work, by a lookup of the name servers of com. A resolver that
// denies com, or its name servers, denies other names as well. Its errors are those of Lookup
// but nxdomain.
func (c *Client) Probe(ctx context.Context) error {
	r, err := c.Lookup(ctx, Query{Domain: "com", Type: "NS"})
	unknown := err == nil && len(r.Records) == 0
	denied := err != nil && fault.From(err).Code == lookup.NXDomain
	if unknown || denied {
		return lookup.Fault(lookup.UpstreamUnavailable, errors.New("the resolver knows no name servers of com"))
	}
	return err
}

// grace is how long the IPv6 addresses have when the IPv4 addresses are there
// (RFC 8305 §3 gives the other family the same).
const grace = 50 * time.Millisecond

var _ guard.Resolver = (*Client)(nil)

// Addresses implements guard.Resolver: IPv4 first, private addresses as well, and IPv4-mapped
// ones as IPv6. Both families are always looked up, side by side. IPv6 that fails, or that
// is not there 50 ms after IPv4, does not hold up a name with IPv4. A name that the
// resolvers answer SERVFAIL or YXDOMAIN for is connect_failed, a panic internal_error. It
// keeps the promises of Lookup about deadlines and goroutines.
func (c *Client) Addresses(ctx context.Context, name string) (addrs []netip.Addr, err error) {
	defer catch(&err)
	g := newCrew(ctx)
	defer g.end()
	lookUp := func(qtype uint16) <-chan family {
		out := make(chan family, 1)
		g.start(func() {
			defer close(out)
			out <- c.family(g, name, qtype)
		})
		return out
	}
	four := lookUp(miekg.TypeA)
	six := lookUp(miekg.TypeAAAA)
	v4 := <-four
	if len(v4.addrs) > 0 {
		over := time.AfterFunc(grace, g.cancel)
		defer over.Stop()
	}
	v6 := <-six
	if addrs := append(v4.addrs, v6.addrs...); len(addrs) > 0 {
		return addrs, nil
	}
	return nil, unresolved(v4, v6)
}

// family is what the resolvers say about one family of addresses of a name. The error is a
// fault if it is about the name itself; without one, the name exists.
type family struct {
	addrs  []netip.Addr
	err    error
	denied bool // the name, not only its addresses, does not exist
}

// family looks up the addresses of one family, without a bound: each must be checked.
func (c *Client) family(ctx context.Context, name string, qtype uint16) family {
	r, err := c.resolve(ctx, name, qtype)
	if err != nil {
		kind := guard.ErrResolvers
		if fault.From(err).IsSilence() {
			kind = guard.ErrUnresolvable
		}
		return family{err: fmt.Errorf("%w: %v", kind, err)} //nolint:errorlint // the codes of the dns tool must not become another tool's
	}
	var f family
	switch r.msg.Rcode {
	case miekg.RcodeNameError:
		_, f.err = r.result(Query{})
		f.denied = true
	case miekg.RcodeYXDomain:
		f.err = guard.NoAddress("the resolvers answer YXDOMAIN for it, a DNAME leads to a name that is too long")
		f.denied = true
	case miekg.RcodeServerFailure:
		f.err = guard.NoAddress("the resolvers answer SERVFAIL for it")
	default:
		for _, rr := range r.found {
			if a, ok := record(rr).(Address); ok {
				f.addrs = append(f.addrs, netip.MustParseAddr(a.Address))
			}
		}
	}
	return f
}

// unresolved weighs two families without an address. What a resolver said about the name
// counts more than silence, except that a family that nobody spoke of may have addresses
// when the other has none. NXDOMAIN for one family of a name that has the other is an old
// server's mistake (RFC 4074 §4.2).
func unresolved(v4, v6 family) error {
	none := guard.NoAddress("it exists without A and AAAA records")
	isFault := func(err error) bool {
		_, ok := errors.AsType[*fault.Error](err)
		return ok
	}
	switch {
	case v6.denied && v4.err == nil, v4.denied && v6.err == nil:
		return none
	case v4.denied:
		return v4.err
	case v6.denied, isFault(v6.err) && !isFault(v4.err):
		return v6.err
	case v4.err != nil:
		return v4.err
	case v6.err != nil:
		return v6.err
	}
	return none
}

// ParseResolvers parses a comma-separated list of ip or ip:port, IPv6 bare or in brackets, and
// returns each as ip:port, with port 53 if it has none. Its error, for the operator, names
// every entry that is wrong, in one line.
func ParseResolvers(csv string) ([]string, error) {
	var resolvers, faults []string
	for i, entry := range strings.Split(csv, ",") {
		entry = strings.TrimSpace(entry)
		r, ok := parseResolver(entry)
		switch {
		case !ok:
			faults = append(faults, fmt.Sprintf("entry %d: %q is not the ip or ip:port of a host", i+1, entry))
		case slices.Contains(resolvers, r.String()):
			faults = append(faults, fmt.Sprintf("entry %d: %s is listed twice", i+1, r))
		}
		resolvers = append(resolvers, r.String())
	}
	if faults != nil {
		return nil, fmt.Errorf("DNS resolvers: %s", strings.Join(faults, "; "))
	}
	return resolvers, nil
}

// parseResolver parses one ip or ip:port, which is not ok where it cannot be that of a host.
func parseResolver(entry string) (resolver netip.AddrPort, ok bool) {
	const port = 53
	resolver, err := netip.ParseAddrPort(entry)
	if err != nil {
		resolver, err = netip.ParseAddrPort(fmt.Sprintf("%s:%d", entry, port)) // [ip]
	}
	if addr, notBare := netip.ParseAddr(entry); notBare == nil {
		resolver = netip.AddrPortFrom(addr, port)
		err = nil
	}
	if err != nil {
		return netip.AddrPort{}, false
	}
	addr := resolver.Addr().Unmap()
	isHost := !addr.IsUnspecified() && !addr.IsMulticast()
	return netip.AddrPortFrom(addr, resolver.Port()), isHost && resolver.Port() != 0
}

// crew is a context and the goroutines that work under it. A panic in one of them ends
// the context and comes out of end, in the goroutine that waits for them.
type crew struct {
	context.Context

	cancel  context.CancelFunc
	running sync.WaitGroup
	bug     atomic.Pointer[bug] // the first panic
}

func newCrew(parent context.Context) *crew {
	ctx, cancel := context.WithCancel(parent)
	return &crew{Context: ctx, cancel: cancel}
}

func (c *crew) start(work func()) {
	c.running.Go(func() {
		defer func() {
			if p := recover(); p != nil {
				c.bug.CompareAndSwap(nil, newBug(p))
				c.cancel()
			}
		}()
		work()
	})
}

// end ends the context, waits for the goroutines under it, and panics if one of them did.
func (c *crew) end() {
	c.cancel()
	c.running.Wait()
	if b := c.bug.Load(); b != nil {
		panic(b)
	}
}

// bug is a panic that was recovered, and where it was. The stack is logged whole.
type bug struct{ value, stack string }

// newBug is for deferred functions, where the stack is still that of the panic.
// A bug that was thrown on stays itself.
func newBug(p any) *bug {
	if b, ok := p.(*bug); ok {
		return b
	}
	return &bug{fmt.Sprint(p), string(debug.Stack())}
}

func (b *bug) Error() string { return "DNS lookup panicked: " + b.value }

func (b *bug) Stack() string { return b.stack }

// catch is deferred by the exported methods: it turns a panic into internal_error.
func catch(err *error) {
	if p := recover(); p != nil {
		*err = fault.New(fault.InternalError, newBug(p))
	}
}

// unanswered weighs attempts none of which answered. A SERVFAIL counts whatever
// the others did, because their outcome says nothing about the name. When the caller
// gave up, no failure counts.
func unanswered(ctx context.Context, servfail *reply, timedOut bool, causes ...error) (*reply, error) {
	gaveUp := errors.Is(ctx.Err(), context.Canceled)
	if servfail != nil && !gaveUp {
		return servfail, nil
	}
	code := lookup.UpstreamUnavailable
	if timedOut || gaveUp {
		code = lookup.DNSTimeout
	}
	return nil, lookup.Faultf(code, errors.Join(append(causes, ctx.Err())...), guard.Unresolved)
}

// budget ends before ctx does, so that a result can still be returned in time.
func budget(ctx context.Context) (context.Context, context.CancelFunc) {
	end, ok := ctx.Deadline()
	if !ok {
		return context.WithTimeout(ctx, timeout)
	}
	remaining := time.Until(end)
	return context.WithTimeout(ctx, remaining-min(margin, remaining/10))
}

// nameBudget is the share of a budget for the question about the name. The rest is for the
// question whether the resolvers work.
func nameBudget(budget context.Context) (context.Context, context.CancelFunc) {
	end, _ := budget.Deadline()
	remaining := time.Until(end)
	return context.WithTimeout(budget, remaining-min(proofTime, remaining/8))
}
