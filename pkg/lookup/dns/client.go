// Package dns looks up the A, AAAA, MX, TXT, CNAME, NS or SOA records of a public name, live,
// from public recursive resolvers. It trusts neither the names nor the resolvers. The other
// lookups use a Client as their guard.Resolver. The service sells the lookups of this package
// as the DNS Explorer (spec §2.1, §4.2).
//
// A Client uses a reply only if its address, ID and letter case match the question. It returns
// only records of the queried name or of the names to which its aliases lead. It does not
// validate DNSSEC, keeps no cache, and returns private addresses unchanged.
//
// The resolvers are queried in a staggered race. The first reply that says something about the
// name wins:
//
//	NOERROR                      the records, or an empty list
//	NXDOMAIN                     nxdomain; without proof only if a second resolver agrees
//	YXDOMAIN                     the rcode of the result (RFC 6672 §2.2)
//	SERVFAIL                     the next resolver is queried; SERVFAIL is the rcode of
//	                             the result if no other resolver knows more
//	REFUSED, NOTIMP, FORMERR …,  the next resolver is queried, because these say
//	a referral, any rcode in a   something about the resolver and nothing
//	reply without the question,  about the name
//	no route, no connection
//	silence                      the next resolver is queried as well
//
// To find out whether a resolver works, a Client asks it for the name servers of com. A
// resolver that has answered this question within the last minute counts as working.
//
// NXDOMAIN is proven by the SOA record of a zone above the name, unless that zone is the root.
// An NXDOMAIN without proof counts only if its resolver works. So the denials of a network
// that denies every name are ignored, and the error is upstream_unavailable if no resolver
// knows more. One kind of network cannot be detected: it denies names to every resolver, but
// answers the question about com or forges proofs.
//
// A resolver is late if another resolver, which was queried later, answers before it. For half
// a minute, a Client queries a late resolver after all others. So a dead resolver does not delay
// every question.
//
// If no resolver says anything about the name, but one sent SERVFAIL, the result is SERVFAIL.
// Otherwise the error is dns_timeout if a resolver did not reply, and upstream_unavailable if
// all failed in another way. These two errors are marked as the silence of the target
// (fault.Error.Silence) if two of the queried resolvers work, or the only one that is
// configured. In that case the payer may own the name and make it fail on purpose. A panic in
// any goroutine of a lookup becomes internal_error.
//
// The Client of github.com/miekg/dns is not used. It stops at the first malformed datagram,
// outlives its context, and does not compare the question in a reply with the question it
// sent.
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

// Config configures a Client.
type Config struct {
	// Resolvers are recursive resolvers as ip:port, in the order in which they are queried.
	// They must repeat the letter case of a question in the reply, as all common resolvers do.
	// If none of them does, every lookup and Probe ends in dns_timeout.
	Resolvers []string
	// Dial opens "udp" and "tcp" connections to resolvers. It must return when its context
	// ends. Default: a plain net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Now is the clock for what a Client remembers about its resolvers. Default: time.Now.
	Now func() time.Time
}

// Client queries resolvers. It is safe for concurrent use and leaves nothing running between
// calls. It remembers for a minute which resolvers have answered a question about com, and for
// half a minute which resolvers were slower than a resolver that was queried later.
type Client struct {
	resolvers     []netip.AddrPort
	dial          func(ctx context.Context, network, address string) (net.Conn, error)
	workingSet    *workingSet
	lateResolvers *lateResolvers
}

// New returns a Client that uses cfg. It panics if cfg.Resolvers is empty or not in the form
// that ParseResolvers returns.
func New(cfg Config) *Client {
	if len(cfg.Resolvers) == 0 {
		panic("dns: no resolvers")
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	c := &Client{
		dial:          cfg.Dial,
		workingSet:    newWorkingSet(cfg.Now),
		lateResolvers: newLateResolvers(cfg.Now),
	}
	if c.dial == nil {
		c.dial = new(net.Dialer).DialContext
	}
	for _, r := range cfg.Resolvers {
		c.resolvers = append(c.resolvers, netip.MustParseAddrPort(r))
	}
	return c
}

// Lookup answers a query. Its errors are nxdomain, dns_timeout and upstream_unavailable; the
// last two may be marked as silence. The error is internal_error after a panic, or if q.Type
// is not supported. Lookup returns before the deadline of ctx, or at once when ctx is
// cancelled, and leaves no goroutine or socket behind.
func (c *Client) Lookup(ctx context.Context, q Query) (result Result, err error) {
	defer catch(&err)
	qtype := miekg.StringToType[q.Type]
	if _, ok := readers()[qtype]; !ok { // without a reader, no record would get into the result
		return Result{}, fault.New(fault.InternalError, fmt.Errorf("readers in pkg/lookup/dns/record.go has no row for the type %q", q.Type))
	}
	r, err := c.resolve(ctx, q.Domain, qtype)
	if err != nil {
		return Result{}, err
	}
	return r.result(q)
}

// Probe checks that lookups work, by looking up the name servers of com. If a resolver denies
// com or its name servers, it denies other names as well. Probe returns the same errors as
// Lookup, except nxdomain.
func (c *Client) Probe(ctx context.Context) error {
	r, err := c.Lookup(ctx, Query{Domain: "com", Type: "NS"})
	var cause *failure
	switch {
	case err == nil && len(r.Records) == 0:
		cause = replyFailure(r.Resolver, "answered "+r.Rcode+" and named no servers of com, which has some")
	case err != nil && fault.From(err).Code == lookup.NXDomain:
		cause = &failure{hasReply: true, text: "a resolver answered that com does not exist, which it does"}
	default:
		return err
	}
	return lookup.Fault(lookup.UpstreamUnavailable, &failures{list: []*failure{cause}})
}

// ipv6Patience is how long the lookup of IPv6 addresses may go on after the IPv4 addresses have
// arrived. RFC 8305 §3 recommends this delay.
const ipv6Patience = 50 * time.Millisecond

var _ guard.Resolver = (*Client)(nil)

// Addresses implements guard.Resolver. It returns IPv4 addresses first. It includes private
// addresses, and returns IPv4-mapped addresses as IPv6. It looks up both families at the same
// time. If the name has IPv4 addresses, Addresses waits at most 50 ms longer for the IPv6
// addresses and ignores a failure of the IPv6 lookup. If the resolvers answer SERVFAIL or
// YXDOMAIN, the error is connect_failed. A panic becomes internal_error. Like Lookup,
// Addresses returns before the deadline of ctx, or at once when ctx is cancelled, and leaves
// no goroutine or socket behind.
func (c *Client) Addresses(ctx context.Context, name string) (addrs []netip.Addr, err error) {
	defer catch(&err)
	g := newCrew(ctx)
	defer g.end()
	lookUp := func(qtype uint16) <-chan familyResult {
		out := make(chan familyResult, 1)
		g.start(func() {
			defer close(out)
			out <- c.lookUpFamily(g, name, qtype)
		})
		return out
	}
	v4Result := lookUp(miekg.TypeA)
	v6Result := lookUp(miekg.TypeAAAA)
	v4 := <-v4Result
	if len(v4.addrs) > 0 {
		timer := time.AfterFunc(ipv6Patience, g.cancel)
		defer timer.Stop()
	}
	v6 := <-v6Result
	if addrs := append(v4.addrs, v6.addrs...); len(addrs) > 0 {
		return addrs, nil
	}
	return nil, noAddressError(v4, v6)
}

// familyResult is the result of looking up the IPv4 or the IPv6 addresses of a name. The error
// err is a *fault.Error if the problem is the name itself. If err is nil, the name exists.
type familyResult struct {
	addrs    []netip.Addr
	err      error
	isDenied bool // the resolvers say that the name does not exist (NXDOMAIN) or cannot exist (YXDOMAIN)
}

// lookUpFamily looks up the addresses of one family. It returns all of them, because the
// caller must check every address.
func (c *Client) lookUpFamily(ctx context.Context, name string, qtype uint16) familyResult {
	r, err := c.resolve(ctx, name, qtype)
	if err != nil {
		kind := guard.ErrResolvers
		if fault.From(err).IsSilence() {
			kind = guard.ErrUnresolvable
		}
		return familyResult{err: fmt.Errorf("%w: %v", kind, err)} //nolint:errorlint // not %w: the codes of the dns tool must not become another tool's
	}
	var f familyResult
	switch r.msg.Rcode {
	case miekg.RcodeNameError:
		_, f.err = r.result(Query{})
		f.isDenied = true
	case miekg.RcodeYXDomain:
		f.err = guard.NoAddress("the resolvers answer YXDOMAIN for it, a DNAME leads to a name that is too long")
		f.isDenied = true
	case miekg.RcodeServerFailure:
		f.err = guard.NoAddress("the resolvers answer SERVFAIL for it")
	default:
		for _, rr := range r.records {
			if a, ok := convertRecord(rr).(Address); ok {
				f.addrs = append(f.addrs, netip.MustParseAddr(a.Address))
			}
		}
	}
	return f
}

// noAddressError returns the error for a name without an address in either family. A denial of
// the name counts most, then any other reply with an error, then a lookup without a usable
// reply. A reply without addresses counts least, because the other family may have addresses.
// If the servers deny the name for one family although it exists for the other, the denial
// does not count: old servers make this mistake (RFC 4074 §4.2).
func noAddressError(v4, v6 familyResult) error {
	none := guard.NoAddress("it exists without A and AAAA records")
	isFault := func(err error) bool {
		_, ok := errors.AsType[*fault.Error](err)
		return ok
	}
	switch {
	case v6.isDenied && v4.err == nil, v4.isDenied && v6.err == nil:
		return none
	case v4.isDenied:
		return v4.err
	case v6.isDenied, isFault(v6.err) && !isFault(v4.err):
		return v6.err
	case v4.err != nil:
		return v4.err
	case v6.err != nil:
		return v6.err
	}
	return none
}

// ParseResolvers parses a comma-separated list of resolvers. Each is ip or ip:port, and an
// IPv6 address may be in brackets. ParseResolvers returns each as ip:port, with the default
// port 53. The error is for the operator: it names every wrong entry in one line.
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

// parseResolver parses an entry of the form ip or ip:port. It returns false if the entry
// cannot be the address of a host.
func parseResolver(entry string) (resolver netip.AddrPort, ok bool) {
	const port = 53
	resolver, err := netip.ParseAddrPort(entry)
	if err != nil {
		resolver, err = netip.ParseAddrPort(fmt.Sprintf("%s:%d", entry, port)) // an IPv6 address in brackets, without a port
	}
	if addr, addrErr := netip.ParseAddr(entry); addrErr == nil {
		resolver = netip.AddrPortFrom(addr, port)
		err = nil
	}
	if err != nil {
		return netip.AddrPort{}, false
	}
	addr := resolver.Addr().Unmap()
	isHostAddress := !addr.IsUnspecified() && !addr.IsMulticast()
	return netip.AddrPortFrom(addr, resolver.Port()), isHostAddress && resolver.Port() != 0
}

// crew is a context together with the goroutines that work under it. A panic in one of these
// goroutines cancels the context. The method end waits for all of them, and panics as well if
// one of them has panicked.
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

// end cancels the context and waits for the goroutines under it. If one of them panicked, end
// panics as well.
func (c *crew) end() {
	c.cancel()
	c.running.Wait()
	if b := c.bug.Load(); b != nil {
		panic(b)
	}
}

// bug is a recovered panic with the stack of its goroutine. The whole stack is logged.
type bug struct{ value, stack string }

// newBug returns the bug for the recovered value p. It must be called in a deferred function,
// where the stack of the panic still exists. If p is already a bug, newBug returns it
// unchanged.
func newBug(p any) *bug {
	if b, ok := p.(*bug); ok {
		return b
	}
	return &bug{fmt.Sprint(p), string(debug.Stack())}
}

func (b *bug) Error() string { return "DNS lookup panicked: " + b.value }

func (b *bug) Stack() string { return b.stack }

// catch turns a panic into internal_error. Every exported method defers it.
func catch(err *error) {
	if p := recover(); p != nil {
		*err = fault.New(fault.InternalError, newBug(p))
	}
}

// resultOfFailures returns the result of a lookup in which no resolver answered. If a resolver
// sent SERVFAIL, its reply is the result, because the other attempts say nothing about the
// name. But if the caller has given up, there is no reply and the error is dns_timeout.
func resultOfFailures(ctx context.Context, servfail *reply, timedOut bool, causes ...*failure) (*reply, error) {
	gaveUp := errors.Is(ctx.Err(), context.Canceled)
	if servfail != nil && !gaveUp {
		return servfail, nil
	}
	code := lookup.UpstreamUnavailable
	if timedOut || gaveUp {
		code = lookup.DNSTimeout
	}
	return nil, lookup.Faultf(code, &failures{list: causes, ctxErr: ctx.Err()}, guard.Unresolved)
}

// withBudget returns a context that ends before ctx does. The time between the two ends is for
// returning the result.
func withBudget(ctx context.Context) (context.Context, context.CancelFunc) {
	end, ok := ctx.Deadline()
	if !ok {
		return context.WithTimeout(ctx, defaultTimeout)
	}
	remaining := time.Until(end)
	return context.WithTimeout(ctx, remaining-min(deadlineMargin, remaining/10))
}

// withNameBudget returns a context for the question about the name. This context ends before
// parent does. The time between the two ends is for checking whether the resolvers work.
func withNameBudget(parent context.Context) (context.Context, context.CancelFunc) {
	end, _ := parent.Deadline()
	remaining := time.Until(end)
	return context.WithTimeout(parent, remaining-min(checkTime, remaining/8))
}
