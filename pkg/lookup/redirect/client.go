// Package redirect is the Redirect Tracer: the chain of HTTPS redirects that
// starts at https://{domain}/ (spec §2.5, §3.2, §4.6).
//
// Every host of a chain passes the domain guard and the address guard before it is
// connected to, a chain has at most five hops, and no connection outlives a call. It
// verifies no certificate, keeps no cookie and reads no body.
//
// How a trace ends:
//
//	a status that does not redirect  stop_reason null
//	a Location that is not followed  missing_location, invalid_location,
//	                                 insecure_redirect, blocked_port,
//	                                 blocked_host, loop, max_hops: looked for
//	                                 in this order
//	the next hop fails               nxdomain, blocked_address, connect_failed,
//	                                 handshake_failed, http_failed
//	the first hop fails              an error of the call with that code
//	time is up, on any hop           redirect_timeout, an error of the call
package redirect

import (
	"context"
	"net/netip"
	"slices"

	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/origin"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// maxHops is the cap of spec §8.
const maxHops = 5

// Client traces redirects. It is safe for concurrent use.
type Client struct{ origins *origin.Client }

// New returns a Client.
func New(origins *origin.Client) *Client { return &Client{origins} }

// Lookup answers a query within the time of ctx. Its errors are redirect_timeout, which
// also stands for our resolvers being silent and for a missing route, and those of the
// first hop.
func (c *Client) Lookup(ctx context.Context, q Query) (Result, error) {
	hosts := map[string]*origin.Host{} // resolved once, and connected where they allow it
	defer func() {
		for _, h := range hosts {
			h.Close()
		}
	}()
	at := httpsURL{host: q.Domain, path: "/"}
	r := Result{Domain: q.Domain, StartURL: at.url()}
	seen := map[httpsURL]bool{}
	for {
		a, err := c.fetch(ctx, hosts, at)
		if err != nil {
			err = origin.Fault(ctx, err, lookup.RedirectTimeout)
			if stop := StopReason(fault.From(err).Code); len(r.Hops) > 0 && slices.Contains(StopReasons(), stop) {
				r.StopReason = &stop
				return r, nil
			}
			return Result{}, err
		}
		seen[at] = true
		location := a.Header["Location"]
		hop := Hop{Index: len(r.Hops), URL: at.url(), Method: a.Method, Status: a.Status, PeerIP: a.Peer.String()}
		if len(location) > 0 {
			hop.Location = new(origin.Text(location[0]))
		}
		r.Hops = append(r.Hops, hop)
		r.FinalURL, r.HopCount = hop.URL, len(r.Hops)
		if !slices.Contains([]int{301, 302, 303, 307, 308}, a.Status) { // the Fetch standard's redirect statuses
			return r, nil
		}
		next, stop := follow(at, location)
		switch {
		case stop != "":
		case seen[next]:
			stop = Loop
		case r.HopCount == maxHops:
			stop, r.Truncated = MaxHops, true
		default:
			at = next
			continue
		}
		r.StopReason = &stop
		return r, nil
	}
}

func (c *Client) fetch(ctx context.Context, hosts map[string]*origin.Host, u httpsURL) (origin.Answer, error) {
	if hosts[u.host] == nil {
		target, err := c.origins.Connector.Resolve(ctx, u.host)
		if err != nil {
			return origin.Answer{}, err
		}
		hosts[u.host] = c.origins.Host(target, nil, netip.Addr{})
	}
	return hosts[u.host].Fetch(ctx, u.path)
}
