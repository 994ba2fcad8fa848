package ssl

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/guard"
)

// minDial is the least time in which a host that does not answer a dial has
// been given its chance. With less, our own budget is to blame.
const minDial = time.Second

// Config is what a Client needs.
type Config struct {
	// Connector resolves and reaches hosts.
	Connector guard.Connector
	// Now is the time by which a certificate is judged. Default time.Now.
	Now func() time.Time
	// Timeout bounds a lookup whose context has no deadline. Default 8 s.
	Timeout time.Duration
	// Margin is the time before the context's deadline at which the verdict is
	// reached, at most a tenth of what is left. Default 50 ms.
	Margin time.Duration
}

// Client inspects hosts. It is safe for concurrent use, and nothing of it runs
// between calls.
type Client struct {
	connector       guard.Connector
	now             func() time.Time
	timeout, margin time.Duration
}

// New returns a Client. It panics without a Connector.
func New(cfg Config) *Client {
	if cfg.Connector == nil {
		panic("ssl: no connector")
	}
	c := &Client{connector: cfg.Connector, now: cfg.Now, timeout: cfg.Timeout, margin: cfg.Margin}
	if c.now == nil {
		c.now = time.Now
	}
	if c.timeout <= 0 {
		c.timeout = 8 * time.Second
	}
	if c.margin <= 0 {
		c.margin = 50 * time.Millisecond
	}
	return c
}

// Lookup answers a query. Its errors are blocked_address, nxdomain,
// connect_failed, handshake_failed and ssl_timeout, and invalid_domain for a
// query that ParseQuery did not make; anything else is a bug. It ends before
// the deadline of ctx, at once when ctx is cancelled, and leaves no goroutine
// or socket behind.
func (c *Client) Lookup(ctx context.Context, q Query) (Result, error) {
	ctx, cancel := c.budget(ctx)
	defer cancel()
	target, err := c.connector.Resolve(ctx, q.Domain)
	if err != nil {
		return Result{}, classify(ctx, err)
	}
	r, conn, err := c.inspect(ctx, q, target)
	if conn != nil {
		_ = conn.Close() // nothing is lost with it
	}
	return r, err
}

// Inspect is Lookup for a target that was resolved before. It also hands on
// the connection of a completed handshake, which the caller closes: no
// application data has passed, no ALPN was negotiated, no deadline is set, and
// the peer's certificate was not verified. conn is nil beside an error, and
// beside a result whose handshake failed after the certificate came.
func (c *Client) Inspect(ctx context.Context, q Query, target guard.Target) (r Result, conn *tls.Conn, err error) {
	ctx, cancel := c.budget(ctx)
	defer cancel()
	return c.inspect(ctx, q, target)
}

func (c *Client) inspect(ctx context.Context, q Query, target guard.Target) (Result, *tls.Conn, error) {
	conn, peer, err := c.dial(ctx, target)
	if err != nil {
		return Result{}, nil, err
	}
	s, done, again, err := handshake(ctx, conn, q.Domain, tls.VersionTLS13)
	if again {
		// Servers that choke on a TLS 1.3 hello, and keys too short for its
		// signatures. The first verdict stands if this shows no more.
		if conn, p, derr := c.dial(ctx, target); derr == nil {
			s2, done2, _, err2 := handshake(ctx, conn, q.Domain, tls.VersionTLS12)
			if err2 == nil {
				s, done, peer, err = s2, done2, p, nil
			}
		}
	}
	if err != nil {
		return Result{}, nil, err
	}
	r, err := s.result(q, peer, c.now())
	if err != nil {
		if done != nil {
			_ = done.Close()
		}
		return Result{}, nil, fault.Newf(fault.HandshakeFailed, err, "The host sent a certificate that cannot be read.")
	}
	return r, done, nil
}

// dial gives connecting half of the time that is left, so that a handshake
// after it has a chance.
func (c *Client) dial(ctx context.Context, target guard.Target) (net.Conn, netip.Addr, error) {
	end, _ := ctx.Deadline() // budget sets one
	share := time.Until(end) / 2
	dctx, cancel := context.WithTimeout(ctx, share)
	defer cancel()
	conn, peer, err := c.connector.Dial(dctx, target, Port)
	if err == nil {
		return conn, peer, nil
	}
	f, ok := errors.AsType[*fault.Error](err)
	// A Connector may also return the bare error of the context that we gave it.
	silent := dctx.Err() != nil && (ok && f.Code == fault.ConnectFailed || !ok && isTimeout(err) && !errors.Is(err, guard.ErrNoRoute))
	switch {
	case silent && (share < minDial || errors.Is(ctx.Err(), context.Canceled)):
		return nil, netip.Addr{}, fault.New(fault.SSLTimeout, err)
	case silent && !ok:
		return nil, netip.Addr{}, fault.New(fault.ConnectFailed, err)
	}
	return nil, netip.Addr{}, classify(ctx, err)
}

// classify turns a Connector's error into one of this tool's. What says
// nothing about the target is ssl_timeout, which leaves the answer owed.
func classify(ctx context.Context, err error) error {
	if f, ok := errors.AsType[*fault.Error](err); ok {
		switch f.Code {
		case fault.InvalidDomain, fault.NXDomain, fault.BlockedAddress, fault.ConnectFailed:
			return err
		default:
			return fault.New(fault.InternalError, err)
		}
	}
	switch {
	case errors.Is(err, guard.ErrNoRoute):
		return fault.Newf(fault.SSLTimeout, err, "The host has IPv6 addresses only, and this deployment has no IPv6 route.")
	case errors.Is(err, guard.ErrResolvers):
		return fault.Newf(fault.SSLTimeout, err, "The domain name could not be resolved in time: the resolvers do not answer.")
	case ctx.Err() != nil || isTimeout(err):
		return fault.New(fault.SSLTimeout, err)
	}
	return fmt.Errorf("ssl: connector: %w", err)
}

// budget ends a margin before ctx does, so that a verdict can still be
// returned in time.
func (c *Client) budget(ctx context.Context) (context.Context, context.CancelFunc) {
	end, ok := ctx.Deadline()
	if !ok {
		return context.WithTimeout(ctx, c.timeout)
	}
	left := time.Until(end)
	return context.WithTimeout(ctx, left-min(c.margin, left/10))
}
