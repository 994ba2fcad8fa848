// Package headers is HTTP Headers: the allowlisted response headers of
// https://{domain}/ (spec §2.4, §4.5).
//
// It guarantees that the host's addresses were all found to be public before
// one was connected to, that a result holds the sixteen headers of the spec
// and no other, so no cookie, and that nothing it started outlives a call. It
// verifies no certificate, follows no redirect and reads no body.
package headers

import (
	"context"
	"crypto/tls"
	"net/netip"

	"github.com/hostfacts/hostfacts/pkg/guard"
	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/origin"
)

// Client looks headers up. It is safe for concurrent use, and nothing of it
// runs between calls.
type Client struct {
	origins *origin.Client
}

// New returns a Client. It panics without an origin.Client.
func New(origins *origin.Client) *Client {
	if origins == nil {
		panic("headers: no origin client")
	}
	return &Client{origins: origins}
}

// Lookup answers a query. Its errors are blocked_address, nxdomain,
// connect_failed, handshake_failed, http_failed and headers_timeout, the last
// also when our resolvers are silent or we have no route.
func (c *Client) Lookup(ctx context.Context, q Query) (Result, error) {
	ctx, cancel := c.origins.Bound(ctx)
	defer cancel()
	target, err := c.origins.Resolve(ctx, q.Domain)
	if err != nil {
		return Result{}, origin.Fault(err, lookup.HeadersTimeout)
	}
	return c.LookupOn(ctx, q, target, nil, netip.Addr{})
}

// LookupOn is Lookup at a target that was resolved already and, when conn is
// not nil, over a connection to its peer that is past the TLS handshake. The
// connection is used up. If it turns out to be dead, another is made.
func (c *Client) LookupOn(ctx context.Context, q Query, target guard.Target, conn *tls.Conn, peer netip.Addr) (Result, error) {
	ctx, cancel := c.origins.Bound(ctx)
	defer cancel()
	host := c.origins.Host(target)
	if conn != nil {
		host = c.origins.HostOn(target, conn, peer)
	}
	defer host.Close()
	a, err := host.Fetch(ctx, "/")
	if err != nil {
		return Result{}, origin.Fault(err, lookup.HeadersTimeout)
	}
	return Result{
		Domain: q.Domain, URL: "https://" + q.Domain + "/",
		Method: a.Method, Status: a.Status, PeerIP: a.Peer.String(),
		Headers: allowlisted(a.Header),
	}, nil
}
