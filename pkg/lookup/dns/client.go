// Package dns is the DNS Explorer: live records of a public name, asked of a
// public recursive resolver (spec §2.1, §4.2).
//
// Every reply that it uses belongs to the question that was sent (transport address,
// ID, and the name in the letter case drawn for that question), and every record that it
// returns was reached from the name asked about. It does not validate DNSSEC, keeps no
// cache, and returns private addresses as they are, because it never connects to what
// it finds. The calls of one bundle can share their questions (Share).
//
// Several resolvers are asked in a staggered race; the first that says
// something about the name wins:
//
//	NOERROR                      the records, none if there are none
//	NXDOMAIN with an SOA         nxdomain
//	NXDOMAIN without one         the next resolver; nxdomain if a second says so
//	YXDOMAIN                     the rcode of the result (RFC 6672 §2.2)
//	SERVFAIL                     the next resolver; the rcode of the result if no other knows better
//	REFUSED, NOTIMP, FORMERR …,  the next resolver: they speak of the resolver,
//	a referral, any rcode in a   not of the name
//	reply without the question,
//	refused, no route
//	silence                      the next resolver, while this one is waited for
//
// One resolver is asked over UDP, and over TCP in the same budget when that does
// not bring a whole reply. No question opens more than two connections to a resolver.
//
// When no resolver answers: SERVFAIL if there was one, else dns_timeout if one
// did not reply, else upstream_unavailable. A panic anywhere is internal_error,
// whatever was answered.
//
// Messages are packed and parsed by github.com/miekg/dns, but its Client is not
// used: it stops at the first malformed datagram, does not end when its context is
// cancelled, and does not compare the question of a reply with its own.
package dns

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"time"

	miekg "github.com/miekg/dns"

	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

const (
	// hedgeDelay is how long the first resolver has before the second is asked
	// as well; the third has twice that after it, and so on. It is also how long
	// a reply may come behind a datagram that is not one before TCP is tried.
	hedgeDelay = 200 * time.Millisecond

	// timeout bounds a lookup whose context has no deadline.
	timeout = 8 * time.Second

	// margin is the time before the context's deadline at which the verdict is
	// reached, at most a tenth of what is left.
	margin = 50 * time.Millisecond
)

// Config is what a Client needs.
type Config struct {
	// Resolvers are recursive resolvers as ip:port, in the order in which they are asked.
	// They must echo the letter case of a question, as all common ones do; for one that
	// does not, every lookup and Probe is dns_timeout.
	Resolvers []string
	// Dial opens "udp" and "tcp" connections to resolvers. It must heed its
	// context. Default: a plain net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Client asks resolvers. It is safe for concurrent use, and runs nothing between calls.
type Client struct {
	resolvers []netip.AddrPort
	dial      func(ctx context.Context, network, address string) (net.Conn, error)
}

// New returns a Client. It panics without resolvers or when one is not an
// ip:port, which ParseResolvers rules out.
func New(cfg Config) *Client {
	if len(cfg.Resolvers) == 0 {
		panic("dns: no resolvers")
	}
	c := &Client{dial: cfg.Dial}
	if c.dial == nil {
		c.dial = new(net.Dialer).DialContext
	}
	for _, r := range cfg.Resolvers {
		c.resolvers = append(c.resolvers, netip.MustParseAddrPort(r))
	}
	return c
}

// Lookup answers a query. Its errors are nxdomain, dns_timeout and
// upstream_unavailable, internal_error after a panic, and invalid_domain or
// invalid_type for a query that ParseQuery did not make. It ends before the
// deadline of ctx, at once when ctx is cancelled, and leaves no goroutine or
// socket behind.
func (c *Client) Lookup(ctx context.Context, q Query) (result Result, err error) {
	defer catch(&err)
	t := qtype(q.Type)
	if t == miekg.TypeNone {
		return Result{}, lookup.Fault(lookup.InvalidType, nil)
	}
	if _, ok := miekg.IsDomainName(q.Domain); !ok {
		return Result{}, lookup.Fault(lookup.InvalidDomain, nil)
	}
	r, err := c.resolve(ctx, q.Domain, t)
	if err != nil {
		return Result{}, err
	}
	return r.result(q)
}

// Probe reports whether lookups work: it asks for the name servers of com as
// Lookup asks. A resolver that says of com that it does not exist, or has none, says
// so of other names, too. The error is dns_timeout or upstream_unavailable, and
// internal_error after a panic.
func (c *Client) Probe(ctx context.Context) error {
	r, err := c.Lookup(ctx, Query{Domain: "com", Type: "NS"})
	if err == nil && len(r.Records) == 0 || err != nil && fault.From(err).Code == lookup.NXDomain {
		return lookup.Fault(lookup.UpstreamUnavailable, errors.New("the resolver knows no name servers of com"))
	}
	return err
}
