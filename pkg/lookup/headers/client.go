// Package headers is HTTP Headers: the allowlisted response headers of
// https://{domain}/ (spec §2.4, §4.5).
//
// The host's addresses were all found to be public before one was connected to, a result
// holds the sixteen headers of the spec and no other, so no cookie, and no connection
// outlives a call. It verifies no certificate, follows no redirect and reads no body.
package headers

import (
	"context"
	"crypto/tls"
	"net/netip"

	"github.com/hostfacts/hostfacts/pkg/guard"
	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/origin"
)

// Client looks headers up. It is safe for concurrent use.
type Client struct{ origins *origin.Client }

// New returns a Client.
func New(origins *origin.Client) *Client { return &Client{origins} }

// Lookup answers a query within the time of ctx. Its errors are those of package origin,
// with headers_timeout for what says nothing about the target.
func (c *Client) Lookup(ctx context.Context, q Query) (Result, error) {
	target, err := c.origins.Connector.Resolve(ctx, q.Domain)
	if err != nil {
		return Result{}, origin.Fault(ctx, err, lookup.HeadersTimeout)
	}
	return c.LookupOn(ctx, q, target, nil, netip.Addr{})
}

// LookupOn is Lookup at a target that was resolved already and, when conn is
// not nil, over a connection to its peer that is past the TLS handshake. The
// connection is used up. If it turns out to be dead, another is made.
func (c *Client) LookupOn(ctx context.Context, q Query, target guard.Target, conn *tls.Conn, peer netip.Addr) (Result, error) {
	host := c.origins.Host(target, conn, peer)
	defer host.Close()
	a, err := host.Fetch(ctx, "/")
	if err != nil {
		return Result{}, origin.Fault(ctx, err, lookup.HeadersTimeout)
	}
	return Result{
		Domain: q.Domain, URL: "https://" + q.Domain + "/",
		Method: a.Method, Status: a.Status, PeerIP: a.Peer.String(),
		Headers: allowlisted(a.Header),
	}, nil
}
